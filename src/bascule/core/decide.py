"""The whole pivot policy: from the candidates and what was found so far, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from bascule.core.nouns import Attempt, Candidate, Fate, GiveUp, Serve, Setting, Step, Try, Verdict

BUDGET = 12  # starts in one run, unless the recipe says otherwise
WRONG_ANSWER = "wrong-answer"
AGAIN_LIMIT = 2  # starts of the very same candidate when its failure looked transient


def decide(candidates: Sequence[Candidate], attempts: Sequence[Attempt], *, budget: int = BUDGET) -> Verdict:
    """What to do next; candidates are in the order of preference, attempts in the order of time.

    Ends for every input: each Try costs one of budget, and each way back to the same candidate is bounded.
    """
    if cluster := _first(attempts, Fate.CLUSTER):
        return GiveUp(f"no candidate can: {cluster.finding.says}")
    starts = [attempt for attempt in attempts if attempt.finding.step is not Step.PROBE]
    if starts and (verdict := _follow(starts, attempts, budget)):
        return verdict
    if len(starts) >= budget:
        return GiveUp(f"the budget of {budget} starts is spent")
    return _next_candidate(candidates, attempts)


def is_hopeless(candidate: Candidate, attempts: Sequence[Attempt]) -> bool:
    """True when something found so far condemns this candidate, or its artefact for this model."""
    return any(attempt.finding.fate is Fate.HOPELESS and _is_about(attempt, candidate) for attempt in attempts)


def _is_about(attempt: Attempt, candidate: Candidate) -> bool:
    if attempt.finding.scope == "candidate":
        return attempt.candidate.name == candidate.name
    return attempt.candidate.substance == candidate.substance


def _follow(starts: Sequence[Attempt], attempts: Sequence[Attempt], budget: int) -> Verdict | None:
    """What the newest start itself asks for; None means: go on to the next candidate."""
    last = starts[-1]
    match last.finding.fate:
        case Fate.OK:
            return _serve_if_verified(last)
        case Fate.ADJUST:
            repaired = _repaired(last)
            if repaired is None or len(starts) >= budget or is_hopeless(repaired, attempts):
                return None
            return Try(repaired, f"one change: {last.finding.change}")
        case Fate.AGAIN:
            same = sum(attempt.candidate == last.candidate for attempt in starts)
            if same >= AGAIN_LIMIT or len(starts) >= budget or is_hopeless(last.candidate, attempts):
                return None
            return Try(last.candidate, f"once more: {last.finding.says}")
        case Fate.HOPELESS | Fate.UNKNOWN | Fate.CLUSTER:
            return None
        case never:
            assert_never(never)


def _serve_if_verified(last: Attempt) -> Verdict | None:
    if last.finding.step is Step.VERIFY:
        return Serve(last.candidate, last.finding.says)
    return None  # a step before the last one went well: that is not an answer


def _repaired(last: Attempt) -> Candidate | None:
    """The candidate with the change asked for, or None when that change is in force already."""
    change = last.finding.change
    if change is None or _in_force(last.candidate, change):
        return None
    return last.candidate.changed(change)


def _in_force(candidate: Candidate, change: Setting) -> bool:
    return change in candidate.in_force


def _next_candidate(candidates: Sequence[Candidate], attempts: Sequence[Attempt]) -> Verdict:
    started = {attempt.candidate.name for attempt in attempts if attempt.finding.step is not Step.PROBE}
    for candidate in candidates:
        if candidate.name not in started and not is_hopeless(candidate, attempts):
            return Try(candidate, _because(candidate, attempts))
    return GiveUp(_why_nothing_is_left(candidates, attempts))


def _because(candidate: Candidate, attempts: Sequence[Attempt]) -> str:
    probed = [attempt.finding for attempt in attempts if attempt.candidate == candidate]
    if not probed:
        return "not looked into before the start"
    if probed[-1].fate is Fate.OK:
        return probed[-1].says
    return f"could not be told before the start: {probed[-1].says}"


def _why_nothing_is_left(candidates: Sequence[Candidate], attempts: Sequence[Attempt]) -> str:
    if not candidates:
        return "there is no candidate"
    wrong = [attempt for attempt in attempts if attempt.finding.code == WRONG_ANSWER]
    if len({attempt.candidate.engine for attempt in wrong}) > 1:
        return "several engines serve the model and answer wrongly: the weights themselves are suspect"
    hopeless = sum(is_hopeless(candidate, attempts) for candidate in candidates)
    return f"all {len(candidates)} candidates failed, {hopeless} of them for good"


def _first(attempts: Sequence[Attempt], fate: Fate) -> Attempt | None:
    return next((attempt for attempt in attempts if attempt.finding.fate is fate), None)
