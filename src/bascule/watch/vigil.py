"""Watches what moves on the nodes beside the logs, judges it, and takes evidence before a start is called off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bascule.core.nouns import Evidence, Fate, Finding, Node, Setting, Step
from bascule.errors import BasculeError
from bascule.remote.runner import Runner
from bascule.watch.acks import unacknowledged
from bascule.watch.budgets import Facts, learned
from bascule.watch.capture import PART_WITHIN, Captured, capture, read_part
from bascule.watch.history import History
from bascule.watch.kernel import out_of_memory
from bascule.watch.phases import Progress
from bascule.watch.sampler import LOOK_EVERY, Sampler, Watched
from bascule.watch.samples import Sample
from bascule.watch.samples_csv import to_csv
from bascule.watch.sockets import Seat, Unreachable, unreachable
from bascule.watch.stall import Judgement, judge
from bascule.watch.standing import Verdict
from bascule.watch.steady import SteadyRunner

ROOM = 64 * 1024  # bytes: with less left, a line of a log may not find room
SOCKETS_FROM = 90.0  # seconds before the verdict of which sockets are looked at


@dataclass
class Vigil:
    """The counters of all ranks of one start. Times are seconds of time.monotonic()."""

    watched: Sequence[Watched]
    seats: Sequence[Seat]
    nodes: Mapping[str, Node]
    runners: Mapping[str, Runner]
    folder: Path | None  # evidence of this attempt; None: nothing is kept until there is reason to
    host_ip: str = ""  # the variable that tells an engine which address to advertise; "" = it has none
    facts: Facts = field(default_factory=Facts)
    _samplers: dict[str, Sampler] = field(default_factory=dict)
    _shells: dict[str, SteadyRunner] = field(default_factory=dict)
    _histories: dict[int, History] = field(default_factory=dict)
    _next: float = 0.0

    async def look(self, log_bytes: Mapping[int, int]) -> None:
        """One look at every node, when one is due; a node that gives nothing is left out this time."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_EVERY
        found = await asyncio.gather(*(self._look_at(node) for node in self._by_node()))
        samples = [_with_log(sample, log_bytes) for row in found for sample in row]
        for sample in samples:
            self._histories.setdefault(sample.rank, History()).add(sample)
        self._keep(samples)

    def judge(self, progress: Mapping[int, Progress], alive: Mapping[int, bool | None]) -> Judgement:
        """How the start stands now."""
        self.facts = learned(self.facts, self.samples)
        return judge(self.samples, progress, alive, self.facts, time.monotonic())

    @property
    def samples(self) -> dict[int, tuple[Sample, ...]]:
        """What was counted, by rank, in order of time."""
        return {rank: one.samples for rank, one in self._histories.items()}

    @property
    def pids(self) -> dict[int, tuple[int, ...]]:
        """The processes of each rank at the last look, its first one in front."""
        return {rank: pids for sampler in self._samplers.values() for rank, pids in sampler.pids.items()}

    async def finding(self, judgement: Judgement) -> Finding:
        """The Finding about a start that stands still; evidence is taken from all nodes before anything is stopped."""
        taken = await self.capture()
        recent = [s for one in self._histories.values() for s in one.samples if s.at > time.monotonic() - SOCKETS_FROM]
        proven = unreachable([*recent, *(taken.samples if taken else ())], self.seats)
        if proven:
            return self._unreachable(proven[0], judgement)
        if cut := self.link_cut(taken):
            return replace(cut, evidence=(*cut.evidence, self._evidence(judgement, judgement.says)))
        code = "rank-spinning" if judgement.verdict is Verdict.SPINNING else "start-stalled"
        seen = [self._evidence(judgement, judgement.says)]
        if judgement.next_step:
            seen.append(self._evidence(judgement, f"next in the normal order: {judgement.next_step}"))
        says = f"nothing moves since {judgement.since_s:.0f} s: {judgement.says}"
        if code == "rank-spinning":
            says = judgement.says
        return Finding(Step.WATCH, Fate.UNKNOWN, code, says, tuple(seen))

    async def capture(self) -> Captured | None:
        """Evidence from all nodes; None where it can't be written here: that must not hide what was found."""
        assert self.folder is not None
        nodes = [self.nodes[name] for name in self._by_node() if self.nodes[name].facts.run_dir]
        samples = [sample for one in self._histories.values() for sample in one.samples]
        try:
            return await capture(self.watched, nodes, self.runners, self.folder, samples)
        except OSError:
            return None

    def link_cut(self, taken: Captured | None) -> Finding | None:
        """That packets between two nodes get lost, when the timers of their sockets prove it."""
        lost = unacknowledged(taken.timers if taken else {}, self.seats)
        if not lost:
            return None
        says = f"packets from {lost[0].node} to {lost[0].peer} get lost"
        seen = Evidence(lost[0].node, "ss -tanoi", _now(), str(lost[0]))
        advice = "the link between the nodes: cable, switch, firewall"
        return Finding(Step.WATCH, Fate.CLUSTER, "link-cut", says, (seen,), advice=advice)

    async def kernel_says(self, rank: int, node: str) -> list[tuple[datetime, str]]:
        """What the kernel said just now of a rank that ran out of memory; nothing where that can't be read."""
        sampler = self._samplers.get(node)
        known = sampler.known.get(rank, {}) if sampler else {}
        try:
            text = await read_part(self.runners[node], "kernel") if known else ""
        except BasculeError:
            return []
        now = _now()
        return [(now - timedelta(seconds=ago), line) for ago, line in out_of_memory(text, known)]

    async def disk_full(self, node: str) -> Finding | None:
        """That a node has no room left for the logs of its ranks; None where it has some, or that can't be read."""
        run_dir = self.nodes[node].facts.run_dir or ""
        try:
            told = (await self.runners[node].run(("df", "-Pk", run_dir), within=PART_WITHIN)).text.splitlines()
        except BasculeError:
            return None
        row = told[-1].split() if told else []
        if len(row) < 6 or not row[-3].isdigit() or int(row[-3]) * 1024 >= ROOM:
            return None
        says, seen = f"the disk under the run folder of {node} is full", Evidence(node, "df", _now(), told[-1])
        advice = f"free some space there, or give {node} another `run_dir`"
        return Finding(Step.WATCH, Fate.CLUSTER, "disk-full", says, (seen,), advice=advice)

    async def close(self) -> None:
        """End what is read in the background."""
        for sampler in self._samplers.values():
            await sampler.close()
        for shell in self._shells.values():
            await shell.close()
        self._samplers.clear()
        self._shells.clear()

    def _by_node(self) -> dict[str, list[Watched]]:
        found: dict[str, list[Watched]] = {}
        for one in self.watched:
            found.setdefault(one.node, []).append(one)
        return found

    async def _look_at(self, name: str) -> list[Sample]:
        if self.nodes[name].facts.run_dir is None:
            return []  # it has not answered yet
        if name not in self._samplers:
            peers = [seat.address for seat in self.seats if seat.node != name]
            node = self.nodes[name]
            self._shells[name] = SteadyRunner(node)
            self._samplers[name] = Sampler(self._shells[name], node, self._by_node()[name], peers)
        try:
            return await self._samplers[name].look()
        except BasculeError:
            return []  # the follower tells that the node is lost

    def _keep(self, samples: Sequence[Sample]) -> None:
        if self.folder is None:
            return
        path = self.folder / "samples.csv"
        text = to_csv(samples, header=not path.exists())
        with path.open("a") as file:
            file.write(text)

    def _unreachable(self, proven: Unreachable, judgement: Judgement) -> Finding:
        """An advertised address that a peer can't reach; the rank that advertises it is told another one."""
        owner = next(seat for seat in self.seats if seat.rank == proven.by_rank)
        evidence = Evidence(
            next(seat.node for seat in self.seats if seat.rank == proven.to_rank),
            f"sockets of rank {proven.to_rank}",
            _now(),
            str(proven),
        )
        seen = (evidence, self._evidence(judgement, judgement.says))
        says = f"{owner.node} advertised {proven.advertised}, which rank {proven.to_rank} can't reach"
        if proven.instead and self.host_ip:
            change = Setting("env", self.host_ip, proven.instead, owner.node)
            return Finding(Step.WATCH, Fate.ADJUST, "address-unreachable", says, seen, change)
        advice = "let the nodes reach each other there, or name another `address` in the recipe"
        return Finding(Step.WATCH, Fate.UNKNOWN, "address-unreachable", says, seen, advice=advice)

    def _evidence(self, judgement: Judgement, text: str) -> Evidence:
        rank = judgement.rank if judgement.rank is not None else 0
        node = next((seat.node for seat in self.seats if seat.rank == rank), "")
        return Evidence(node, "counters of all ranks", _now(), text[:400])


def _now() -> datetime:
    return datetime.now(UTC)


def _with_log(sample: Sample, log_bytes: Mapping[int, int]) -> Sample:
    if sample.rank not in log_bytes:
        return sample
    return replace(sample, values={**sample.values, "log_bytes": float(log_bytes[sample.rank])})
