"""How a service stands while it serves (pure).

Silence is normal then: a service that nobody asks is idle, and never stalled. What is told: a rank that ended, one
that a signal or a pause stopped, a node that doesn't answer, and requests that are open while nothing moves. Where
only our own question can tell, the outlook says that there is a doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile

from bascule.watch.load import Asked, Load, times, waits_since
from bascule.watch.movement import Movement, lowest_watts, movement
from bascule.watch.noise import noise
from bascule.watch.samples import Sample
from bascule.watch.standing import ESSENTIAL, GPU_BUSY

TRIES = 2  # questions one after the other that must fail: one may meet a moment's trouble
AGAIN_S = 5.0  # seconds from a question that failed to the next one


class State(StrEnum):
    """How a rank, or the service, stands."""

    SERVING = "serving"  # nothing speaks against it
    UNKNOWN = "unknown"  # its node doesn't answer, or doesn't tell
    DEAD = "dead"
    STOPPED = "stopped"  # by a signal, or its container is paused: it is there and does nothing
    SPINNING = "spinning"  # busy, and nothing comes of it
    STANDSTILL = "standstill"  # requests are open, and nothing moves
    UNANSWERED = "unanswered"  # it answers a question with an error, or not at all

    @property
    def is_trouble(self) -> bool:
        """True when the service is broken."""
        return self not in (State.SERVING, State.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Served:
    """What is known of one rank, on one clock."""

    rank: int
    samples: Sequence[Sample] = ()  # in order of time
    alive: bool = True
    ended: str = ""  # how, in words
    seen_at: float = 0.0  # when its node last told of it
    spoke_at: float = 0.0  # when its log last said something new
    connections: bool = False  # somebody is connected to the API there


@dataclass(frozen=True, slots=True)
class Stance:
    """One rank and its state, in a few words."""

    rank: int
    state: State
    says: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The whole service: its state, the rank that it hangs on (None: no single one), and what can only be asked."""

    state: State
    rank: int | None
    says: str
    ranks: tuple[Stance, ...]
    counters: str = ""  # the figures behind it
    doubt: str = ""  # why the service should be asked; "" = no reason to


@dataclass(frozen=True, slots=True)
class _Quiet:
    """A rank of which nothing that proves progress moved over a stretch."""

    rank: int
    computes: bool  # on the CPU, which may be progress where the rank has no peers
    spins: bool  # a GPU that says it works, at idle power
    says: str

    @property
    def busy(self) -> bool:
        return self.computes or self.spins


def judge(ranks: Sequence[Served], loads: Sequence[Load], asked: Asked | None, now: float) -> Outlook:
    """The outlook at a time, on the clock of the samples; `loads` are in order of time."""
    stances = _stances(ranks, now)
    for state in (State.DEAD, State.STOPPED):
        if bad := [one for one in stances if one.state is state]:
            return Outlook(state, bad[0].rank, _told(bad[0], stances), stances)
    if asked and asked.failed and asked.tries >= TRIES:
        return Outlook(State.UNANSWERED, 0, f"asked for one token: {asked.failed}", stances)
    if lost := [one for one in stances if one.state is State.UNKNOWN]:
        return Outlook(State.UNKNOWN, lost[0].rank, _told(lost[0], stances), stances)
    if stuck := _stuck(ranks, loads, asked, now):
        return replace(stuck, ranks=tuple(_with(stance, stuck) for stance in stances))
    return Outlook(State.SERVING, None, "", stances, doubt=_doubt(ranks, asked, now))


def stopped_since(one: Served) -> float | None:
    """Since when some of its processes were stopped at each look; None when the newest one saw none."""
    last = list(takewhile(lambda sample: sample.values.get("stopped"), reversed(one.samples)))
    return last[-1].at if last else None


def is_paused(one: Served) -> bool:
    """True when it stopped because its container is paused: no signal lets it go on."""
    return bool(one.samples and one.samples[-1].values.get("paused"))


