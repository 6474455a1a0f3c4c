"""Brings a candidate's image and model to the nodes that lack them, from one that has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bascule import settings
from bascule.core.nouns import Candidate, Fate, Finding, Node
from bascule.distribute import image, present
from bascule.distribute.images.copy import copy_image
from bascule.distribute.images.pull import is_pullable, pull
from bascule.distribute.weights.copy import copy_weights
from bascule.remote.connect import Runners

TELL_EVERY = 5.0  # seconds between two words about a copy to the same target


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is to be where: the candidate's own nodes, and all nodes of the recipe, which may have it to give."""

    candidate: Candidate
    nodes: Sequence[Node]
    givers: Sequence[Node]
    runners: Runners
    note: Callable[..., None]  # writes into the journal


async def bring(delivery: Delivery) -> Finding:
    """OK when every node holds the candidate's artefact and model, after copying what was missing."""
    candidate, nodes, runners = delivery.candidate, delivery.nodes, delivery.runners
    if candidate.artefact.kind == "image":
        finding = await _image(delivery)
        if finding.fate is not Fate.OK:
            return finding
    finding = await present.check(candidate, nodes, runners)
    if finding.code != "weights-missing":
        return finding
    return await _weights(delivery) or await present.check(candidate, nodes, runners)


async def _image(delivery: Delivery) -> Finding:
    candidate, nodes, runners, note = delivery.candidate, delivery.nodes, delivery.runners, delivery.note
    held, trouble = await image.holdings(candidate, nodes, runners)
    elsewhere = [node for node in delivery.givers if node.name not in held and node.facts.docker]
    held |= (await image.holdings(candidate, elsewhere, runners))[0]
    source = next((node for node in (*nodes, *elsewhere) if held.get(node.name)), None)
    if source is None and not trouble and not settings.offline() and is_pullable(candidate.artefact.ref):
        if failed := await pull(candidate.artefact.ref, nodes[0], runners[nodes[0].name], _teller("image", note)):
            return failed
        held |= (await image.holdings(candidate, nodes[:1], runners))[0]
        source = nodes[0] if held.get(nodes[0].name) else None
    lacking = [node for node in nodes if source and image.differs(held.get(node.name), held[source.name])]
    if trouble or source is None or not lacking:
        return trouble or image.compare(candidate, nodes, held)
    for node in nodes:  # refused before a byte is sent
        if wrong := image.for_another_processor(candidate, node, held[source.name]):
            return wrong
    outcomes = await copy_image(candidate.artefact.ref, source, lacking, runners, _teller("image", note))
    note("copied", what=candidate.artefact.ref, source=source.name, outcomes=_brief(outcomes))
    failed = next((one for one in outcomes.values() if isinstance(one, Finding)), None)
    return failed or await image.check(candidate, nodes, runners)


async def _weights(delivery: Delivery) -> Finding | None:
    """Copy the model from the first node that has it; the first failure, or None."""
    candidate, nodes, runners, note = delivery.candidate, delivery.nodes, delivery.runners, delivery.note
    holdings = {node.name: await present.holding(candidate, node, runners) for node in delivery.givers}
    source = next((node for node in delivery.givers if holdings[node.name].files), None)
    lacking = [node for node in nodes if not holdings[node.name].files]
    if source is None:
        return None
    outcomes = await copy_weights(candidate.model, source, lacking, runners, _teller("model", note))
    note("copied", what=candidate.model, source=source.name, outcomes=_brief(outcomes))
    return next((one for one in outcomes.values() if isinstance(one, Finding)), None)


def _teller(what: str, note: Callable[..., None]) -> Callable[[Any], None]:
    told: dict[str, tuple[float, str]] = {}

    def tell(progress: Any) -> None:
        done = getattr(progress, "done", getattr(progress, "bytes", 0))
        at, word = told.get(progress.target, (0.0, ""))
        now, new = time.monotonic(), f"{progress.phase} {done}"
        if new == word or (now - at < TELL_EVERY and word.startswith(f"{progress.phase} ")):
            return
        told[progress.target] = (now, new)
        note(
            "copying",
            what=what,
            target=progress.target,
            phase=str(progress.phase),
            done=done,
            total=progress.total,
            rate=progress.rate,
        )

    return tell


def _brief(outcomes: Mapping[str, Any]) -> dict[str, Any]:
    """What the journal keeps of each target."""
    return {
        name: {"failed": one.says} if isinstance(one, Finding) else {"sent": one.sent, "seconds": one.seconds}
        for name, one in outcomes.items()
    }
