"""What the logs of all ranks mean together: the first error that is no consequence, or where it stopped (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bascule.watch.catalogue import Failure, Remedy, said_by
from bascule.watch.conditions import holds
from bascule.watch.samples import Socket
from bascule.watch.told import Told, Trouble

HEALTHY, UNKNOWN, STOPPED, HANGS, SLOW = "healthy", "unknown", "stopped", "hang?", "slow?"
TOGETHER = 2.0  # seconds between ranks within which their order is not known: engines log whole seconds
SKEW = 900.0  # seconds between the first lines of two ranks from which on their clocks are taken to differ

_NO_ERROR = (
    "the log ends here without an error. Whether the rank hangs or works in silence, a log can't tell: see whether"
)
_MOVES = "its CPU, GPU, memory, disk or network still move"


@dataclass(frozen=True, slots=True)
class Primary:
    """The line that everything else follows from."""

    rank: int  # in the order of the logs
    file: str
    line: int
    text: str
    phase: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found."""

    kind: str  # class of the failure; healthy, unknown, stopped, or `hang?` where only silence speaks
    cause: str
    primary: Primary | None = None
    failure: Failure | None = None
    remedies: tuple[Remedy, ...] = ()
    cascades: int = 0
    groups: Mapping[str, str] = field(default_factory=dict)
    degraded: tuple[Failure, ...] = ()  # what works, but worse than it could
    proven: bool | None = None  # what the evidence beside the line says; None: was not looked at


@dataclass(frozen=True, slots=True)
class _At:
    """A trouble and its rank, with its time by the first rank's clock."""

    rank: int
    told: Told
    trouble: Trouble
    at: float | None


def judge(logs: Sequence[Told], sockets: Mapping[int, Sequence[Socket]] | None = None) -> Diagnosis:
    """The diagnosis of one start from the logs of its ranks, and from their sockets where they were looked at."""
    shifts = clock_shifts(logs)
    found = _first_of(logs, shifts)
    if found and found.trouble.failure is None:
        return _diagnosis(logs, found, UNKNOWN, "not in the catalogue: this is the first error that is no consequence")
    if found and found.trouble.failure:
        return _diagnosis(logs, found, found.trouble.failure.kind, found.trouble.failure.cause)
    if lost := _consequence(logs, shifts):
        cause = lost.trouble.failure.cause if lost.trouble.failure else ""
        return _diagnosis(logs, lost, "cascade", f"a consequence, and its cause is not in these logs. {cause}")
    if _is_healthy(logs):
        every = [one.failure for told in logs for one in (*told.degraded, *told.troubles) if one.failure]
        seen = {one.id: one for one in every if one.kind == "degraded"}
        return Diagnosis(
            HEALTHY, "it came up, and no error was said", cascades=_cascades(logs), degraded=tuple(seen.values())
        )
    if stop := next((_At(rank, told, told.stop, None) for rank, told in enumerate(logs) if told.stop), None):
        return _diagnosis(
            logs, stop, STOPPED, "it was told to end before it was ready, and no error stands before that"
        )
    return _silence(logs, shifts, sockets)


def clock_shifts(logs: Sequence[Told]) -> list[float]:
    """Seconds to add to each rank's times so that they are by the first rank's clock.

    Ranks enter the phase behind the rendezvous together: where all say so, that is the anchor. Else it is their first
    line, and only where these are too far apart for one start.
    """
    anchors = [_met(told) for told in logs]
    if logs and anchors[0] is not None and all(anchor is not None for anchor in anchors):
        gaps = [anchors[0] - anchor for anchor in anchors if anchor is not None]
        return [gap if abs(gap) > TOGETHER else 0.0 for gap in gaps]
    first = logs[0].began if logs else None
    gaps = [first - told.began if first is not None and told.began is not None else 0.0 for told in logs]
    return [gap if abs(gap) > SKEW else 0.0 for gap in gaps]