def spins_beside(one: Served, since: float, loads: Sequence[Load], now: float) -> str:
    """That a rank is busy in vain since a peer of it was stopped or ended, in words; "" where that is not known.

    Its log is left out: engines write their statistics however nothing comes of them.
    """
    window = now - since
    still = _still(one, window, now) if one.alive and window >= times().stopped_s else None
    if still is None or not still.busy:
        return ""
    seen, least = movement(one.samples, since, now), lowest_watts(one.samples)
    watts, percent = seen.amount("gpu"), seen.amount("gpu_percent")
    words = [move.says for move in seen.moves if move.name == "cpu"]
    if still.spins and watts is not None and least is not None:
        words.insert(0, f"GPU busy {percent:.0f} % at {watts:.0f} W (the least that was seen is {least:.0f} W)")
    return (
        f"rank {one.rank} waits for it: {', '.join(words)}, and nothing else moved in {window:.0f} s{_no_token(loads)}"
    )


def _no_token(loads: Sequence[Load]) -> str:
    """How long no token was made, between looks at the metrics; "" where nothing is open, or nobody knows."""
    since = waits_since(loads)
    seconds = loads[-1].at - since if since is not None else 0.0
    return f"; {loads[-1].open:.0f} requests are open and no token was made for {seconds:.0f} s" if seconds >= 1 else ""


def _stances(ranks: Sequence[Served], now: float) -> tuple[Stance, ...]:
    """Each rank by itself; then those that are busy while a peer is gone or stopped."""
    found = tuple(_stance(one, now) for one in ranks)
    if not any(one.state in (State.DEAD, State.STOPPED) for one in found):
        return found
    return tuple(_waiting(one, stance, now) for one, stance in zip(ranks, found, strict=True))


def _stance(one: Served, now: float) -> Stance:
    if not one.alive:
        return Stance(one.rank, State.DEAD, f"ended {one.ended}".rstrip())
    if now - one.seen_at > times().lost_s:
        return Stance(one.rank, State.UNKNOWN, f"its node has told nothing of it for {now - one.seen_at:.0f} s")
    if stopped := _stopped(one, now):
        return Stance(one.rank, State.STOPPED, stopped)
    return Stance(one.rank, State.SERVING)


def _stopped(one: Served, now: float) -> str:
    """Processes that were stopped at each of the last looks; "" when that is not so, or not known."""
    since, newest = stopped_since(one), one.samples[-1] if one.samples else None
    if since is None or newest is None or newest.at - since < times().stopped_s or now - newest.at > noise().stale_s:
        return ""
    if is_paused(one):
        return "its container is paused"
    stopped, every = newest.values["stopped"], newest.values.get("processes", 0.0)
    return f"{stopped:.0f} of its {every:.0f} processes are stopped by a signal"


def _waiting(one: Served, stance: Stance, now: float) -> Stance:
    quiet = _quiet(one, times().busy_s, now) if stance.state is State.SERVING else None
    return (
        Stance(one.rank, State.SPINNING, f"busy while it waits for its peer ({quiet.says})")
        if quiet and quiet.busy
        else stance
    )


def _told(bad: Stance, stances: Sequence[Stance]) -> str:
    """That rank first, then what else is not well."""
    others = [one for one in stances if one is not bad and one.state is not State.SERVING]
    return "; ".join(f"rank {one.rank}: {one.says}" for one in (bad, *others))


def _stuck(ranks: Sequence[Served], loads: Sequence[Load], asked: Asked | None, now: float) -> Outlook | None:
    """Something is asked of the service, and nothing has moved on any rank since."""
    waits = _waits(ranks, loads, asked, now)
    quiet = [_quiet(one, times().still_s, now) for one in ranks]
    known = [one for one in quiet if one is not None]
    if waits is None or len(known) < len(ranks):
        return None
    if any(one.computes and not one.spins for one in known) and not _compute_in_vain(ranks, loads, asked, now):
        return None
    busy = [one for one in known if one.busy]
    state = State.SPINNING if busy else State.STANDSTILL
    counters = "; ".join(f"rank {one.rank}: {one.says}" for one in known)
    names = " and ".join(f"rank {one.rank}" for one in busy)
    says = f"{waits}, and {f'nothing comes of what {names} does' if busy else 'nothing moves on any rank'}"
    return Outlook(state, busy[0].rank if len(busy) == 1 else None, says, (), counters)


