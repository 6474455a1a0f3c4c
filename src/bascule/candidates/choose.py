"""Candidates for a model: from the nodes first, from registries where that isn't enough or is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bascule.candidates.ask import AT_ONCE, Ask, Discovered, Unread
from bascule.candidates.look import engines_in, look
from bascule.candidates.sources import in_registries, on_nodes
from bascule.discover.node_images import OnNodes
from bascule.discover.offers import Offer, merged
from bascule.discover.rank import CLASSES, GOOD, Verdict, rank

MOST_OTHERS = 6  # large images without a word of an engine that are looked into

Far = tuple[tuple[Offer, ...], tuple[Unread, ...]]


async def discover_candidates(ask: Ask) -> Discovered:
    """Everything that might serve the model, ranked; nothing is pulled. Raises NodeUnreachable."""
    began = time.monotonic()
    gate = asyncio.Semaphore(AT_ONCE)
    early = asyncio.ensure_future(in_registries(ask)) if ask.search and not ask.offline else None
    try:
        near, unread = await _near(ask, gate)
        pairs = await _looked(near, ask, gate)
        far: Far = ((), ())
        if early or not (ask.offline or _any_good(pairs)):
            far = await (early or in_registries(ask))
    finally:
        if early:
            early.cancel()
    pairs = await _with(far[0], pairs, ask, gate)
    ranking = rank(pairs, ask.wanted, ask.now())
    there = {name for offer in near for name in offer.names}  # whatever a registry says of them
    return Discovered(
        ranking,
        (*unread, *(one for one in far[1] if one.source not in there)),
        bool(early) or bool(far[0] or far[1]),
        ask.access.shared.received,
        time.monotonic() - began,
        dict(ask.access.shared.allowances),
    )


async def _near(ask: Ask, gate: asyncio.Semaphore) -> tuple[tuple[Offer, ...], tuple[Unread, ...]]:
    """What the nodes have; large images of unknown engines are looked into for one."""
    images, environments = await on_nodes(ask)
    others = await asyncio.gather(*(engines_in(one, ask, gate) for one in _largest(images)))
    offers = (*environments, *images.offers, *(one for one in others if one.engine))
    unread = [Unread(f"images on {node}", "docker-missing", why) for node, why in (images.unread or {}).items()]
    return merged(offers), tuple(unread)


def _largest(images: OnNodes) -> Sequence[Offer]:
    return sorted(images.others, key=lambda one: -(one.size or 0))[:MOST_OTHERS]


async def _looked(offers: Sequence[Offer], ask: Ask, gate: asyncio.Semaphore) -> list[tuple[Offer, Verdict]]:
    verdicts = await asyncio.gather(*(look(offer, ask, gate) for offer in offers))
    return list(zip(offers, verdicts, strict=True))


async def _with(
    far: Sequence[Offer], pairs: list[tuple[Offer, Verdict]], ask: Ask, gate: asyncio.Semaphore
) -> list[tuple[Offer, Verdict]]:
    """All of it, each image once: what is on a node was looked into there."""
    whole = merged((*(offer for offer, _ in pairs), *far))
    known = {identity: verdict for offer, verdict in pairs for identity in offer.identities}
    old = [(offer, _known(offer, known)) for offer in whole]
    new = await _looked([offer for offer, verdict in old if verdict is None], ask, gate)
    return [*((offer, verdict) for offer, verdict in old if verdict), *new]


def _known(offer: Offer, known: dict[str, Verdict]) -> Verdict | None:
    return next((known[one] for one in offer.identities if one in known), None)


def _any_good(pairs: Sequence[tuple[Offer, Verdict]]) -> bool:
    return any(CLASSES.get(verdict.word, 9) <= GOOD for _, verdict in pairs)
