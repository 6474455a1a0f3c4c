"""Looks into what is offered, with the probe, and says what it can: nothing is pulled, started or imported."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bascule.candidates.ask import Ask
from bascule.candidates.names import candidate_of, pinned
from bascule.core.nouns import Fate, Node
from bascule.core.reading import Unreadable
from bascule.discover.images import order
from bascule.discover.offers import Offer
from bascule.discover.rank import Verdict, refusal
from bascule.engines.catalogue import ENGINES
from bascule.errors import BasculeError
from bascule.probe.facts import first_release, known_from, unknown_before
from bascule.probe.gather import finding
from bascule.probe.readers import READERS
from bascule.probe.targets import Layered, Probed, open_target, unread
from bascule.probe.verdict import Question, Report


async def look(offer: Offer, ask: Ask, gate: asyncio.Semaphore) -> Verdict:
    """What the probe says of it; nothing is read of what can't be a candidate anyway. Raises NodeUnreachable."""
    if refused := refusal(offer, ask.wanted):
        return Verdict("NO", refused)
    if offer.engine not in READERS:
        return Verdict("UNKNOWN", f"nothing is known of how to read {offer.engine}")
    question = Question(candidate_of(offer, ask), ask.model, gpu=ask.gpu)
    target: Probed | None = None
    try:
        async with gate:
            target = await _target(offer, ask)
            report = await target.report(question)
    except Unreadable as trouble:
        return replace(_unread(offer, ask, question, trouble), bytes_read=target.bytes_read if target else 0)
    except BasculeError as trouble:  # it was there a moment ago
        return _unread(offer, ask, question, Unreadable(offer.name, trouble.says))
    return _verdict(report, offer, ask, target.bytes_read)


async def engines_in(offer: Offer, ask: Ask, gate: asyncio.Semaphore) -> Offer:
    """An image that shows no engine, with the one that lies in it where one does."""
    try:
        async with gate:
            found = await (await _target(offer, ask)).engines()
    except (Unreadable, BasculeError):
        return offer
    return replace(offer, engine=next((name for name in found if name in ENGINES), ""))


async def _target(offer: Offer, ask: Ask) -> Probed:
    platform = next(iter(ask.platforms), "")
    if not offer.nodes:
        return Layered(pinned(offer), platform, ask.access)
    node = next(node for node in ask.nodes if node.name in offer.nodes)
    kind = "venv" if offer.kind == "venv" else "image"
    return await open_target(f"{kind}:{offer.name}", node, ask.runners[node.name], platform)


def _verdict(report: Report, offer: Offer, ask: Ask, size: int) -> Verdict:
    overall = report.overall
    seen = finding(report, _where(offer, ask), ask.now(), f"{offer.name} " if offer.kind == "image" else "")
    return Verdict(str(overall.word), overall.says, overall.code, report.label, 0, overall.change, size, seen)


def _unread(offer: Offer, ask: Ask, question: Question, trouble: Unreadable) -> Verdict:
    """No answer: what its release lets expect is told, and stays a hint."""
    seen = unread(question, trouble, _where(offer, ask), ask.now(), f"{offer.name} ")
    hint, words = hint_of(offer, question)
    says = f"not read: {trouble.why}" + (f"; {words}" if words else "")
    word = "NO" if seen.fate is Fate.HOPELESS else "UNKNOWN"
    return Verdict(word, says, seen.code, "", hint, seen.advice, 0, seen)


def hint_of(offer: Offer, question: Question) -> tuple[int, str]:
    """What the release that an image names lets expect, by the releases on record: 1, -1 or 0, and in words."""
    engine, name = offer.engine, question.architecture
    if not offer.release or not name:
        return 0, ""
    says = f"by its tag or history {READERS[engine].title} {offer.release}"
    since, never = known_from(engine, name), unknown_before(engine, name)
    if since and order(offer.release)[0] >= order(since)[0]:
        return 1, f"{says}, which knows {name}"
    if never and order(offer.release)[0] < order(never)[0]:
        return -1, f"{says}, which lacks {name} (first in {first_release(engine, name)})"
    return 0, says


def _where(offer: Offer, ask: Ask) -> str:
    node: Node | None = next((node for node in ask.nodes if node.name in offer.nodes), None)
    return node.name if node else "registry"
