"""How long a phase may take, and how long it may be quiet, from facts about this start (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bascule.engines.base import Phase
from bascule.watch.noise import noise
from bascule.watch.samples import Sample

LOADING_TIMES, LOADING_MORE = 3.0, 120.0  # a load may take 3 times what the disk's rate says, and 2 minutes more
# GB10 with cold caches: 17 to 36 min to ready (vllm PR#45179, ainode#134); limits are for warm ones
COLD_TIMES = 2.0
COLD_BYTES = 1e6  # caches that hold less when a start begins hold nothing compiled
RATE_FROM = (
    64e6  # bytes read in RATE_S seconds from which on they tell the disk's rate, and not that of a few libraries
)
RATE_S = 10.0
_COMPILES = ("loaded", "compile", "profile", "warm-up", "graphs")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of this start before it begins; None: not known."""

    bytes_to_load: float | None = None  # of the weights that one node reads
    disk_rate: float | None = None  # measured, bytes/s
    cold_caches: bool | None = None  # nothing compiled before on these nodes
    network_storage: bool | None = None  # the weights come over NFS or the like


def learned(facts: Facts, samples: Mapping[int, Sequence[Sample]]) -> Facts:
    """The facts with what the counters have shown so far; what was given before stays.

    The rate is the best of the slowest rank, since all wait for it. What comes from the page cache is not counted as
    read, so that a warm start tells no rate.
    """
    rates = [rate for rate in map(_rate, samples.values()) if rate is not None]
    firsts = [_first_cache(one) for one in samples.values()]
    known = [size for size in firsts if size is not None]
    cold = min(known) < COLD_BYTES if known and len(known) == len(firsts) else None
    return replace(
        facts,
        disk_rate=facts.disk_rate if facts.disk_rate is not None else min(rates, default=None),
        cold_caches=facts.cold_caches if facts.cold_caches is not None else cold,
    )


def quiet_s(phase: Phase, facts: Facts) -> float:
    """Seconds that nothing at all may move in a phase of a start that is well."""
    stored = noise().storage_quiet_s if facts.network_storage and phase.name in ("import", "weights") else 0.0
    return max(noise().quiet_s, phase.quiet_s, stored)


def within_s(phase: Phase, facts: Facts) -> float:
    """Seconds after which a phase is over its time, whatever moves; a limit of patience, never a proof of a stall."""
    if phase.name == "weights" and (expected := loading_s(facts)) is not None:
        return max(phase.within_s, LOADING_TIMES * expected + LOADING_MORE)
    return phase.within_s * (COLD_TIMES if facts.cold_caches and phase.name in _COMPILES else 1.0)


def loading_s(facts: Facts) -> float | None:
    """Seconds that reading the weights takes at the disk's rate."""
    if not facts.bytes_to_load or not facts.disk_rate:
        return None
    return facts.bytes_to_load / facts.disk_rate


def _first_cache(samples: Sequence[Sample]) -> float | None:
    return next((sample.values["cache_bytes"] for sample in samples if "cache_bytes" in sample.values), None)


def _rate(samples: Sequence[Sample]) -> float | None:
    """The best rate over RATE_S seconds, bytes/s; None when never enough was read."""
    best, first = 0.0, 0
    read = [(sample.at, sample.values["read_bytes"]) for sample in samples if "read_bytes" in sample.values]
    for at, value in read:
        while at - read[first][0] > RATE_S and at - read[first + 1][0] >= RATE_S:
            first += 1
        began, before = read[first]
        if at - began >= RATE_S and value - before >= RATE_FROM:
            best = max(best, (value - before) / (at - began))
    return best or None
