"""How one rank stands: what moves, whether it is quiet, spins, waits or is gone, from its counters and its log (pure).

A rank is quiet when its counters were read and none moved above noise for as long as its phase may be quiet. Nothing
that could not be read is taken for quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bascule.watch.budgets import Facts, quiet_s
from bascule.watch.movement import Move, Movement, counts, last_moved, lowest_watts, movement
from bascule.watch.noise import noise
from bascule.watch.phases import Progress
from bascule.watch.samples import Sample

ESSENTIAL = ("cpu", "memory_bytes")  # without these nobody can say that a rank is quiet
LOADING = ("read_bytes", "gpu_bytes")  # nor, while weights are loaded, without one of these
RETOLD = 4  # counters that a short text names
GPU_BUSY = 90.0  # percent


class Verdict(StrEnum):
    """How a start stands."""

    PROGRESSING = "PROGRESSING"
    SLOW = "SLOW"  # no new line, but something moves
    STALLED = "STALLED"  # nothing moves on any rank, or on one that waits for nobody
    SPINNING = "SPINNING"  # busy, and nothing comes of it
    DEAD = "DEAD"  # a rank has ended
    READY = "READY"
    UNKNOWN = "UNKNOWN"  # quiet as far as can be seen, but not enough can be seen


@dataclass(frozen=True, slots=True)
class Standing:
    """One rank: its own verdict, and the figures behind it. STALLED here only means quiet: it may wait for a peer."""

    rank: int
    verdict: Verdict
    phase: str
    since: float  # when it last moved
    says: str  # short, for the screen and the journal: what moves, or that nothing does
    progress: Progress | None = None  # None: nothing was ever seen of it
    moving: tuple[str, ...] = ()
    counters: str = ""  # all figures, for a verdict to quote
    stopped: float = 0.0  # processes that a signal or a pause has stopped

    @property
    def is_missing(self) -> bool:
        """True when nothing was ever seen of it."""
        return self.progress is None

    @property
    def moves(self) -> bool:
        """True when something proves that it goes on."""
        return self.verdict in (Verdict.PROGRESSING, Verdict.SLOW)

    @property
    def stands_still(self) -> bool:
        """True when it is known that nothing comes of it."""
        return self.verdict in (Verdict.STALLED, Verdict.SPINNING)


@dataclass(frozen=True, slots=True)
class Watched:
    """All that is known of one rank, on one clock."""

    rank: int
    samples: Sequence[Sample]  # in order of time
    progress: Progress | None  # None: nothing was ever seen of it
    alive: bool | None  # None: not known


def stand(watched: Watched, facts: Facts, now: float) -> Standing:
    """How one rank stands at a time."""
    progress, rank = watched.progress, watched.rank
    if progress is None:
        return Standing(rank, Verdict.UNKNOWN, "", now, "nothing was seen of it")
    if watched.alive is False:
        return Standing(rank, Verdict.DEAD, progress.phase, _moved_at(watched), "ended", progress)
    if progress.is_ready:
        return Standing(rank, Verdict.READY, progress.phase, progress.since, "serves", progress)
    seen = _look(watched, quiet_s(progress.now, facts), now)
    verdict, moving = _verdict(watched, seen, facts, now)
    says = brief(progress, now, verdict, moving)
    told = tuple(move.says for move in moving)
    counters = seen.says() + (f"; not read: {', '.join(seen.unknown)}" if seen.unknown else "")
    since = now if verdict in (Verdict.PROGRESSING, Verdict.SLOW) else _moved_at(watched)
    newest = watched.samples[-1].values if watched.samples else {}
    stopped = newest.get("stopped", 0.0)
    how = "its container is paused" if newest.get("paused") else f"{stopped:.0f} processes are stopped by a signal"
    counters += f"; {how}" if stopped else ""
    return Standing(rank, verdict, progress.phase, since, says, progress, told, counters, stopped)


def brief(progress: Progress, now: float, verdict: Verdict = Verdict.PROGRESSING, moving: Sequence[Move] = ()) -> str:
    """A rank in a few words: `weights 40 %`, or `compile: 7 nvcc, caches +31.0 MB, no new lines for 94 s`."""
    head = progress.phase if progress.fraction is None else f"{progress.phase} {progress.fraction * 100:.0f} %"
    if verdict is Verdict.PROGRESSING:
        return head
    told = [move.says for move in moving if move.name != "cpu" or len(moving) == 1][:RETOLD]
    words = {
        Verdict.STALLED: "nothing moves",
        Verdict.SPINNING: "busy, and nothing comes of it",
        Verdict.UNKNOWN: "can't be seen whether it moves",
    }
    told += [words[verdict]] if verdict in words else []
    return f"{head}: {', '.join((*told, f'no new lines for {now - progress.spoke_at:.0f} s'))}"


def _look(watched: Watched, window: float, now: float) -> Movement:
    return movement(watched.samples, now - window, now, lowest_watts(watched.samples))


def _verdict(watched: Watched, seen: Movement, facts: Facts, now: float) -> tuple[Verdict, tuple[Move, ...]]:
    progress = watched.progress
    assert progress is not None
    moving = tuple(move for move in seen.moving if counts(move, progress.now.waits))
    silent = now - progress.spoke_at
    if silent < seen.ended - seen.began or _half_a_line(watched, seen, progress):
        return Verdict.PROGRESSING, _with_compilers(seen, moving)
    if moving:
        if _spins(watched, facts, now):
            return Verdict.SPINNING, ()
        slow = silent >= noise().silence_s
        return (Verdict.SLOW if slow else Verdict.PROGRESSING), _with_compilers(seen, moving)
    if _unread(seen, progress):
        return Verdict.UNKNOWN, ()
    return (Verdict.SPINNING if _is_busy(seen) else Verdict.STALLED), ()


def _half_a_line(watched: Watched, seen: Movement, progress: Progress) -> bool:
    """The log grew, and no line of it has ended yet: dots that are drawn one by one."""
    stretch = [sample.values for sample in watched.samples if seen.began <= sample.at <= seen.ended]
    sizes = [values["log_bytes"] for values in stretch if "log_bytes" in values]
    return len(sizes) > 1 and sizes[-1] > sizes[0] and progress.last_line_at < seen.began


def _spins(watched: Watched, facts: Facts, now: float) -> bool:
    """CPU time alone moved for the whole of the phase's spin_s: memory flat, no bytes, no compiler, no GPU at work."""
    progress = watched.progress
    assert progress is not None
    window = max(progress.now.spin_s, quiet_s(progress.now, facts))
    if now - progress.spoke_at < window:
        return False
    seen = _look(watched, window, now)
    alone = all(move.name == "cpu" for move in seen.moving)
    return alone and _is_busy(seen) and seen.amount("compilers") == 0 and not _unread(seen, progress)


def _is_busy(seen: Movement) -> bool:
    """Much CPU time, or a GPU that says it works, at idle power (power that shows work has counted as movement)."""
    return (seen.amount("cpu") or 0.0) >= noise().spin_cores or (seen.amount("gpu_percent") or 0.0) >= GPU_BUSY


def _unread(seen: Movement, progress: Progress) -> tuple[str, ...]:
    """What would have to be known to call the rank quiet, and isn't."""
    missing = [name for name in ESSENTIAL if name in seen.unknown]
    if progress.phase == "weights" and all(name in seen.unknown for name in LOADING):
        missing += LOADING
    return tuple(missing)


def _with_compilers(seen: Movement, moving: tuple[Move, ...]) -> tuple[Move, ...]:
    """Compilers are told first, when CPU time moves with them."""
    compilers = tuple(move for move in seen.moving if move.name == "compilers")
    return (*compilers, *moving) if any(move.name == "cpu" for move in moving) else moving


def _moved_at(watched: Watched) -> float:
    """When it last moved: a new line, a new phase, or a counter."""
    progress = watched.progress
    assert progress is not None
    moved = last_moved(watched.samples, progress.now.waits)
    return max(progress.spoke_at, progress.since, moved if moved is not None else progress.spoke_at)
