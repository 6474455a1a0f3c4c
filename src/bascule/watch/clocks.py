"""When a line of a log was written, told by the line itself: engines stamp their lines in many ways (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bascule.watch.prefixes import take_apart

_DAY = 86400.0
_RECORDED = re.compile(r"\+ *(\d{1,7}\.\d+) ?")  # seconds since a start, put before each line by whoever recorded it
_UPTIME = re.compile(r"(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3}) [IWED] ")  # llama.cpp: minutes.seconds.ms.us since its start
_DOCKER = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) ")


def timed(lines: Iterable[str]) -> Iterator[tuple[float | None, str]]:
    """Each line with its time in seconds, and without what a recorder put before it.

    Times never go back: processes of a rank write past each other. A line without one has that of the line before;
    None before the first. Recorded seconds are put on the clock of the first line that also has a time of day.
    """
    rows = [(_recorded(line), _bare(line)) for line in lines]
    shift = next((t - r for r, text in rows if r is not None and (t := time_of(text)) is not None), 0.0)
    before: float | None = None
    for recorded, text in rows:
        at = time_of(text) if recorded is None else recorded + shift
        before = _later(before, at)
        yield before, _DOCKER.sub("", text, count=1)


def time_of(line: str) -> float | None:
    """Seconds since the beginning of some year, or since the process began where it counts so; None: no time in it."""
    if found := _UPTIME.match(line):
        minutes, seconds, millis, micros = (int(part) for part in found.groups())
        return minutes * 60 + seconds + millis / 1e3 + micros / 1e6
    return take_apart(line).at


def _later(before: float | None, at: float | None) -> float | None:
    if before is None or at is None:
        return before if at is None else at
    turn_of_the_year = 366 * _DAY if before - at > 180 * _DAY else 0.0
    return max(before, at + turn_of_the_year)


def _recorded(line: str) -> float | None:
    found = _RECORDED.match(line)
    return float(found[1]) if found else None


def _bare(line: str) -> str:
    found = _RECORDED.match(line)
    return line[found.end() :] if found else line
