"""An old start judged again, as fast as it can be read: from its logs, and its counters where they were kept (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bascule.engines.base import Lore
from bascule.watch.budgets import Facts
from bascule.watch.history import History
from bascule.watch.judge import HANGS, Diagnosis
from bascule.watch.judge import judge as diagnose
from bascule.watch.logs_alone import CRASHES, conclude
from bascule.watch.phases import Progress, advance, begin
from bascule.watch.recording import Line, Recording, place
from bascule.watch.samples import Sample, Socket
from bascule.watch.scan import Scan
from bascule.watch.stall import Judgement, judge
from bascule.watch.standing import Verdict

STEPS = 20_000  # judgements of one replay at most: eleven hours, looked at every 2 s
Sockets = Mapping[int, Sequence[Socket]]  # by rank
_FINAL = (Verdict.STALLED, Verdict.SPINNING, Verdict.DEAD)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How it ended: the verdict, and what the logs had said by then."""

    judgement: Judgement
    failure: str | None  # its id in the catalogue; None when it goes on, or is not known


def replay(recordings: Sequence[Recording], lore: Lore, facts: Facts) -> Replayed:
    """The first verdict that ends a start, or how it stood at the end of what was recorded.

    Without samples the lines tell the time, and a start that just falls silent is not called stalled: nobody knows
    what moved.
    """
    lines = sorted((line for one in recordings for line in place(one)), key=lambda line: line.at)
    times = sorted({sample.at for one in recordings for sample in one.samples})
    ranks = [one.rank for one in recordings]
    if not times:
        diagnosis = _diagnose(lines, lore, ranks, None)
        return Replayed(conclude(lines, lore, diagnosis, ranks), _name(diagnosis, stands_still=False))
    play = _Play(recordings, lines, lore)
    for now in times[:: max(1, len(times) // STEPS)]:
        judgement = play.at(now, facts)
        if judgement.verdict in _FINAL:
            break
    else:
        return Replayed(judgement, None)
    diagnosis = _diagnose(lines[: play.fed], lore, ranks, play.sockets())
    alike = judgement.verdict is not Verdict.DEAD and judgement.rank is None
    return Replayed(judgement, _name(diagnosis, stands_still=alike))


def _diagnose(lines: Sequence[Line], lore: Lore, ranks: Sequence[int], sockets: Sockets | None) -> Diagnosis:
    told = []
    for rank in ranks:
        scan = Scan(f"rank {rank}", lore.name, lore.phases)
        for line in lines:
            if line.rank == rank:
                scan.line(line.raw)  # the lines tell their times, as it folds tracebacks by them
        told.append(scan.told())
    return diagnose(told, sockets)


def _name(diagnosis: Diagnosis, *, stands_still: bool) -> str | None:
    """What is known to stop at the newest line counts only where all ranks were seen to stand still, or with proof."""
    if diagnosis.failure is None or diagnosis.failure.cascade:
        return None
    likely = diagnosis.kind == HANGS and (stands_still or diagnosis.proven)
    return diagnosis.failure.id if likely or diagnosis.kind in (*CRASHES, "hang") else None


class _Play:
    """A recording played up to a time."""

    def __init__(self, recordings: Sequence[Recording], lines: Sequence[Line], lore: Lore) -> None:
        self._lines, self._lore = lines, lore
        self._coming = {one.rank: iter(one.samples) for one in recordings}
        self._next = {rank: next(samples, None) for rank, samples in self._coming.items()}
        self._history = {one.rank: History() for one in recordings}
        self._progress: dict[int, Progress] = {}
        self.fed = 0  # lines

    def at(self, now: float, facts: Facts) -> Judgement:
        """The judgement at a time that is not before the last one."""
        for rank, history in self._history.items():
            while (sample := self._next[rank]) and sample.at <= now:
                self._progress.setdefault(rank, begin(self._lore.phases, sample.at))
                history.add(sample)
                self._next[rank] = next(self._coming[rank], None)
        while self.fed < len(self._lines) and self._lines[self.fed].at <= now:
            line = self._lines[self.fed]
            known = self._progress.get(line.rank) or begin(self._lore.phases, line.at)
            self._progress[line.rank] = advance(known, line.text, line.at)
            self.fed += 1
        seen = {rank: history.samples for rank, history in self._history.items()}
        return judge(seen, self._progress, _alive(seen, self._progress), facts, now)

    def sockets(self) -> Sockets | None:
        """The newest of each rank; None when none were recorded of any."""
        newest = {
            rank: next((one.sockets for one in reversed(history.samples) if one.sockets is not None), None)
            for rank, history in self._history.items()
        }
        known = {rank: sockets for rank, sockets in newest.items() if sockets is not None}
        return known or None


def _alive(history: Mapping[int, Sequence[Sample]], progress: Mapping[int, Progress]) -> dict[int, bool | None]:
    """Ranks without a process have ended; ranks that there must be, and nobody recorded, are not known."""
    nodes = max((max(one.nodes or 0, rank) for rank, one in progress.items()), default=0)
    alive: dict[int, bool | None] = dict.fromkeys((*range(nodes), *progress))
    for rank, seen in history.items():
        counted = [sample.values["processes"] for sample in seen if "processes" in sample.values]
        alive[rank] = None if not counted else counted[-1] > 0 or not any(counted)
    return alive
