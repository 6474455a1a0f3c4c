"""What is made of a service that broke while it was watched: the evidence, its name, an event in the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bascule.core.nouns import Evidence, Fate, Finding, RankState, Step
from bascule.errors import NodeTrouble, NodeUnreachable
from bascule.journal import Journal
from bascule.launch import start as ranks
from bascule.operate.guard import Guard
from bascule.operate.lock import is_held
from bascule.remote import shell
from bascule.remote.docker import PREFIX
from bascule.watch.capture import Captured
from bascule.watch.diagnose import what_was_said
from bascule.watch.follow import Rank
from bascule.watch.load import has_metrics, times
from bascule.watch.serving import Outlook, State, is_paused, spins_beside, stopped_since

IN_ORDER = (0, 130, 143)  # exit status of a rank that was told to end, and may have ended for that
ENDING = 12.0  # seconds from the end of such a rank to that of the last one, and of its run folder
ANSWERS = 10.0  # seconds for a node to say which ranks it has
BUSY = 60.0  # seconds that another bascule, which works on the service, is waited for


async def conclude(guard: Guard, outlook: Outlook, journal: Journal) -> Finding | None:
    """The Finding about a service that broke, noted in its run; None when it was taken down on purpose."""
    dead = await guard.follower.died() if outlook.state is State.DEAD else None
    if dead and await _is_taken_down(guard, journal):
        return None
    await _count_tokens(guard, outlook)
    taken = await _keep(guard, _folder(journal, guard.ward.run))
    await _count_tokens(guard, outlook)
    finding = dead or _finding(guard, outlook, taken)
    finding = replace(finding, evidence=(*finding.evidence, *_peers(guard, outlook)))
    journal.record(guard.ward.run, "broke", finding=finding)
    return finding


async def _count_tokens(guard: Guard, outlook: Outlook) -> None:
    """One look at the metrics of a head that lives: only between two of them is it known that no token was made."""
    if outlook.rank not in (None, 0) and has_metrics(guard.ward.lore.name):
        guard.loads.append(await guard.asker.load())


def _peers(guard: Guard, outlook: Outlook) -> Iterator[Evidence]:
    """Ranks that are busy in vain since the one that all hangs on was stopped, or has ended."""
    if outlook.rank is None or outlook.state not in (State.DEAD, State.STOPPED):
        return
    served, now = guard.served(), time.monotonic()
    ended = guard.follower.ranks[outlook.rank].ended_at
    since = ended if outlook.state is State.DEAD else stopped_since(served[outlook.rank])
    if since is None:
        return
    for one in served:
        if one.rank != outlook.rank and (says := spins_beside(one, since, guard.loads, now)):
            yield Evidence(guard.follower.ranks[one.rank].node, "counters and requests", datetime.now(UTC), says)


async def _is_taken_down(guard: Guard, journal: Journal) -> bool:
    """True once nothing is left of this start on the nodes that answer; what ends in order is given time for that."""
    began, ward, followed = time.monotonic(), guard.ward, guard.follower.ranks
    while True:
        if not await _is_left(guard):
            return True
        ended = [rank for rank in followed if not rank.alive]
        ordered = len(ended) == len(followed) or any(rank.exit_code in IN_ORDER for rank in ended)
        held = is_held(journal.folder / "locks", ward.service)
        if time.monotonic() - began > (BUSY if held else ENDING if ordered else 0.0):
            return False
        await asyncio.sleep(1.0)
        await guard.follower.look()


async def _is_left(guard: Guard) -> bool:
    """A rank of this start is there, alive or ended; nobody knows of a node that doesn't answer."""
    now = time.monotonic()
    answering = {rank.node for rank in guard.follower.ranks if now - rank.seen_at < times().lost_s}
    found = await asyncio.gather(*(_found(guard, node) for node in answering))
    known = [one for one in found if one is not None]
    return not known or any(state.generation == guard.ward.generation for one in known for state in one)


async def _found(guard: Guard, node: str) -> list[RankState] | None:
    """The ranks of the service on a node; None when it doesn't answer in time."""
    try:
        async with asyncio.timeout(ANSWERS):
            return await ranks.find([guard.ward.nodes[node]], guard.ward.runners, guard.ward.service)
    except (NodeUnreachable, NodeTrouble, TimeoutError):
        return None


def _folder(journal: Journal, run: int) -> Path:
    """watch1, watch2, …: what was kept earlier stays."""
    number = 1
    while (folder := journal.evidence_dir(run) / f"watch{number}").exists():
        number += 1
    folder.mkdir()
    return folder


async def _keep(guard: Guard, folder: Path) -> Captured | None:
    """The newest lines of every log, and what can be read on the nodes, in bounded time."""
    guard.vigil.folder = folder
    for rank in guard.follower.ranks:
        lines = [line.text for line in guard.follower.lines if line.rank == rank.number]
        (folder / f"rank{rank.number}.log").write_text("".join(f"{line}\n" for line in lines))
    return await guard.vigil.capture()


def _finding(guard: Guard, outlook: Outlook, taken: Captured | None) -> Finding:
    """About a service whose ranks all live; what is proven or was said comes with its name and remedies."""
    seen = (_evidence(guard, outlook),)
    match outlook.state:
        case State.STOPPED:
            return _stopped(guard, guard.follower.ranks[outlook.rank or 0], seen)
        case State.UNANSWERED:
            return Finding(Step.WATCH, Fate.AGAIN, "completion-failed", outlook.says, seen)
        case State.SPINNING:
            found = Finding(Step.WATCH, Fate.UNKNOWN, "rank-spinning", outlook.says, seen)
        case _:
            found = Finding(Step.WATCH, Fate.UNKNOWN, "service-standstill", outlook.says, seen)
    named = guard.vigil.link_cut(taken) or what_was_said(guard.follower.lines, guard.follower.places)
    return replace(named, evidence=(*named.evidence, *seen)) if named else found


def _stopped(guard: Guard, rank: Rank, seen: tuple[Evidence, ...]) -> Finding:
    """How it goes on: by a signal to its processes, or by docker, whose pause no signal ends."""
    pids, tool = guard.vigil.pids.get(rank.number, ()), guard.ward.nodes[rank.node].facts.docker
    says, advice = f"rank {rank.number} on {rank.node} is stopped by a signal", "find out who stopped it"
    words: tuple[str, ...] = ("kill", "-CONT", *map(str, pids)) if pids else ()
    if tool and is_paused(guard.served()[rank.number]):
        says, advice = f"rank {rank.number} on {rank.node} is paused", "find out who paused it"
        words = (*tool.command, "unpause", f"{PREFIX}.{rank.name}")
    advice += f"; `{shell.line(words)}` there lets it go on" if words else ""
    return Finding(Step.WATCH, Fate.UNKNOWN, "rank-stopped", says, seen, advice=advice)


def _evidence(guard: Guard, outlook: Outlook) -> Evidence:
    head = guard.follower.ranks[outlook.rank or 0]
    return Evidence(head.node, "counters and requests", datetime.now(UTC), (outlook.counters or outlook.says)[:600])
