"""What logs alone can tell of a start: that it came up, that it ended, or where it fell silent, and no more (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bascule.engines.base import Lore
from bascule.watch.judge import UNKNOWN, Diagnosis
from bascule.watch.noise import is_end, is_raised
from bascule.watch.phases import Progress, advance, begin
from bascule.watch.recording import Line
from bascule.watch.stall import Judgement
from bascule.watch.standing import Verdict

CRASHES = ("crash", "hang-then-crash", "cascade")  # classes of failures that end a start


def conclude(lines: Sequence[Line], lore: Lore, diagnosis: Diagnosis, ranks: Sequence[int]) -> Judgement:
    """The verdict on lines in order of time: DEAD where an engine ends, READY, else UNKNOWN.

    `diagnosis` is that of the same lines, and counts ranks by their place in `ranks`.
    """
    if not lines:
        return Judgement(Verdict.UNKNOWN, None, "", 0.0, (), says="there is no line", next_step="")
    start = _Start(lore)
    for line in lines:
        if start.takes(line):
            break
    head, last, primary = start.progress.get(0), lines[-1].at, diagnosis.primary
    if diagnosis.kind in CRASHES and primary:
        said = _said(lines, ranks[primary.rank], primary.line)
        return _dead(said, start.until(said), primary.phase, last)
    if diagnosis.kind == UNKNOWN and start.ends:
        line, known = min(start.ends.values(), key=lambda end: end[0].at)
        return _dead(line, known, known.phase, last)
    if head and head.is_ready:
        return _judgement(Verdict.READY, 0, head, last - head.since, "the engine says that it serves")
    return _silent(start.progress or {lines[0].rank: begin(lore.phases, lines[0].at)}, last)


def _said(lines: Sequence[Line], rank: int, number: int) -> Line:
    """A line of a rank by its number, from 1."""
    own = [line for line in lines if line.rank == rank]
    return own[min(number, len(own)) - 1]


def _dead(line: Line, known: Progress, phase: str, end: float) -> Judgement:
    says = f"rank {line.rank} says that it ends: {line.text.strip()[:200]}"
    found = _judgement(Verdict.DEAD, line.rank, known, end - line.at, says)
    return replace(found, phase=phase if phase in {one.name for one in known.phases} else known.phase)


class _Start:
    """All ranks, line by line, and what looks like the end of one: its first error since its newest phase began."""

    def __init__(self, lore: Lore) -> None:
        self._phases = lore.phases
        self.progress: dict[int, Progress] = {}
        self._steps: dict[int, list[Progress]] = {}
        self.ends: dict[int, tuple[Line, Progress]] = {}

    def takes(self, line: Line) -> bool:
        """One line more; True when it ends the start for good."""
        known = self.progress.get(line.rank) or begin(self._phases, line.at)
        self.progress[line.rank] = advance(known, line.text, line.at)
        if self.progress[line.rank].index > known.index:
            self.ends.pop(line.rank, None)
            self._steps.setdefault(line.rank, []).append(self.progress[line.rank])
        elif is_end(line.text) or (is_raised(line.text) and not known.is_ready):
            self.ends.setdefault(line.rank, (line, known))
        return is_end(line.text)

    def until(self, line: Line) -> Progress:
        """The rank in the phase that it was in at a line."""
        steps = [step for step in self._steps.get(line.rank, ()) if step.since <= line.at]
        return steps[-1] if steps else begin(self._phases, line.at)


def _silent(progress: Mapping[int, Progress], end: float) -> Judgement:
    """It ends in the middle of a start: where, and since when each rank says nothing new."""
    behind = min(progress, key=lambda rank: (progress[rank].index, progress[rank].spoke_at))
    told = [
        f"rank {rank} is in `{one.phase}`, nothing new for {end - one.spoke_at:.0f} s"
        for rank, one in sorted(progress.items())
    ]
    nodes = max(max(one.nodes or 0, rank) for rank, one in progress.items())
    absent = [f"rank {rank} never joined, or its log is not here" for rank in range(nodes) if rank not in progress]
    says = "; ".join((*told, *absent, "no counters were kept, so it can't be told whether anything moved"))
    one = progress[behind]
    single = behind if len(progress) == 1 and not absent else None
    return _judgement(Verdict.UNKNOWN, single, one, end - max(p.spoke_at for p in progress.values()), says)


def _judgement(verdict: Verdict, rank: int | None, one: Progress, since_s: float, says: str) -> Judgement:
    return Judgement(verdict, rank, one.phase, since_s, (), says, one.next_step)
