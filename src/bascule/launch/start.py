"""Starts the ranks of a plan on their nodes, finds what runs there, and stops it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from bascule.core.nouns import Evidence, Fate, Finding, LaunchPlan, Node, RankPlan, RankState, Step
from bascule.core.plain import to_plain
from bascule.launch.plan import digest
from bascule.launch.runtime import RUNTIMES
from bascule.launch.venv import TERM_GRACE, label_of, rank_name
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
    return rank_name(plan.service, generation, rank.rank)


async def find(nodes: Iterable[Node], runners: Runners, service: str = "") -> list[RankState]:
    """All ranks on these nodes; two nodes that share a machine and a run folder see each rank once."""
    per_node = await asyncio.gather(*(_find_on(node, runners, service) for node in nodes))
    unique = {(state.node, state.service, state.generation, state.rank): state for one in per_node for state in one}
    return sorted(unique.values(), key=lambda state: (state.service, state.generation, state.rank))


async def stop(nodes: Sequence[Node], runners: Runners, service: str, *, grace: int = TERM_GRACE) -> list[RankState]:
    """End every rank of a service on these nodes, with all they started; gives back those that were alive."""

    async def on(node: Node) -> list[RankState]:
        alive = [state for state in await _find_on(node, runners, service) if state.alive]
        for kind, runtime in RUNTIMES.items():
            await runtime.stop(runners[node.name], node, _names(alive, kind), grace)
        return alive

    stopped = await asyncio.gather(*(on(node) for node in nodes))
    return list({name_of(state): state for one in stopped for state in one}.values())


async def clear(nodes: Sequence[Node], runners: Runners, service: str) -> None:
    """Remove what ranks of a service that have ended left on these nodes."""

    async def on(node: Node) -> None:
        ended = [state for state in await _find_on(node, runners, service) if not state.alive]
        for kind, runtime in RUNTIMES.items():
            await runtime.remove(runners[node.name], node, _names(ended, kind))

    await asyncio.gather(*(on(node) for node in nodes))


def name_of(state: RankState) -> str:
    """The name of a rank that was found."""
    return rank_name(state.service, state.generation, state.rank)


async def _find_on(node: Node, runners: Runners, service: str) -> list[RankState]:
    found = await asyncio.gather(*(runtime.find(runners[node.name], node, service) for runtime in RUNTIMES.values()))
    return [state for one in found for state in one]


def _names(states: Sequence[RankState], kind: str) -> list[str]:
    return [name_of(state) for state in states if state.runtime == kind]


async def _start_one(
    plan: LaunchPlan, rank: RankPlan, generation: str, nodes: Mapping[str, Node], runners: Runners
) -> Result:
    label = label_of(
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
    name, runtime = rank_name_of(plan, generation, rank), RUNTIMES[plan.candidate.artefact.kind]
    return await runtime.start(runners[rank.node], nodes[rank.node], name, rank, label)


def _not_started(rank: RankPlan, result: Result) -> Finding:
    complaint = " ".join(result.stderr.decode(errors="replace").split())[-400:] or result.complaint
    seen = (_evidence(rank, "sh -s", complaint),)
    if _NO_SPACE.search(result.stderr.decode(errors="replace")):
        says = f"the disk under the run folder of {rank.node} is full"
        advice = f"free some space there, or give {rank.node} another `run_dir`"
        return Finding(Step.LAUNCH, Fate.CLUSTER, "disk-full", says, seen, advice=advice)
    says = f"rank {rank.rank} could not be started on {rank.node}: {complaint}"
    return Finding(Step.LAUNCH, Fate.UNKNOWN, "not-started", says, seen)


def _evidence(rank: RankPlan, source: str, excerpt: str) -> Evidence:
    return Evidence(rank.node, source, datetime.now(UTC), excerpt)