def _met(told: Told) -> float | None:
    """When a rank left the last phase in which only its peers could move it on."""
    if told.progress is None:
        return None
    phases = told.progress.phases
    after = max((index for index, phase in enumerate(phases) if phase.waits), default=-1)
    return next((step.at for step in told.steps if step.index > after), None) if after >= 0 else None


def _first_of(logs: Sequence[Told], shifts: Sequence[float]) -> _At | None:
    """The first trouble of all ranks: of the strong ones, else of the others."""
    every = [
        _At(rank, told, trouble, None if trouble.at is None else trouble.at + shifts[rank])
        for rank, told in enumerate(logs)
        for trouble in told.troubles
    ]
    lasting = [
        one for one in every if not _survived(one, logs, shifts) and not _after_stop(one, logs, shifts, TOGETHER)
    ]
    for strong in (True, False):
        first_each = {one.rank: one for one in reversed(lasting) if one.trouble.is_strong is strong}
        if first_each:
            return _earliest(sorted(first_each.values(), key=lambda one: one.rank))
    return None


def _earliest(each: Sequence[_At]) -> _At:
    """By time; where that can't decide, a failure that is known comes before one that is not."""
    times = [one.at for one in each if one.at is not None]
    if len(times) < len(each):
        return min(each, key=lambda one: one.trouble.failure is None)
    close = [one for one in each if one.at is not None and one.at - min(times) <= TOGETHER]
    return min(close, key=lambda one: (one.trouble.failure is None, one.at))


def _survived(one: _At, logs: Sequence[Told], shifts: Sequence[float]) -> bool:
    """True when the start went on after it: to ready; or, for what is no sure end, to a later phase."""
    line, trouble = one.trouble.line.number, one.trouble
    if one.told.ready and one.told.ready.line > line:
        return True
    for rank, told in enumerate(logs):
        at = told.ready.at if told.ready else None
        if rank != one.rank and at is not None and one.at is not None and at + shifts[rank] > one.at:
            return True
    if trouble.is_strong and trouble.failure is not None:
        return False
    later = [step for step in one.told.steps if step.line > line]
    return any(step.process == trouble.process or not trouble.is_strong for step in later)


def _after_stop(one: _At, logs: Sequence[Told], shifts: Sequence[float], grace: float) -> bool:
    """True when it was said after the engine had been told to end: by the same rank, or by another and by the clock."""
    if one.told.stop and one.told.stop.line.number < one.trouble.line.number:
        return True
    stops = [
        told.stop.at + shifts[rank]
        for rank, told in enumerate(logs)
        if rank != one.rank and told.stop and told.stop.at is not None
    ]
    return one.at is not None and any(one.at > stop + grace for stop in stops)


def _consequence(logs: Sequence[Told], shifts: Sequence[float]) -> _At | None:
    """The first consequence that an ordered end does not explain."""
    for rank, told in enumerate(logs):
        for trouble in told.consequences:
            one = _At(rank, told, trouble, None if trouble.at is None else trouble.at + shifts[rank])
            ended_well = trouble.quiet and (_is_done(told) or any(peer.ready for peer in logs))
            if not (_after_stop(one, logs, shifts, -TOGETHER) or ended_well or _survived(one, logs, shifts)):
                return one
    return None


def _is_healthy(logs: Sequence[Told]) -> bool:
    return any(told.ready for told in logs) or (bool(logs) and all(_is_done(told) for told in logs))


def _is_done(told: Told) -> bool:
    """True for a rank without an API that got its weights: it never says more of being ready."""
    if told.progress is None or not told.is_worker:
        return False
    names = [phase.name for phase in told.progress.phases]
    return "weights" in names and told.step > names.index("weights")


