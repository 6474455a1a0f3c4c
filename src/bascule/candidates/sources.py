"""The sources of offers: the nodes themselves, and images in registries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from bascule.candidates.ask import AT_ONCE, Ask, Unread
from bascule.candidates.picks import Pick, from_catalogue, from_search
from bascule.core.reading import Unreadable
from bascule.discover.candidates import resolved
from bascule.discover.environments import find_environments
from bascule.discover.images import publisher_of, recognised, release_in, release_of, shown
from bascule.discover.node_images import OnNodes, find_images, identity_of_layers
from bascule.discover.offers import NODES, OWN, RECIPE, Offer
from bascule.registry.aside import aside
from bascule.registry.image import RemoteImage, fetch, signed
from bascule.registry.oci import Reference, reference_of
from bascule.registry.repository import Repository
from bascule.registry.troubles import NoPlatform


async def on_nodes(ask: Ask) -> tuple[OnNodes, tuple[Offer, ...]]:
    """Images, and environments that every node has. Raises NodeUnreachable."""
    if not ask.nodes:
        return OnNodes(()), ()
    images, found = await asyncio.gather(
        find_images(ask.nodes, ask.runners, ask.images),
        find_environments(ask.nodes, ask.runners, ask.environments),
    )
    everywhere = tuple(node.name for node in ask.nodes)
    images = replace(images, offers=tuple(_named(offer, ask) for offer in images.offers))
    environments = tuple(
        Offer((folder,), "venv", engine, (NODES,), OWN, frozenset((f"folder:{folder}",)), nodes=everywhere)
        for engine, folders in found.items()
        for folder in folders
    )
    return images, (*_environments_named(ask, everywhere), *environments)


async def in_registries(ask: Ask) -> tuple[tuple[Offer, ...], tuple[Unread, ...]]:
    """Images of the catalogue, of a search and of the person's own words; and what gave no answer."""
    gate = asyncio.Semaphore(AT_ONCE)
    own = [Pick(name, RECIPE, named=True) for name in ask.references]
    (known, failed), (found, lost) = await asyncio.gather(from_catalogue(ask, gate), from_search(ask, gate))
    picks = [*own, *_first_of_each([*known, *found])][: max(ask.limit, len(own))]
    ask.tell(f"looking at {len(picks)} images in registries")
    rows = await asyncio.gather(*(_offer(pick, ask, gate) for pick in picks))
    offers = tuple(row for row in rows if isinstance(row, Offer))
    return offers, tuple(dict.fromkeys((*failed, *lost, *(row for row in rows if isinstance(row, Unread)))))


def _named(offer: Offer, ask: Ask) -> Offer:
    """An image on the nodes that the person means."""
    meant = next((name for name in offer.names if name in ask.references), "")
    if not meant:
        return offer
    sources = (RECIPE, *offer.sources)
    return replace(offer, named=True, sources=sources, engine=ask.engine_named(meant) or offer.engine)


def _environments_named(ask: Ask, everywhere: tuple[str, ...]) -> tuple[Offer, ...]:
    """Those of the recipe, wherever they are."""
    rows = [(spec, resolved(spec.venv, ask.base)) for spec in ask.named_by_recipe if spec.venv]
    return tuple(
        Offer(
            (folder,),
            "venv",
            spec.engine,
            (RECIPE,),
            OWN,
            frozenset((f"folder:{folder}",)),
            nodes=tuple(spec.nodes or everywhere),
            named=True,
        )
        for spec, folder in rows
    )


async def _offer(pick: Pick, ask: Ask, gate: asyncio.Semaphore) -> Offer | Unread:
    """The image as its registry describes it."""
    try:
        async with gate:
            return await aside(_described, pick, ask)
    except Unreadable as trouble:
        return Unread.of(trouble, pick.name)


def _described(pick: Pick, ask: Ask) -> Offer:
    reference = reference_of(pick.name)
    repository = Repository(reference, ask.access)
    try:
        image = fetch(repository, next(iter(ask.platforms), "linux/amd64"))
    except NoPlatform as trouble:
        return _for_others(pick, reference, trouble, ask)
    return _of_image(pick, reference, image, ask, signed(repository, image))


def _for_others(pick: Pick, reference: Reference, trouble: NoPlatform, ask: Ask) -> Offer:
    """What has nothing for these nodes: it is told, and refused for that."""
    engine = pick.known.engine if pick.known else ""
    publisher = publisher_of(reference, ask.images)
    platforms, sources = trouble.there, (pick.source,)
    return Offer((pick.name,), "image", engine, sources, publisher, platforms=platforms, named=pick.named)


def _of_image(pick: Pick, reference: Reference, image: RemoteImage, ask: Ask, signature: tuple[str, str]) -> Offer:
    facts, known, popularity = image.facts, pick.known, pick.popularity
    words = (*facts.entrypoint, *facts.command)
    engine, why = recognised(shown((pick.name,), words, facts.env, facts.labels), ask.images)
    engine = known.engine if known else ask.engine_named(pick.name) or engine
    return Offer(
        tuple(dict.fromkeys((pick.name, *pick.also))),
        "image",
        engine,
        (pick.source,),
        publisher_of(reference, ask.images),
        frozenset((image.digest, image.manifest, image.config, *identity_of_layers(facts.diff_ids))),
        image.digest,
        image.platforms or ((facts.platform,) if facts.platform else ()),
        image.size,
        facts.created,
        popularity.pulls if popularity else None,
        "present" if signature[0] == "present" else "absent" if signature[0] == "absent" else "unknown",
        release=release_of(known, reference.version) or release_in(engine, facts.env, facts.history),
        accelerator=known.accelerator if known else "",
        note=known.note if known else "",
        named=pick.named,
        also=tuple(text for text in (why, f"signature: {signature[1]}") if text),
    )


def _first_of_each(groups: Sequence[Iterable[Pick]]) -> Iterator[Pick]:
    """The first of every group, then the second of every one, and so on."""
    for row in zip_longest(*groups):
        yield from (pick for pick in row if pick)
