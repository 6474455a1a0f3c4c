"""Watches what moves on the nodes beside the logs, judges it, and takes evidence before a start is called off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bascule.core.nouns import Evidence, Fate, Finding, Node, Setting, Step
from bascule.errors import BasculeError
from bascule.remote.runner import Runner
from bascule.watch.budgets import Facts
from bascule.watch.capture import Captured, capture
from bascule.watch.history import History
from bascule.watch.phases import Progress
from bascule.watch.sampler import LOOK_EVERY, Sampler, Watched
from bascule.watch.samples import Sample
from bascule.watch.samples_csv import to_csv
from bascule.watch.sockets import Seat, Unreachable, unreachable
from bascule.watch.stall import Judgement, judge
from bascule.watch.standing import Verdict
from bascule.watch.steady import SteadyRunner

SOCKETS_FROM = 90.0  # seconds before the verdict of which sockets are looked at


@dataclass
class Vigil:
    """The counters of all ranks of one start. Times are seconds of time.monotonic()."""

    watched: Sequence[Watched]
    seats: Sequence[Seat]
    nodes: Mapping[str, Node]
    runners: Mapping[str, Runner]
    folder: Path  # evidence of this attempt
    host_ip: str  # the variable that tells an engine which address to advertise; "" = it has none
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
        history = {rank: one.samples for rank, one in self._histories.items()}
        return judge(history, progress, alive, self.facts, time.monotonic())

    async def finding(self, judgement: Judgement) -> Finding:
        """The Finding about a start that stands still; evidence is taken from all nodes before anything is stopped."""
        taken = await self._capture()
        recent = [s for one in self._histories.values() for s in one.samples if s.at > time.monotonic() - SOCKETS_FROM]
        proven = unreachable([*recent, *(taken.samples if taken else ())], self.seats)
        if proven:
            return self._unreachable(proven[0], judgement)
        code = "rank-spinning" if judgement.verdict is Verdict.SPINNING else "start-stalled"
        seen = [self._evidence(judgement, judgement.says)]
        if judgement.next_step:
            seen.append(self._evidence(judgement, f"next in the normal order: {judgement.next_step}"))
        says = f"nothing moves since {judgement.since_s:.0f} s: {judgement.says}"
        if code == "rank-spinning":
            says = f"busy, and nothing comes of it since {judgement.since_s:.0f} s: {judgement.says}"
        return Finding(Step.WATCH, Fate.UNKNOWN, code, says, tuple(seen))

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
        path = self.folder / "samples.csv"
        text = to_csv(samples, header=not path.exists())
        with path.open("a") as file:
            file.write(text)

    async def _capture(self) -> Captured | None:
        nodes = [self.nodes[name] for name in self._by_node()]
        try:
            return await capture(self.watched, nodes, self.runners, self.folder)
        except OSError:
            return None  # a full disk here must not hide what was found

    def _unreachable(self, proven: Unreachable, judgement: Judgement) -> Finding:
        """An advertised address that a peer can't reach; the rank that advertises it is told another one."""
        owner = next(seat for seat in self.seats if seat.rank == proven.by_rank)
        evidence = Evidence(
            next(seat.node for seat in self.seats if seat.rank == proven.to_rank),
            f"sockets of rank {proven.to_rank}",
            datetime.now(UTC),
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
        return Evidence(node, "counters of all ranks", datetime.now(UTC), text[:400])


def _with_log(sample: Sample, log_bytes: Mapping[int, int]) -> Sample:
    if sample.rank not in log_bytes:
        return sample
    return replace(sample, values={**sample.values, "log_bytes": float(log_bytes[sample.rank])})
