"""What moved of a rank over a stretch of time: each counter with its figure, above noise or below it (pure)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bascule.watch.ledger import is_compiler
from bascule.watch.noise import Noise, noise
from bascule.watch.samples import Sample

Times = tuple[float, float]
_MINUTE = 60.0
_LATE_START = 5.0  # seconds of the stretch that may pass before a counter is first read
_NAMES = {  # counter -> how it is called, in the order in which it is told
    "read_bytes": "disk reads",
    "written_bytes": "disk writes",
    "memory_bytes": "memory",
    "gpu_bytes": "GPU memory",
    "net_bytes": "network",
    "rdma_bytes": "RDMA",
    "cache_bytes": "caches",
}
_SUMS = {"net_bytes": ("net_rx_bytes", "net_tx_bytes")}


@dataclass(frozen=True, slots=True)
class Move:
    """One counter over the stretch: how much, in words, and whether that is more than noise."""

    name: str  # cpu, gpu, or the counter
    amount: float  # cores, watts or bytes
    says: str  # "memory +31.0 MB"
    moved: bool


@dataclass(frozen=True, slots=True)
class Movement:
    """What is known of a rank from `began` to `ended`, seconds of the watcher's clock."""

    began: float
    ended: float
    moves: tuple[Move, ...] = ()
    unknown: tuple[str, ...] = ()  # what could not be read: it may have moved

    @property
    def moving(self) -> tuple[Move, ...]:
        """What moved above noise."""
        return tuple(move for move in self.moves if move.moved)

    def amount(self, name: str) -> float | None:
        """Of one counter; None when it is not known."""
        return next((move.amount for move in self.moves if move.name == name), None)

    def says(self) -> str:
        """All counters with their figures: what a verdict quotes."""
        told = ", ".join(move.says for move in self.moves) or "no counter"
        return f"{told} in {self.ended - self.began:.0f} s"


def movement(samples: Sequence[Sample], began: float, ended: float, idle_watts: float | None = None) -> Movement:
    """What moved between two times. A counter is known when a sample from before, or just after `began` has it.

    Samples are in order of time. What lies before `began` counts as the start of the stretch. idle_watts is the lowest
    power that the node's GPUs were seen at; left out, the lowest of these samples.
    """
    known, stretch = noise(), _stretch(samples, began, ended)
    idle = lowest_watts(samples) if idle_watts is None else idle_watts
    found: dict[str, Move | None] = {"cpu": _cpu(stretch, (began, ended), known)}
    found |= {name: _grown(stretch, name, (began, ended), known) for name in _NAMES}
    found["cache_bytes"] = _own_cache(found)
    found |= {"gpu": _gpu(stretch, idle, known), "gpu_percent": _busy(stretch), "compilers": _compilers(stretch)}
    unknown = tuple(name for name, move in found.items() if move is None)
    told = tuple(filter(None, (*found.values(), _held_back(stretch, found["cpu"], known))))
    return Movement(began, ended, told, unknown)


def lowest_watts(samples: Sequence[Sample]) -> float | None:
    """The lowest power of the node's GPUs in these samples."""
    return min((sample.values["gpu_watts"] for sample in samples if "gpu_watts" in sample.values), default=None)


def last_moved(samples: Sequence[Sample], waits: bool, within: float = 10.0) -> float | None:
    """When anything last moved; CPU time doesn't count for a rank that waits. None: it was never seen to.

    Looks at stretches of `within` seconds, so that what moves in small steps is seen, and then closer.
    """
    first, idle = len(samples), lowest_watts(samples)

    def moves(start: int, end: int) -> bool:
        seen = movement(samples[start : end + 1], samples[start].at, samples[end].at, idle)
        return any(counts(move, waits) for move in seen.moving)

    for last in range(len(samples) - 1, 0, -1):
        first = min(first, last)
        while first > 0 and samples[first].at > samples[last].at - within:
            first -= 1
        if moves(first, last):
            quiet_from = next((at for at in range(last - 1, first, -1) if moves(at, last)), first)
            return samples[quiet_from + 1].at
    return None


def counts(move: Move, waits: bool) -> bool:
    """True for a move that proves progress: of a rank that waits for peers neither CPU, GPU nor network do."""
    if move.name == "compilers":  # as such they prove nothing: they take CPU time while they work
        return False
    return not (waits and move.name in ("cpu", "gpu", "net_bytes", "rdma_bytes"))


