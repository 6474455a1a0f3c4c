"""What the person sees of a copy: how far each target is, and what it got in the end (pure)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from bascule.core.units import size

Phase = Literal["checking", "sending", "verifying", "done"]
WINDOW = 5.0  # seconds over which the rate is taken


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far one target is."""

    target: str
    phase: Phase
    bytes: int  # that are there, those of earlier tries included
    total: int
    rate: float  # bytes per second, lately
    eta: float | None  # seconds; None = can't be told yet
    files: int  # that are verified
    files_total: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one target holds after a copy, and how it is known."""

    target: str
    path: str
    files: int
    bytes: int  # of data; holes of sparse files are not counted
    sent: int  # bytes that this copy brought
    seconds: float
    verified: str  # how: sha256 of how many files, sampled blocks of which
    already_there: bool  # nothing was sent: it was there, and was verified
    route: str  # how it came: directly and by which address, or through ssh
    notes: tuple[str, ...] = ()


class Meter:
    """Rate and remaining time from what was seen over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def rate(self, now: float, there: int) -> float:
        """Bytes per second, with one more reading."""
        self._seen.append((now, there))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        return max(0.0, (there - before) / (now - began)) if now > began else 0.0


def line(seen: CopyProgress) -> str:
    """One line for a terminal."""
    if seen.phase == "done":
        return f"{seen.target}  there and verified: {size(seen.total)}, {seen.files_total} files"
    share = f"{100 * seen.bytes / seen.total:.0f} %" if seen.total else "0 %"
    words = [seen.target, seen.phase, share, f"{size(seen.bytes)} of {size(seen.total)}"]
    if seen.phase == "sending":
        words += [f"{seen.rate / 1e6:.0f} MB/s", f"{_clock(seen.eta)} left" if seen.eta is not None else ""]
    else:
        words.append(f"{seen.files} of {seen.files_total} files")
    return "  ".join(word for word in words if word)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
        if whole >= 3600
        else f"{whole // 60}:{whole % 60:02}"
    )
