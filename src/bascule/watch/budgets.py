"""How long a phase may take, and how long it may be quiet, from facts about this start (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from bascule.engines.base import Phase
from bascule.watch.noise import noise

LOADING_TIMES, LOADING_MORE = 3.0, 120.0  # a load may take 3 times what the disk's rate says, and 2 minutes more
# GB10 with cold caches: 17 to 36 min to ready (vllm PR#45179, ainode#134); limits are for warm ones
COLD_TIMES = 2.0
_COMPILES = ("loaded", "compile", "profile", "warm-up", "graphs")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of this start before it begins; None: not known."""

    bytes_to_load: float | None = None  # of the weights that one node reads
    disk_rate: float | None = None  # measured, bytes/s
    cold_caches: bool | None = None  # nothing compiled before on these nodes
    network_storage: bool | None = None  # the weights come over NFS or the like


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
