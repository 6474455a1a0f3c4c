"""How far a copy to one target is, for people (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """One look at it."""

    target: str
    phase: str  # "copies", "docker unpacks", "waits for another copy to this node", …
    done: int  # bytes of the missing layers that are there
    total: int
    rate: float = 0.0  # bytes a second, lately

    @property
    def eta(self) -> float | None:
        """Seconds until the last byte; None while nothing moves."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


class Meter:
    """Rates from looks at a counter, smoothed over a few seconds."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._last: tuple[float, int] | None = None
        self._rate = 0.0

    def look(self, phase: str, done: int, total: int, at: float) -> CopyProgress:
        """The next look; `at` in seconds of any steady clock."""
        if self._last and at > self._last[0]:
            now = max(0, done - self._last[1]) / (at - self._last[0])
            self._rate = now if self._rate == 0 else 0.7 * self._rate + 0.3 * now
        self._last = (at, done)
        return CopyProgress(self.target, phase, done, total, self._rate)
