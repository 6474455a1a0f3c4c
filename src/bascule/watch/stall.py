"""Slow, stalled, spinning or dead: the rule over all ranks of a start (pure).

Silence alone proves nothing: a start is stalled when every rank was seen to be quiet, or one that waits for nobody. A
rank that waits for a peer is not stalled as long as the peer moves. The verdict names the rank that holds the others
up where the evidence tells one, and none where it doesn't.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bascule.watch.budgets import Facts
from bascule.watch.phases import Progress
from bascule.watch.samples import Sample
from bascule.watch.standing import Standing, Verdict, Watched, stand


@dataclass(frozen=True, slots=True)
class Judgement:
    """The whole start: the verdict, and the rank that it hangs on (None: no single one can be named)."""

    verdict: Verdict
    rank: int | None
    phase: str
    since_s: float  # since anything last moved on the ranks that the verdict is about
    moving: tuple[str, ...]
    says: str
    next_step: str
    ranks: tuple[Standing, ...] = ()


def judge(
    history: Mapping[int, Sequence[Sample]],
    progress: Mapping[int, Progress],
    alive: Mapping[int, bool | None],
    facts: Facts,
    now: float,
) -> Judgement:
    """The verdict at a time, on the clock of the samples and of `progress`; samples are in order of time.

    `alive` names every rank that there should be; None is one of which that is not known. A rank that is not in
    `progress` is one of which nothing was ever seen.
    """
    watched = [Watched(rank, history.get(rank, ()), progress.get(rank), alive[rank]) for rank in sorted(alive)]
    ranks = tuple(stand(one, facts, now) for one in watched)
    for rule in (_dead, _ready, _stuck_alone, _moving, _unseen, _missing):
        if judgement := rule(ranks, now):
            return judgement
    return _all_still(ranks, now)


def _dead(ranks: Sequence[Standing], now: float) -> Judgement | None:
    dead = [one for one in ranks if one.verdict is Verdict.DEAD]
    if not dead:
        return None
    first = min(dead, key=lambda one: one.since)
    return _judgement(Verdict.DEAD, first, ranks, now, f"{_names(dead)} ended in `{first.phase}`")


def _ready(ranks: Sequence[Standing], now: float) -> Judgement | None:
    head = next((one for one in ranks if one.rank == 0 and one.verdict is Verdict.READY), None)
    return _judgement(Verdict.READY, head, ranks, now, "the engine says that it serves") if head else None


def _stuck_alone(ranks: Sequence[Standing], now: float) -> Judgement | None:
    """A rank that waits for nobody, and stands still whatever the others do."""
    stuck = next((one for one in ranks if one.stands_still and _is_alone(one, ranks)), None)
    return _judgement(stuck.verdict, stuck, ranks, now, _why(stuck, now)) if stuck else None


def _moving(ranks: Sequence[Standing], now: float) -> Judgement | None:
    """Something moves: the start goes on, as fast as the rank that is furthest behind."""
    moving = [one for one in ranks if one.moves]
    if not moving:
        return None
    behind = min(moving, key=_place)
    new_lines = any(one.verdict is Verdict.PROGRESSING for one in moving)
    waiting = [one for one in ranks if one.stands_still]
    says = f"rank {behind.rank}: {behind.says}" + (f"; {_names(waiting)} waits" if waiting else "")
    return _judgement(Verdict.PROGRESSING if new_lines else Verdict.SLOW, behind, ranks, now, says)


def _unseen(ranks: Sequence[Standing], now: float) -> Judgement | None:
    """Nothing is seen to move, and of a rank not enough is seen."""
    unseen = [one for one in ranks if one.verdict is Verdict.UNKNOWN and not one.is_missing]
    if not unseen:
        return None
    says = "; ".join(f"rank {one.rank}: {one.says} ({one.counters})" for one in unseen)
    return _judgement(Verdict.UNKNOWN, unseen[0], ranks, now, says)


def _missing(ranks: Sequence[Standing], now: float) -> Judgement | None:
    """Ranks that never came, while those that did stand still."""
    missing = [one for one in ranks if one.is_missing]
    if not missing:
        return None
    waiting = [one for one in ranks if not one.is_missing]
    if not waiting:
        return _judgement(Verdict.UNKNOWN, missing[0], ranks, now, "nothing was seen of any rank")
    last = max(waiting, key=lambda one: one.since)
    says = f"{_names(missing)} never joined: nothing was ever seen of it; {_why(last, now)}"
    return replace(_judgement(Verdict.STALLED, last, ranks, now, says), rank=missing[0].rank)


def _all_still(ranks: Sequence[Standing], now: float) -> Judgement:
    """Every rank stands still: name the one that the others wait for, if the evidence tells it."""
    holder = _holder(ranks)
    spinning = [one for one in ranks if one.verdict is Verdict.SPINNING]
    if holder is None and len(spinning) == 1 and len(ranks) > 1:
        holder = spinning[0]
    about = holder or min(ranks, key=_place)
    verdict = holder.verdict if holder else (Verdict.SPINNING if spinning else Verdict.STALLED)
    says = "; ".join(_why(one, now) for one in (about, *(one for one in ranks if one is not about)))
    found = _judgement(verdict, about, ranks, now, says)
    quiet = now - max(one.since for one in ranks)
    return replace(found, rank=holder.rank if holder else None, since_s=max(0.0, quiet))


def _holder(ranks: Sequence[Standing]) -> Standing | None:
    """The rank that holds the others up: stopped, or the head in its last steps, or alone furthest behind."""
    if len(ranks) == 1:
        return ranks[0]
    stopped = [one for one in ranks if one.stopped]
    if len(stopped) == 1:
        return stopped[0]
    head = ranks[0]
    if head.rank == 0 and head.progress is not None and head.progress.now.head_only:
        return head
    first = min(_place(one) for one in ranks)
    behind = [one for one in ranks if _place(one) == first]
    return behind[0] if len(behind) == 1 else None


def _place(one: Standing) -> int:
    """How far a rank is; phases of waiting count as one, since ranks other than the head don't tell them all."""
    if one.progress is None:
        return -1
    waiting = [at for at, phase in enumerate(one.progress.phases) if phase.waits]
    return waiting[0] if one.progress.index in waiting else one.progress.index


def _is_alone(one: Standing, ranks: Sequence[Standing]) -> bool:
    """True before a rank has met its peers: it can't be waiting for them."""
    if one.progress is None:
        return False
    waiting = [at for at, phase in enumerate(one.progress.phases) if phase.waits]
    return len(ranks) == 1 or not waiting or one.progress.index < waiting[0]


def _why(one: Standing, now: float) -> str:
    still = "" if one.verdict is Verdict.SPINNING else f", nothing moved for {now - one.since:.0f} s"
    return f"rank {one.rank} is in {one.says}{still} ({one.counters})"


def _judgement(verdict: Verdict, one: Standing, ranks: Sequence[Standing], now: float, says: str) -> Judgement:
    step = one.progress.next_step if one.progress else ""
    return Judgement(verdict, one.rank, one.phase, max(0.0, now - one.since), one.moving, says, step, tuple(ranks))


def _names(ranks: Sequence[Standing]) -> str:
    return ", ".join(f"rank {one.rank}" for one in ranks)