def _silence(
    logs: Sequence[Told], shifts: Sequence[float], sockets: Mapping[int, Sequence[Socket]] | None
) -> Diagnosis:
    """Nobody said an error: the line where the rank that is furthest behind stopped."""
    speaking = [(rank, told) for rank, told in enumerate(logs) if told.newest or told.notice]
    if not speaking:
        return Diagnosis(UNKNOWN, "the log is empty: nothing was said before it ended", cascades=_cascades(logs))
    behind = sorted(speaking, key=lambda pair: (_is_done(pair[1]), pair[1].step, pair[0]))
    for rank, told in behind:
        if found := _stopped_at(rank, logs, sockets):
            trouble, proven = found
            failure = trouble.failure
            kind = {"hang": HANGS, "suspect": HANGS, "slow": SLOW}.get(failure.kind, failure.kind) if failure else HANGS
            cause = f"{failure.cause if failure else ''} {_ended(told, _silent_for(rank, logs, shifts))}".strip()
            return _diagnosis(logs, _At(rank, told, trouble, None), kind, cause, proven)
    rank, told = behind[0]
    line = told.newest or (told.notice.line if told.notice else None)
    assert line is not None
    quiet = Trouble(line, None, told.step, "", False, True)
    return _diagnosis(logs, _At(rank, told, quiet, None), HANGS, _ended(told, _silent_for(rank, logs, shifts)))


def _stopped_at(
    rank: int, logs: Sequence[Told], sockets: Mapping[int, Sequence[Socket]] | None
) -> tuple[Trouble, bool | None] | None:
    """What the newest line of a rank is known for, when the other evidence is not against it."""
    told = logs[rank]
    peers = [peer for place, peer in enumerate(logs) if place != rank]
    for failure in said_by(told.engine):
        fits = failure.mode == "newest" or (failure.mode in ("any", "docker") and failure.kind == "degraded")
        match = failure.found_in(told.newest.text) if told.newest and fits else None
        if match and told.newest:
            proven = holds(failure.when, told, peers, sockets)
            if proven is not False:
                groups = {name: text for name, text in match.groupdict().items() if text}
                return Trouble(told.newest, told.newest_at, told.step, "", False, True, failure, groups), proven
    if told.notice and told.notice.failure:
        return told.notice, holds(told.notice.failure.when, told, peers, sockets)
    return None


def _silent_for(rank: int, logs: Sequence[Told], shifts: Sequence[float]) -> float:
    """Seconds by which the newest line of all ranks, or of its own notices, is newer than this rank's."""
    mine = logs[rank].newest_at
    latest = [told.newest_at + shift for told, shift in zip(logs, shifts, strict=True) if told.newest_at is not None]
    latest += [told.notice.at for told in (logs[rank],) if told.notice and told.notice.at is not None]
    return max(latest) - mine - shifts[rank] if mine is not None and latest else 0.0


def _ended(told: Told, silent: float) -> str:
    phase = told.phase_of(told.step)
    where = f"In `{phase}` {_NO_ERROR}" if phase else _NO_ERROR[0].upper() + _NO_ERROR[1:]
    following = told.progress.next_step if told.progress else ""
    since = f". The logs go on for {silent:.0f} s after it" if silent >= 1 else ""
    return f"{where} {_MOVES}{since}" + (f". Next would be: {following}" if following else "")


def _diagnosis(logs: Sequence[Told], one: _At, kind: str, cause: str, proven: bool | None = None) -> Diagnosis:
    failure, line = one.trouble.failure, one.trouble.line
    phase = one.told.phase_of(one.trouble.step) if one.trouble.step or not failure else failure.phase
    primary = Primary(one.rank, one.told.name, line.number, line.text.strip(), phase or UNKNOWN)
    cascades = _cascades(logs) - (failure is not None and failure.cascade)
    remedies = failure.remedies if failure else ()
    return Diagnosis(kind, cause, primary, failure, remedies, cascades, one.trouble.groups, _worse(logs), proven)


def _worse(logs: Iterable[Told]) -> tuple[Failure, ...]:
    return tuple({one.failure.id: one.failure for told in logs for one in told.degraded if one.failure}.values())


def _cascades(logs: Iterable[Told]) -> int:
    return sum(told.cascades for told in logs)