def _waits(ranks: Sequence[Served], loads: Sequence[Load], asked: Asked | None, now: float) -> str | None:
    """Who waits for the service for too long already, in words."""
    since = waits_since(loads)
    if since is not None and now - since >= times().still_s:
        return f"{loads[-1].open:.0f} requests are open and no token was made for {now - since:.0f} s"
    count, came = _unanswered(ranks, now)
    if now - came >= times().still_s:
        return f"a request has waited {now - came:.0f} s without a byte of an answer ({count:.0f} wait)"
    if asked and asked.pending and now - asked.at >= times().answer_s:
        return f"asked for one token, it has not answered for {now - asked.at:.0f} s"
    return None


def _unanswered(ranks: Sequence[Served], now: float) -> tuple[float, float]:
    """How many requests wait at the API, and when the first of them came; (0, now) when none does, or nobody knows."""
    for one in ranks:
        values = one.samples[-1].values if one.samples else {}
        if values.get("requests") and "request_since" in values:
            return values["requests"], values["request_since"]
    return 0.0, now


def _compute_in_vain(ranks: Sequence[Served], loads: Sequence[Load], asked: Asked | None, now: float) -> bool:
    """CPU time moves, and nothing else has for so long that it is no step: known of ranks with peers alone."""
    asking = asked.at if asked and asked.pending else None
    began = [since for since in (waits_since(loads), asking, _unanswered(ranks, now)[1]) if since is not None]
    long = bool(began) and now - min(began) >= times().spin_s
    return long and len(ranks) > 1 and all(_quiet(one, times().spin_s, now) for one in ranks)


def _quiet(one: Served, window: float, now: float) -> _Quiet | None:
    """The rank when nothing but CPU time, much of it, or a GPU at idle power moved; None when something did, or may."""
    return None if now - one.spoke_at < window else _still(one, window, now)


def _still(one: Served, window: float, now: float) -> _Quiet | None:
    """The same by its counters alone."""
    seen = movement(one.samples, now - window, now, lowest_watts(one.samples))
    cores, percent = seen.amount("cpu"), seen.amount("gpu_percent")
    computes = (cores or 0.0) >= noise().spin_cores
    proves = [move for move in seen.moving if move.name != "cpu" or not computes]
    compiles = computes and bool(seen.amount("compilers"))
    if compiles or [move for move in proves if move.name != "compilers"] or not _is_known(seen):
        return None
    return _Quiet(one.rank, computes, (percent or 0.0) >= GPU_BUSY, seen.says())


def _is_known(seen: Movement) -> bool:
    return not any(name in seen.unknown for name in ESSENTIAL)


def _with(stance: Stance, stuck: Outlook) -> Stance:
    return replace(stance, state=stuck.state, says=stuck.says) if stuck.rank == stance.rank else stance


def _doubt(ranks: Sequence[Served], asked: Asked | None, now: float) -> str:
    if asked and asked.pending:
        return ""
    if asked and asked.failed:
        return "the last question failed" if asked.ended_at is not None and now - asked.ended_at >= AGAIN_S else ""
    if asked and asked.ended_at is not None and now - asked.ended_at < times().settled_s:
        return ""
    for one in ranks:
        if (quiet := _quiet(one, times().busy_s, now)) and quiet.busy:
            return f"rank {one.rank} is busy, and nothing else moves ({quiet.says})"
    open_to = any(one.connections for one in ranks)
    if open_to and all(_quiet(one, times().still_s, now) for one in ranks):
        return f"somebody is connected to the API, and nothing has moved for {times().still_s:.0f} s"
    return ""
