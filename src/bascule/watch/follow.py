"""Follows all ranks of a start as one stream: their logs, their phases, and whether they live."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bascule.core.layout import Place
from bascule.core.nouns import RECENT, Evidence, Fate, Finding, Glimpse, Step
from bascule.engines.base import Lore
from bascule.errors import NodeUnreachable
from bascule.watch.budgets import Facts, within_s
from bascule.watch.catalogue import Failure
from bascule.watch.diagnose import LogLine, diagnose, diagnose_silence, weaknesses
from bascule.watch.phases import Progress, advance, begin
from bascule.watch.stall import Judgement
from bascule.watch.standing import Standing, Verdict
from bascule.watch.vigil import Vigil

LOOK_EVERY = 1.0  # seconds; a dead rank is to be seen within 5
PATIENCE = 60.0  # seconds a node may be out of reach before the run is given up; its ranks may well go on
TELL_SLOW = 30.0  # seconds without a new line after which it is told what moves
LAST_WORDS = 3.0  # seconds to wait for the other ranks' logs after one died
LOOK_WITHIN = 2.0  # seconds that a look waits for a slow node; what it tells later is taken up by the next look
KILLED = (137, -9)  # exit status of a rank that was killed, as a shell and as a parent tells it
WORKER_KILLED = "exit code: -9"  # vLLM and SGLang of a process of theirs
KEPT_LINES = 20_000  # of all ranks, while a service is followed that may run for months


# Given a node and where each rank's log was left, one look at the ranks there.
Look = Callable[[str, Mapping[str, str]], Awaitable[list[Glimpse]]]


@dataclass
class Rank:
    """One rank while it is followed."""

    number: int
    node: str
    name: str
    progress: Progress
    alive: bool = True
    exit_code: int | None = None
    cursor: str = ""
    out_of_memory: bool = False
    rest: bytes = b""
    log_bytes: int = 0
    seen_at: float = 0.0  # when its node last told of it
    ended_at: float = math.inf  # when it was seen to have ended
    standing: Standing | None = None  # what its counters say; None until they were read


@dataclass
class Follower:
    """Looks at all ranks again and again; hands on changes of phase, and keeps the logs as evidence."""

    lore: Lore
    places: Sequence[Place]  # in rank order
    look_at: Look
    folder: Path | None  # evidence of this attempt; None: no log is kept beside the newest lines
    on_phase: Callable[[Rank], None]
    on_end: Callable[[Rank], None]
    on_look: Callable[[Sequence[Rank]], None]
    on_verdict: Callable[[Judgement], None] = lambda _: None
    on_weakness: Callable[[Failure], None] = lambda _: None
    vigil: Vigil | None = None  # None: only the logs are watched
    patience: float = PATIENCE
    lacks: frozenset[str] = frozenset()  # hardware that none of its nodes has
    ranks: list[Rank] = field(default_factory=list)
    lines: MutableSequence[LogLine] = field(default_factory=list)
    lost_since: dict[str, float] = field(default_factory=dict)  # nodes that don't answer
    told: tuple[object, ...] = ()  # the last verdict
    _looks: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # that a node has not ended yet

    def begin(self, names: Sequence[str]) -> None:
        """Take up these ranks, in rank order, from the start of their logs."""
        now = time.monotonic()
        self.ranks = [
            Rank(number, place.node, name, begin(self.lore.phases, now))
            for number, (place, name) in enumerate(zip(self.places, names, strict=True))
        ]
        for rank in self.ranks:
            self.on_phase(rank)

    def resume(self, names: Sequence[str]) -> None:
        """Take up ranks that serve, in rank order: the end of their logs, and of what follows the newest lines."""
        now, serves = time.monotonic(), len(self.lore.phases) - 1
        self.lines = deque(self.lines, maxlen=KEPT_LINES)
        self.ranks = [
            Rank(
                number,
                place.node,
                name,
                replace(begin(self.lore.phases, now), index=serves),
                cursor=RECENT,
                seen_at=now,
            )
            for number, (place, name) in enumerate(zip(self.places, names, strict=True))
        ]

    async def until_ready(self) -> Finding:
        """OK once the head says that it serves; else what stopped it: a rank that died, or a phase over its time."""
        try:
            return await self._until_ready()
        finally:
            await self.close()

    async def _until_ready(self) -> Finding:
        while True:
            await self.look()
            if any(not rank.alive for rank in self.ranks):
                return await self.died()
            if self.ranks[0].progress.is_ready:
                for weakness in weaknesses(self.lines, self.lacks):
                    self.on_weakness(weakness)
                return self._ready()
            if stuck := await self._stuck():
                return stuck
            await asyncio.sleep(LOOK_EVERY)

    async def until_death(self) -> Finding:
        """Returns only when a rank has died."""
        try:
            while all(rank.alive for rank in self.ranks):
                await asyncio.sleep(LOOK_EVERY)
                await self.look()
            return await self.died()
        finally:
            await self.close()

    async def look(self) -> None:
        """One look at every node; one that is slow, or hangs, doesn't keep the others from being seen."""
        by_node: dict[str, list[Rank]] = {}
        for rank in self.ranks:
            by_node.setdefault(rank.node, []).append(rank)
        for node, ranks in by_node.items():
            if node not in self._looks:
                self._looks[node] = asyncio.create_task(self._look_at(node, ranks))
        if self._looks:
            await asyncio.wait(self._looks.values(), timeout=LOOK_WITHIN)
        for node in [node for node, look in self._looks.items() if look.done()]:
            self._looks.pop(node).result()
        self.on_look(self.ranks)

    async def close(self) -> None:
        """End looks that are under way."""
        for look in self._looks.values():
            look.cancel()
        await asyncio.gather(*self._looks.values(), return_exceptions=True)
        self._looks.clear()

    async def _look_at(self, node: str, ranks: list[Rank]) -> None:
        cursors = {rank.name: rank.cursor for rank in ranks}
        try:
            by_name = {glimpse.name: glimpse for glimpse in await self.look_at(node, cursors)}
        except NodeUnreachable:
            since = self.lost_since.setdefault(node, time.monotonic())
            if time.monotonic() - since > self.patience:
                raise
            return
        self.lost_since.pop(node, None)
        for rank in ranks:
            if glimpse := by_name.get(rank.name):
                rank.seen_at = time.monotonic()
                ended = rank.alive and not glimpse.alive
                rank.alive, rank.exit_code, rank.cursor = glimpse.alive, glimpse.exit_code, glimpse.cursor
                rank.out_of_memory = glimpse.out_of_memory
                self._take(rank, glimpse.gained)
                if ended:
                    rank.ended_at = time.monotonic()
                    self.on_end(rank)

    def _take(self, rank: Rank, gained: bytes) -> None:
        if not gained:
            return
        rank.log_bytes += len(gained)
        if self.folder:
            with (self.folder / f"rank{rank.number}.log").open("ab") as log:
                log.write(gained)
        *whole, rank.rest = split_lines(rank.rest + gained)
        now, at = time.monotonic(), datetime.now(UTC)
        for raw in whole:
            text = raw.decode(errors="replace")
            self.lines.append(LogLine(at, rank.number, rank.node, text))
            before = rank.progress.phase
            rank.progress = advance(rank.progress, text, now)
            if rank.progress.phase != before:
                self.on_phase(rank)

    async def died(self) -> Finding:
        """Let the other ranks say their last words, then name the first error of all."""
        dead = sorted((rank for rank in self.ranks if not rank.alive), key=lambda rank: rank.ended_at)
        until = time.monotonic() + LAST_WORDS
        while time.monotonic() < until:
            await asyncio.sleep(LOOK_EVERY)
            await self.look()
        died = ", ".join(f"rank {rank.number} on {rank.node} ended {how_it_ended(rank)}" for rank in dead)
        if starved := next((rank for rank in dead if rank.out_of_memory), None):
            return _out_of_memory(starved, died)
        lines = [*self.lines, *[line for rank in dead for line in await self._of_the_kernel(rank)]]
        found = diagnose(sorted(lines, key=lambda line: line.at), died, self.places, [rank.number for rank in dead])
        full = await self.vigil.disk_full(dead[0].node) if self.vigil and found.code == "rank-died" else None
        return replace(full, evidence=(*full.evidence, *found.evidence)) if full else found

    async def _of_the_kernel(self, rank: Rank) -> list[LogLine]:
        """What the kernel says of a rank that was killed: it leaves no words of its own."""
        words = (line.text for line in self.lines if line.rank == rank.number)
        if self.vigil is None or not (
            rank.exit_code in (None, *KILLED) or any(WORKER_KILLED in text for text in words)
        ):
            return []
        said = await self.vigil.kernel_says(rank.number, rank.node)
        return [LogLine(at, rank.number, rank.node, text) for at, text in said]

    def _ready(self) -> Finding:
        head = self.ranks[0]
        seen = Evidence(head.node, "log of rank 0", datetime.now(UTC), head.progress.last_line.strip()[:200])
        return Finding(Step.WATCH, Fate.OK, "engine-up", "the engine says that it serves", (seen,))

    async def _stuck(self) -> Finding | None:
        """A start that stands still; one that moves may take its time, one that can't be seen has its phases' time."""
        if self.vigil is None:
            return self._late()
        await self.vigil.look({rank.number: rank.log_bytes for rank in self.ranks})
        alive: dict[int, bool | None] = {rank.number: rank.alive for rank in self.ranks}
        judgement = self.vigil.judge({rank.number: rank.progress for rank in self.ranks}, alive)
        for rank, standing in zip(self.ranks, judgement.ranks, strict=True):
            rank.standing = standing
        self._tell(judgement)
        if judgement.verdict in (Verdict.STALLED, Verdict.SPINNING):
            finding = await self.vigil.finding(judgement)
            return finding if any(one.stopped for one in judgement.ranks) else self._named(finding, judgement.rank)
        return self._late() if judgement.verdict is Verdict.UNKNOWN else None

    def _named(self, finding: Finding, rank: int | None) -> Finding:
        """A standstill under the name that the catalogue has for it, with what was counted beside what was said.

        Where one rank is known to hold the others up, what those say while they wait is no name for it.
        """
        if finding.code in ("address-unreachable", "link-cut"):  # proven from the sockets
            return finding
        known = diagnose_silence([line for line in self.lines if rank in (None, line.rank)], self.places)
        return replace(known, evidence=(*known.evidence, *finding.evidence)) if known else finding

    def _tell(self, judgement: Judgement) -> None:
        """Hand on what is new: another verdict, or another phase of the rank that it hangs on."""
        told = (judgement.verdict, judgement.rank, judgement.phase)
        silent = time.monotonic() - max(rank.progress.last_line_at for rank in self.ranks)
        if judgement.verdict in (Verdict.PROGRESSING, Verdict.READY, Verdict.DEAD):
            self.told = ()
        elif silent > TELL_SLOW or judgement.verdict is not Verdict.SLOW:
            if told != self.told:
                self.on_verdict(judgement)
            self.told = told

    def _late(self) -> Finding | None:
        now = time.monotonic()
        for rank in self.ranks:
            progress = rank.progress
            facts = self.vigil.facts if self.vigil else Facts()
            if now - progress.since > within_s(progress.now, facts) and not progress.is_ready:
                says = (
                    f"rank {rank.number} on {rank.node} is in `{progress.phase}` for {now - progress.since:.0f} s, "
                    f"no new line for {now - progress.last_line_at:.0f} s"
                )
                seen = Evidence(rank.node, f"log of rank {rank.number}", datetime.now(UTC), progress.last_line[:200])
                return Finding(Step.WATCH, Fate.UNKNOWN, "phase-over-time", says, (seen,))
        return None


def split_lines(log: bytes) -> list[bytes]:
    """Lines as they end with LF, CR LF or CR, as bars that are drawn over themselves do; the last one has not ended."""
    held = log.endswith(b"\r")  # its LF may be still to come
    lines = log.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return [*lines[:-1], lines[-1] + b"\r"] if held else lines


def _out_of_memory(rank: Rank, died: str) -> Finding:
    """The memory that its container may have, or its node has, was not enough."""
    seen = Evidence(rank.node, f"container of rank {rank.number}", datetime.now(UTC), "State.OOMKilled is true")
    advice = "give the engine less memory (context, cache), free some on the node, or lift the container's limit"
    return Finding(Step.WATCH, Fate.HOPELESS, "kernel-oom", died, (seen,), advice=advice, scope="candidate")


def how_it_ended(rank: Rank) -> str:
    """In words: its exit status, or that nobody could record one."""
    if rank.out_of_memory:
        return "by the kernel: out of memory"
    return f"with status {rank.exit_code}" if rank.exit_code is not None else "without leaving a status (killed)"
