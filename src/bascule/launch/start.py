"""Starts the ranks of a plan on their nodes, finds what runs there, and stops it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from bascule.core.nouns import Evidence, Fate, Finding, LaunchPlan, Node, RankPlan, RankState, Step
from bascule.core.plain import to_plain
from bascule.launch import venv
from bascule.launch.plan import digest
from bascule.remote.connect import Runners
from bascule.remote.runner import Result

_NO_SPACE = re.compile(r"No space left|Disk quota exceeded")


async def start(plan: LaunchPlan, generation: str, nodes: Mapping[str, Node], runners: Runners) -> Finding:
    """Start every rank at once; OK when all processes exist, which says nothing yet about the service.

    When it is cancelled it first lets the commands on the nodes end: what they start must be there to be found.
    """
    starting = asyncio.gather(*(_start_one(plan, rank, generation, nodes, runners) for rank in plan.ranks))
    try:
        results = await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait((starting,))
        raise
    for rank, result in zip(plan.ranks, results, strict=True):
        if not result.ok:
            return _not_started(rank, result)
    names = ", ".join(f"rank {rank.rank} on {rank.node}" for rank in plan.ranks)
    seen = tuple(_evidence(rank, "sh -s", rank_name_of(plan, generation, rank)) for rank in plan.ranks)
    return Finding(Step.LAUNCH, Fate.OK, "started", f"started {names}", seen)


def rank_name_of(plan: LaunchPlan, generation: str, rank: RankPlan) -> str:
    """The name under which a rank is found on its node."""
    return venv.rank_name(plan.service, generation, rank.rank)


async def find(nodes: Iterable[Node], runners: Runners, service: str = "") -> list[RankState]:
    """All ranks on these nodes; two nodes that share a machine and a run folder see each rank once."""
    per_node = await asyncio.gather(*(venv.find(runners[node.name], node, service) for node in nodes))
    unique = {(state.node, state.service, state.generation, state.rank): state for one in per_node for state in one}
    return sorted(unique.values(), key=lambda state: (state.service, state.generation, state.rank))


async def stop(
    nodes: Sequence[Node], runners: Runners, service: str, *, grace: int = venv.TERM_GRACE
) -> list[RankState]:
    """End every rank of a service on these nodes, with all they started; gives back those that were alive."""

    async def on(node: Node) -> list[RankState]:
        found = await venv.find(runners[node.name], node, service)
        await venv.stop(runners[node.name], node, [_name(state) for state in found if state.alive], grace)
        return [state for state in found if state.alive]

    stopped = await asyncio.gather(*(on(node) for node in nodes))
    unique = {_name(state): state for one in stopped for state in one}
    return list(unique.values())


async def clear(nodes: Sequence[Node], runners: Runners, service: str) -> None:
    """Remove the run folders of ranks of a service that have ended."""

    async def on(node: Node) -> None:
        found = await venv.find(runners[node.name], node, service)
        await venv.remove(runners[node.name], node, [_name(state) for state in found if not state.alive])

    await asyncio.gather(*(on(node) for node in nodes))


async def _start_one(
    plan: LaunchPlan, rank: RankPlan, generation: str, nodes: Mapping[str, Node], runners: Runners
) -> Result:
    label = venv.label_of(
        plan.service,
        generation,
        rank,
        ranks=len(plan.ranks),
        digest=digest(plan),
        started_at=f"{time.time():.3f}",
        url=plan.endpoint.url,
        model=plan.endpoint.model,
        candidate=plan.candidate.name,
        artefact=plan.candidate.artefact.ref,
        changes=to_plain(plan.candidate.changes),
    )
    root, name = venv.root_of(nodes[rank.node]), rank_name_of(plan, generation, rank)
    return await venv.start(runners[rank.node], root, name, rank, label)


def _not_started(rank: RankPlan, result: Result) -> Finding:
    complaint = result.complaint
    seen = (_evidence(rank, "sh -s", complaint),)
    if _NO_SPACE.search(result.stderr.decode(errors="replace")):
        says = f"the disk under the run folder of {rank.node} is full"
        advice = f"free some space there, or give {rank.node} another `run_dir`"
        return Finding(Step.LAUNCH, Fate.CLUSTER, "disk-full", says, seen, advice=advice)
    says = f"rank {rank.rank} could not be started on {rank.node}: {complaint}"
    return Finding(Step.LAUNCH, Fate.UNKNOWN, "not-started", says, seen)


def _evidence(rank: RankPlan, source: str, excerpt: str) -> Evidence:
    return Evidence(rank.node, source, datetime.now(UTC), excerpt)


def _name(state: RankState) -> str:
    return venv.rank_name(state.service, state.generation, state.rank)
