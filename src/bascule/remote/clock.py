"""How far a node's clock is from ours: bounds from when we asked, what it said, and when we heard it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from bascule.remote.runner import Runner

ASK = ("date", "+%s.%N")
_TIME = re.compile(r"(\d{9,11})(?:\.(\d{9}))?")  # busybox has no %N


@dataclass(frozen=True, slots=True)
class Clock:
    """A node's clock beside ours, in seconds; the true offset lies within `error_s` of `offset_s`."""

    offset_s: float
    error_s: float
    round_trip_s: float


async def measure_clock(runner: Runner) -> Clock | None:
    """One short command over the open connection; None when its `date` can't be read. Raises NodeUnreachable."""
    began, sent = time.monotonic(), time.time()
    result = await runner.run(ASK, within=10)
    received, took = time.time(), time.monotonic() - began
    bounds = clock_offset(sent, received, result.text, result.text)
    return Clock(*bounds, took) if bounds else None


def clock_offset(sent: float, received: float, first: str, last: str) -> tuple[float, float] | None:
    """Its clock minus ours, and how far off that may be; times are in seconds since the epoch.

    `first` and `last` are what its `date` printed, after we had sent the question and before we had the answer. So
    the offset is at most first - sent and at least last - received. The time that the node computed between the two
    is no doubt about its clock; an ssh handshake before `first` is.
    """
    early, late = _time(first), _time(last)
    if early is None or late is None:
        return None
    most, least = early[0] + early[1] - sent, late[0] - received
    return (most + least) / 2, abs(most - least) / 2


def _time(text: str) -> tuple[float, float] | None:
    """Seconds, and how much more they may be: a clock without a fraction has been cut."""
    found = _TIME.match(text.strip())
    if not found:
        return None
    return float(found[0]), 0.0 if found[2] else 1.0
