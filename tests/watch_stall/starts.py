"""Starts made of counters: what each rank does from one time to another, sampled every two seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bascule.engines.catalogue import ENGINES
from bascule.watch.budgets import Facts
from bascule.watch.phases import Progress, begin
from bascule.watch.samples import COUNTERS, Sample
from bascule.watch.stall import Judgement, judge

EVERY = 2.0
MB = 1e6
# What a healthy rank that waits shows, per second: measured on a head that waits in its rendezvous, and the watcher's
# own questions on the network.
WAITS = {"cpu_s": 0.016, "net_rx_bytes": 2e3, "net_tx_bytes": 5e3}
STILL = {"memory_bytes": 1.6e9, "processes": 4, "compilers": 0, "cache_bytes": 5e6}
GPU = {"gpu_bytes": 986 * 2**20, "gpu_watts": 118, "gpu_percent": 0}


def sampled(
    rank: int, until: float, *stretches: tuple[float, Mapping[str, float]], without: Sequence[str] = ()
) -> list[Sample]:
    """Samples from 0 to `until`: each stretch holds from its time on, rates per second for counters and for memory,
    GPU memory and caches (as +memory_bytes), and values for gauges."""
    values = {**dict.fromkeys(COUNTERS, 0.0), **STILL}
    found, at = [], 0.0
    while at <= until:
        now = next((what for since, what in reversed(stretches) if since <= at), {})
        for name, rate in {**WAITS, **now}.items():
            if name.lstrip("+") in COUNTERS or name.startswith("+"):
                values[name.lstrip("+")] = values.get(name.lstrip("+"), 0.0) + rate * EVERY
            else:
                values[name] = rate
        found.append(Sample(rank, at, {name: value for name, value in values.items() if name not in without}))
        at += EVERY
    return found


def stands(phase: str, since: float, spoke: float | None = None, engine: str = "vllm") -> Progress:
    """A rank in a phase since a time, that last said something new then or at `spoke`."""
    phases = ENGINES[engine].lore.phases
    at = since if spoke is None else spoke
    index = [one.name for one in phases].index(phase)
    return replace(begin(phases, since), index=index, last_line_at=at, spoke_at=at)


def judged(
    now: float,
    ranks: Mapping[int, tuple[Sequence[Sample], Progress | None]],
    facts: Facts = Facts(),  # noqa: B008
    **dead: bool,
) -> Judgement:
    """The verdict on ranks with their samples and progress at a time; `r1=False` says that rank 1 has ended."""
    history = {rank: [sample for sample in samples if sample.at <= now] for rank, (samples, _) in ranks.items()}
    progress = {rank: one for rank, (_, one) in ranks.items() if one}
    alive: dict[int, bool | None] = {
        rank: dead.get(f"r{rank}", True if one else None) for rank, (_, one) in ranks.items()
    }
    return judge(history, progress, alive, facts, now)
