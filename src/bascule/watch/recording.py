"""What was kept of a start: logs and samples of its ranks, with each line placed on one clock (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bascule.engines.base import Lore
from bascule.watch.clocks import timed
from bascule.watch.samples import Sample

SAME_SIZE = 0.05  # a counted log may differ by that part from the one that was kept, and still be the same bytes


@dataclass(frozen=True, slots=True)
class Recording:
    """What was kept of one rank."""

    rank: int
    log: str  # as it was written, line ends and all
    samples: tuple[Sample, ...] = ()  # in order of time


@dataclass(frozen=True, slots=True)
class Line:
    """A line placed on the clock of the replay."""

    at: float  # seconds
    rank: int
    text: str  # without what a recorder put before it
    raw: str = ""


def guess(recordings: Sequence[Recording], lores: Sequence[Lore]) -> Lore:
    """The engine whose phases are found most in the logs."""
    lines = [line for one in recordings for line in one.log.splitlines()[:5000]]

    def found(lore: Lore) -> int:
        return sum(1 for phase in lore.phases if phase.begins and any(phase.begins.search(line) for line in lines))

    return max(lores, key=lambda lore: (found(lore), sum(lore.name in line.lower() for line in lines)))


def place(recording: Recording) -> list[Line]:
    """The lines of a rank in order, each with its time.

    Where the log's bytes were counted, a line came with the look that first counted it, and if what was kept has
    another size (a container's log is counted with time stamps), in proportion. Else the lines tell the time, those
    before the first time with it, and a log of another clock than the samples' begins with the first sample.
    """
    lines = recording.log.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    counted = [(s.at, s.values["log_bytes"]) for s in recording.samples if "log_bytes" in s.values]
    if counted:
        placed = zip(lines, _by_size(lines, counted), strict=True)
        return [Line(at, recording.rank, text, raw) for raw, (at, text) in placed]
    rows = list(timed(lines))
    began = next((at for at, _ in rows if at is not None), 0.0)
    shift = recording.samples[0].at - began if recording.samples else 0.0
    return [
        Line((began if at is None else at) + shift, recording.rank, text, raw)
        for raw, (at, text) in zip(lines, rows, strict=True)
    ]


def _by_size(lines: Sequence[str], counted: Sequence[tuple[float, float]]) -> Iterator[tuple[float, str]]:
    ends = list(accumulate(len(line.encode(errors="replace")) + 1 for line in lines))
    largest = max(count for _, count in counted)
    scale = 1.0 if abs(largest - ends[-1]) <= SAME_SIZE * ends[-1] else largest / ends[-1]
    sizes = list(accumulate((count for _, count in counted), max))
    for end, (_, text) in zip(ends, timed(lines), strict=True):
        look = bisect_left(sizes, (end - 1) * scale)  # the line's end itself may have been written later
        yield counted[min(look, len(counted) - 1)][0], text
