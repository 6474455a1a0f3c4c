"""Where a rank is in its start, told by the newest line of its log that begins a phase (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bascule.engines.base import READY, Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """One rank's way through the phases of its engine; times are seconds of one clock."""

    phases: tuple[Phase, ...]
    index: int
    since: float  # when the phase began
    last_line: str = ""
    last_line_at: float = 0.0

    @property
    def phase(self) -> str:
        """The name of the current phase."""
        return self.phases[self.index].name

    @property
    def is_ready(self) -> bool:
        """True when the engine says that it serves."""
        return self.phase == READY

    def late_by(self, now: float) -> float:
        """Seconds beyond what this phase may last; negative while there is time; never late in the last one."""
        if self.index == len(self.phases) - 1:
            return -1.0
        return now - self.since - self.phases[self.index].within_s


def begin(phases: Sequence[Phase], now: float) -> Progress:
    """A rank that was started just now."""
    return Progress(tuple(phases), 0, now, last_line_at=now)


def advance(progress: Progress, line: str, now: float) -> Progress:
    """The rank after one more line; phases never go back, since helpers of an engine print late."""
    if not line.strip():
        return progress
    progress = replace(progress, last_line=line, last_line_at=now)
    for index in range(len(progress.phases) - 1, progress.index, -1):
        begins = progress.phases[index].begins
        if begins and begins.search(line):
            return replace(progress, index=index, since=now)
    return progress
