"""Where a rank is in its start, told by its log: its phase, its bar, and when it last said something new (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bascule.engines.base import READY, Phase
from bascule.watch.noise import is_chatter

REMEMBERED = 16  # texts that, said again, are nothing new
LONGEST = (1500, 500)  # characters of a line's beginning and end that are looked at: bars are drawn at the end
NODES_AT_MOST = 1024
_NODES = re.compile(r"\bnnodes['\"]?\s*[:=]\s*(\d{1,4})\b")
_STAMPS = re.compile(r"\d{2}:\d{2}:\d{2}(?:[.,]\d+)?|\d+\.\d+\.\d+\.\d+ ")


@dataclass(frozen=True, slots=True)
class Progress:
    """One rank's way through the phases of its engine; times are seconds of one clock."""

    phases: tuple[Phase, ...]
    index: int
    since: float  # when the phase began
    last_line: str = ""
    last_line_at: float = 0.0
    spoke_at: float = 0.0  # when it last said something new: no repetition, no chatter
    fraction: float | None = None  # of the newest bar of this phase, 0 to 1
    nodes: int | None = None  # of this start, one rank each, as the engine repeats its arguments
    recent: tuple[str, ...] = ()

    @property
    def now(self) -> Phase:
        """The current phase."""
        return self.phases[self.index]

    @property
    def phase(self) -> str:
        """The name of the current phase."""
        return self.now.name

    @property
    def next_step(self) -> str:
        """What comes next in the normal order, in words."""
        return self.now.next

    @property
    def is_ready(self) -> bool:
        """True when the engine says that it serves."""
        return self.phase == READY

    def late_by(self, now: float) -> float:
        """Seconds beyond what this phase may last; negative while there is time; never late in the last one."""
        if self.index == len(self.phases) - 1:
            return -1.0
        return now - self.since - self.now.within_s


def begin(phases: Sequence[Phase], now: float) -> Progress:
    """A rank that was started just now."""
    return Progress(tuple(phases), 0, now, last_line_at=now, spoke_at=now)


def advance(progress: Progress, line: str, now: float) -> Progress:
    """The rank after one more line; phases never go back, since helpers of an engine print late."""
    if not line.strip():
        return progress
    if progress.nodes is None and "nnodes" in line and (told := _NODES.search(line)):
        progress = replace(progress, nodes=min(int(told[1]), NODES_AT_MOST))
    line = line if len(line) <= sum(LONGEST) else line[: LONGEST[0]] + line[-LONGEST[1] :]
    progress = _heard(replace(progress, last_line=line, last_line_at=now), line, now)
    for index in range(len(progress.phases) - 1, progress.index, -1):
        begins = progress.phases[index].begins
        if begins and begins.search(line):
            progress = replace(progress, index=index, since=now, spoke_at=now, fraction=None)
            break
    fraction = _fraction(progress.now, line)
    return progress if fraction is None else replace(progress, fraction=fraction)


def _heard(progress: Progress, line: str, now: float) -> Progress:
    """Whether the line says something new."""
    text = _STAMPS.sub("", line[:300])
    if text in progress.recent or is_chatter(line):
        return progress
    return replace(progress, spoke_at=now, recent=(*progress.recent, text)[-REMEMBERED:])


def _fraction(phase: Phase, line: str) -> float | None:
    """How far a bar of this phase is; a bar drawn over itself in one line counts with its newest part."""
    if phase.progress is None:
        return None
    found = phase.progress.findall(line)  # one group: percent
    return min(1.0, int(found[-1][:3]) / 100) if found else None
