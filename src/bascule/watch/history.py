"""The samples of one rank that a judgement needs, while more and more come (pure)."""

from __future__ import annotations

from collections import deque

from bascule.watch.samples import Sample

KEPT_S = 900.0  # seconds; the longest look back is 600 (spin_s of a phase)
KEPT = 4000  # samples: more come only from a clock that stands still


class History:
    """Keeps the newest samples, and of all others the one with the lowest GPU power, against which work is measured."""

    def __init__(self) -> None:
        self._recent: deque[Sample] = deque(maxlen=KEPT)
        self._lowest: Sample | None = None

    def add(self, sample: Sample) -> None:
        """One more, not older than the last."""
        while self._recent and (self._recent[0].at < sample.at - KEPT_S or len(self._recent) == KEPT):
            self._forget(self._recent.popleft())
        self._recent.append(sample)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """In order of time."""
        return (*((self._lowest,) if self._lowest else ()), *self._recent)

    def _forget(self, sample: Sample) -> None:
        watts = sample.values.get("gpu_watts")
        if watts is not None and (self._lowest is None or watts < self._lowest.values["gpu_watts"]):
            self._lowest = sample
