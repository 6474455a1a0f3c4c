"""Copies an image from one node to others, and proves by content that they have it: the one door to this package.

Nodes send to each other directly over the fastest network that they share. That is not encrypted; it is authenticated
by a one-time token, and every blob is checked by its digest. Nodes that can't reach each other get a tunnel through
the controller's ssh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from bascule.core.nouns import Fate, Finding, Node
from bascule.distribute.images import inventory, pipe, plan, relayed, troubles
from bascule.distribute.images.content import Receipt
from bascule.distribute.images.inventory import Inventory
from bascule.distribute.images.job import Job
from bascule.distribute.images.progress import CopyProgress
from bascule.distribute.images.session import REFUSALS, sent_away
from bascule.errors import NodeUnreachable
from bascule.remote.connect import Runners
from bascule.remote.runner import Runner

__all__ = ["CopyProgress", "Receipt", "copy_image", "receipt"]

PAUSES = (0.0, 1.0, 4.0)  # seconds before each try; what an earlier one fetched is not sent again


async def copy_image(
    image: str,
    source: Node,
    targets: Sequence[Node],
    runners: Runners,
    on_progress: Callable[[CopyProgress], None],
) -> dict[str, Receipt | Finding]:
    """A Receipt or a Finding for each target, by its name; tries again what may work again."""
    job = Job(image, source, runners, on_progress)
    for pause in PAUSES:
        left = [node for node in targets if node.name != source.name and _open(job, node)]
        if left:
            await asyncio.sleep(pause)
            await _try(job, left)
    return job.outcomes


async def receipt(image: str, node: Node, runner: Runner) -> Receipt | None:
    """What the node has under this name, by content; None when it has nothing. Raises NodeUnreachable."""
    taken = await inventory.take(runner, image)
    return Receipt(taken.wanted) if taken.wanted else None


def _open(job: Job, node: Node) -> bool:
    """True when there is no outcome yet, or one that another try may better."""
    outcome = job.outcomes.get(node.name)
    return outcome is None or (isinstance(outcome, Finding) and outcome.fate is Fate.AGAIN)


async def _try(job: Job, targets: Sequence[Node]) -> None:
    nodes = (job.source, *targets)
    found = await asyncio.gather(*(_inventory(job, node) for node in nodes))
    known = {node.name: each for node, each in zip(nodes, found, strict=True) if isinstance(each, Inventory)}
    for node, each in zip(nodes, found, strict=True):
        if isinstance(each, NodeUnreachable):
            for target in targets if node is job.source else (node,):
                job.fail(target.name, "node-unreachable", each.seen or each.says)
    if job.source.name not in known or not _source_has(job, known[job.source.name], targets):
        return
    steps = [step for node in targets if node.name in known and (step := _step(job, node, known))]
    by_name = {node.name: node for node in targets}
    streams = [step for step in steps if step.method == "stream"]
    relays = [step for step in steps if step.method in ("load", "pull")]
    await asyncio.gather(
        relayed.copy(job, by_name, known, relays),
        *(pipe.copy(job, by_name[step.target], known, step) for step in streams),
    )


async def _inventory(job: Job, node: Node) -> Inventory | NodeUnreachable:
    """Asks again when sshd sends us away at once, as it does with too many beginners."""
    for pause in (*REFUSALS, None):
        try:
            return await inventory.take(job.runners[node.name], job.image)
        except NodeUnreachable as lost:
            if pause is None or not sent_away(lost):
                return lost
            await asyncio.sleep(pause)
    raise AssertionError("the last pause is None")


def _source_has(job: Job, taken: Inventory, targets: Sequence[Node]) -> bool:
    """False, with findings for all, when the source can't give the image."""
    if not taken.docker:
        refusal = plan.no_docker(job.source.name, taken)
    elif taken.wanted is None:
        says = f"{job.source.name} has no {job.image}"
        seen = f"docker image inspect {job.image}: no such image"
        refusal = plan.Refusal("artefact-missing", says, seen, f"on {job.source.name}: docker pull {job.image}")
    else:
        return True
    for target in targets:
        job.conclude(target.name, troubles.of_refusal(refusal, job.source.name, datetime.now(UTC)))
    return False


def _step(job: Job, node: Node, known: Mapping[str, Inventory]) -> plan.Step | None:
    """What to do for a target; None when that is nothing, and its outcome is noted."""
    source, target = known[job.source.name], known[node.name]
    if refusal := plan.refuse(job.image, source, node.name, target):
        job.conclude(node.name, troubles.of_refusal(refusal, node.name, datetime.now(UTC)))
        return None
    neighbours = sum(each.boot == target.boot for name, each in known.items() if name != job.source.name)
    step = plan.step(source, node.name, target, hollow=node.name in job.hollow, neighbours=neighbours)
    if step.method == "nothing" and target.wanted:
        job.conclude(node.name, Receipt(target.wanted, reasons=step.reasons))
        return None
    return step