def size(count: float) -> str:
    """Bytes in words, with a sign."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:+.1f} {unit}"
    return f"{count:+.0f} B"


def _stretch(samples: Sequence[Sample], began: float, ended: float) -> list[Sample]:
    first = bisect_right(samples, began, key=lambda sample: sample.at)
    last = bisect_right(samples, ended, key=lambda sample: sample.at)
    return list(samples[max(0, first - 1) : last])


def _values(stretch: Sequence[Sample], name: str, between: Times, known: Noise) -> list[tuple[float, float]] | None:
    """The counter at each time it was read; None when that doesn't cover the stretch."""
    parts = _SUMS.get(name, (name,))
    values = [
        (sample.at, sum(sample.values[part] for part in parts))
        for sample in stretch
        if all(part in sample.values for part in parts)
    ]
    covers = len(values) > 1 and values[0][0] <= between[0] + _LATE_START
    return values if covers and values[-1][0] >= between[1] - known.stale_s else None


def _cpu(stretch: Sequence[Sample], between: Times, known: Noise) -> Move | None:
    """Cores in use, on average. Processes that end take their time out of the sum: only growth counts."""
    values = _values(stretch, "cpu_s", between, known)
    if values is None:
        return None
    seconds = sum(max(0.0, after - before) for (_, before), (_, after) in pairwise(values))
    cores = seconds / (values[-1][0] - values[0][0])
    return Move("cpu", cores, f"CPU {seconds:.1f} s", cores > known.cpu_cores)


def _held_back(stretch: Sequence[Sample], cpu: Move | None, known: Noise) -> Move | None:
    """Processes that would run and get no CPU: a start that is throttled, or on a machine that has too much to do.

    On average one is runnable for each core that is used; what goes beyond that waits. None where that is not so.
    """
    counted = [sample.values["runnable"] for sample in stretch if "runnable" in sample.values]
    if cpu is None or len(counted) < known.held_back_looks or cpu.amount >= known.spin_cores:
        return None
    waiting = sum(counted) / len(counted) - cpu.amount
    held = waiting >= known.held_back
    return Move("held_back", waiting, f"{waiting:.1f} processes wait for a CPU", moved=True) if held else None


def _grown(stretch: Sequence[Sample], name: str, between: Times, known: Noise) -> Move | None:
    """How far a counter rose above its lowest point before: memory that is only taken back is no work."""
    values = _values(stretch, name, between, known)
    if values is None:
        return None
    low, grown = values[0][1], 0.0
    for _, value in values:
        low, grown = min(low, value), max(grown, value - low)
    allowed = known.bytes_per_minute[name] * max(values[-1][0] - values[0][0], 1.0) / _MINUTE
    return Move(name, grown, f"{_NAMES[name]} {size(grown)}", grown > allowed)


def _own_cache(found: Mapping[str, Move | None]) -> Move | None:
    """Whose caches grow while it neither uses a CPU nor writes has a neighbour that compiles into the same folder."""
    cache, cpu, written = (found[name] for name in ("cache_bytes", "cpu", "written_bytes"))
    idle = cpu is not None and not cpu.moved and written is not None and not written.moved
    return replace(cache, moved=False) if cache and idle else cache


def _gpu(stretch: Sequence[Sample], idle: float | None, known: Noise) -> Move | None:
    """Power of the node's GPUs against the lowest of this start."""
    watts = [sample.values["gpu_watts"] for sample in stretch if "gpu_watts" in sample.values]
    if not watts or idle is None:
        return None
    peak = max(watts)
    works = peak >= max(known.gpu_watts, known.gpu_times * idle)
    return Move("gpu", peak, f"GPU power {peak:.0f} W", works)


def _busy(stretch: Sequence[Sample]) -> Move | None:
    """The lowest utilisation of the GPUs: told, and no proof of work."""
    busy = [sample.values["gpu_percent"] for sample in stretch if "gpu_percent" in sample.values]
    return Move("gpu_percent", min(busy), f"GPU busy {min(busy):.0f} %", moved=False) if busy else None


def _compilers(stretch: Sequence[Sample]) -> Move | None:
    """Compilers that run now; they work only as far as CPU time moves."""
    counted = [sample for sample in stretch if "compilers" in sample.values]
    if not counted:
        return None
    count = counted[-1].values["compilers"]
    names = sorted({name for sample in counted[-3:] for name in sample.busiest if is_compiler(name)})
    called = ", ".join(names) or "compilers"
    return Move("compilers", max(s.values["compilers"] for s in counted), f"{count:.0f} {called}", count > 0)
