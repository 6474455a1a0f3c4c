"""The pivot policy: it always ends, starts nothing hopeless twice, and serves only what has answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core.decide import AGAIN_LIMIT, decide, is_hopeless
from bascule.core.nouns import (
    Artefact,
    Attempt,
    Candidate,
    Evidence,
    Fate,
    Finding,
    GiveUp,
    Serve,
    Setting,
    Step,
    Try,
    Verdict,
)
from bascule.pivot import pivot

SEEN = (Evidence("a", "log of rank 0", datetime(2026, 11, 30, tzinfo=UTC), "a line"),)
CHANGES = [Setting("env", name, value, node) for name in "XY" for value in ("1", "2", None) for node in (None, "a")]
START_STEPS = [Step.PREFLIGHT, Step.DISTRIBUTE, Step.LAUNCH, Step.WATCH, Step.VERIFY]


def finding(fate: Fate, step: Step = Step.WATCH, change: Setting | None = None, scope: Any = "artefact") -> Finding:
    change = (change or CHANGES[0]) if fate is Fate.ADJUST else None
    return Finding(step, fate, f"{step}-{fate}", f"it was {fate}", SEEN, change, scope=scope)


def candidate(name: str, artefact: str = "", settings: tuple[Setting, ...] = ()) -> Candidate:
    return Candidate(name, "vllm", Artefact("venv", artefact or f"/opt/{name}"), "/m", settings)


# --- properties, over everything that may be found ---

many = settings(max_examples=300, deadline=None)

# Fates and steps that let a run go on come more often than those that end it, or most runs would be short.
FATES = [Fate.ADJUST, Fate.AGAIN, Fate.HOPELESS, Fate.OK, Fate.UNKNOWN, *Fate]
findings = st.builds(
    finding,
    st.sampled_from(FATES),
    st.sampled_from([*START_STEPS, Step.WATCH, Step.VERIFY]),
    st.sampled_from(CHANGES),
    st.sampled_from(["artefact", "candidate"]),
)
probes = st.builds(
    finding,
    st.sampled_from([Fate.HOPELESS, Fate.OK, Fate.UNKNOWN]),
    st.just(Step.PROBE),
    scope=st.sampled_from(["artefact", "candidate"]),
)
artefacts = st.sampled_from(["/opt/1", "/opt/2", "/opt/3"])
settings_of = st.lists(st.sampled_from(CHANGES), max_size=2).map(tuple)


@st.composite
def lists_of_candidates(draw: st.DrawFn) -> list[Candidate]:
    return [candidate(name, draw(artefacts), draw(settings_of)) for name in "abcd"[: draw(st.integers(0, 4))]]


@dataclass
class Played:
    """A run as the loop would live it; verdicts[i] was given when attempts[:known[i]] were known."""

    candidates: list[Candidate]
    budget: int
    attempts: list[Attempt] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    known: list[int] = field(default_factory=list)

    def tries(self) -> list[tuple[Try, list[Attempt]]]:
        told = zip(self.verdicts, self.known, strict=True)
        return [(verdict, self.attempts[:known]) for verdict, known in told if isinstance(verdict, Try)]


@st.composite
def runs(draw: st.DrawFn) -> Played:
    """Decide, and answer every Try with any finding whatever, until the policy ends it."""
    run = Played(draw(lists_of_candidates()), draw(st.integers(1, 10)))
    if draw(st.booleans()):
        run.attempts = [Attempt(one, draw(probes)) for one in run.candidates]
    if run.candidates and draw(st.booleans()):  # an earlier bascule left one running
        adopted = draw(st.sampled_from(run.candidates)).changed(draw(st.sampled_from(CHANGES)))
        run.attempts.append(Attempt(adopted, draw(findings)))
    for _ in range(run.budget + 1):
        verdict = decide(run.candidates, run.attempts, budget=run.budget)
        run.verdicts.append(verdict)
        run.known.append(len(run.attempts))
        if not isinstance(verdict, Try):
            return run
        run.attempts.append(Attempt(verdict.candidate, draw(findings)))
    raise AssertionError("the policy didn't end within its budget")


def is_start(attempt: Attempt) -> bool:
    return attempt.finding.step is not Step.PROBE


@many
@given(runs())
def test_it_ends_within_the_budget(run: Played) -> None:
    assert len(run.tries()) <= run.budget
    assert isinstance(run.verdicts[-1], Serve | GiveUp)


@many
@given(runs())
def test_nothing_hopeless_is_started_again(run: Played) -> None:
    for verdict, known in run.tries():
        for attempt in known:
            if attempt.finding.fate is not Fate.HOPELESS:
                continue
            if attempt.finding.scope == "artefact":
                assert verdict.candidate.substance != attempt.candidate.substance
            else:
                assert verdict.candidate.name != attempt.candidate.name


@many
@given(runs())
def test_only_what_has_just_answered_correctly_is_served(run: Played) -> None:
    if isinstance(run.verdicts[-1], Serve):
        last = run.attempts[-1]
        assert last.candidate == run.verdicts[-1].candidate
        assert (last.finding.step, last.finding.fate) == (Step.VERIFY, Fate.OK)


@many
@given(runs(), st.sampled_from([Step.PROBE, *START_STEPS]))
def test_what_could_not_be_checked_is_never_served(run: Played, step: Step) -> None:
    unverified = [a for a in run.attempts if (a.finding.step, a.finding.fate) != (Step.VERIFY, Fate.OK)]
    for one in run.candidates:
        attempts = [*unverified, Attempt(one, finding(Fate.UNKNOWN, step))]
        assert not isinstance(decide(run.candidates, attempts, budget=run.budget), Serve)


@many
@given(runs())
def test_a_repair_changes_one_setting(run: Played) -> None:
    for verdict, known in run.tries():
        starts = [attempt for attempt in known if is_start(attempt)]
        if verdict.because.startswith("one change: "):
            last = starts[-1]
            assert verdict.candidate == last.candidate.changed(last.finding.change)  # type: ignore[arg-type]
            assert verdict.candidate.in_force[:-1] == last.candidate.in_force
            assert str(verdict.candidate.in_force[-1]) in verdict.because
        elif starts and verdict.candidate.name == starts[-1].candidate.name:
            assert verdict.candidate == starts[-1].candidate


@many
@given(runs())
def test_the_same_start_is_made_at_most_twice(run: Played) -> None:
    made = Counter(repr(verdict.candidate) for verdict, _ in run.tries())
    assert max(made.values(), default=0) <= AGAIN_LIMIT


@many
@given(runs())
def test_what_no_candidate_can_do_ends_it(run: Played) -> None:
    for at, attempt in enumerate(run.attempts):
        if attempt.finding.fate is Fate.CLUSTER:
            assert isinstance(decide(run.candidates, run.attempts[: at + 1], budget=99), GiveUp)
            assert all(at >= len(known) for _, known in run.tries())


@many
@given(runs())
def test_every_candidate_that_may_work_gets_a_start(run: Played) -> None:
    starts = [attempt for attempt in run.attempts if is_start(attempt)]
    if isinstance(run.verdicts[-1], GiveUp) and run.verdicts[-1].because.startswith("all "):
        started = {attempt.candidate.name for attempt in starts}
        assert all(one.name in started or is_hopeless(one, run.attempts) for one in run.candidates)


# --- examples, to be read as documentation ---

A, B = candidate("a"), candidate("b")
GLOO = Setting("env", "GLOO_SOCKET_IFNAME", "eth0", "n2")


def given_(*attempts: tuple[Candidate, Finding], budget: int = 12, of: Sequence[Candidate] = (A, B)) -> Verdict:
    return decide(of, [Attempt(*attempt) for attempt in attempts], budget=budget)


def test_the_first_candidate_is_tried_first() -> None:
    assert given_() == Try(A, "not looked into before the start")


def test_a_probe_that_says_no_saves_the_start() -> None:
    no, yes = finding(Fate.HOPELESS, Step.PROBE), finding(Fate.OK, Step.PROBE)
    assert given_((A, no), (B, yes)) == Try(B, "it was ok")


def test_a_probe_that_can_not_tell_costs_a_start_and_says_so() -> None:
    verdict = given_((A, finding(Fate.UNKNOWN, Step.PROBE)))
    assert verdict == Try(A, "could not be told before the start: it was unknown")


def test_one_change_is_made_at_a_time() -> None:
    verdict = given_((A, finding(Fate.ADJUST, change=GLOO)))
    assert verdict == Try(A.changed(GLOO), "one change: GLOO_SOCKET_IFNAME=eth0 on n2")


def test_a_change_that_did_not_help_is_not_made_twice() -> None:
    again = finding(Fate.ADJUST, change=GLOO)
    assert given_((A, again), (A.changed(GLOO), again)) == Try(B, "not looked into before the start")


def test_a_change_that_was_overridden_is_not_made_again() -> None:
    there, back = Setting("env", "X", "1"), Setting("env", "X", "2")
    once, twice = A.changed(there), A.changed(there).changed(back)
    asked = [(A, finding(Fate.ADJUST, change=there)), (once, finding(Fate.ADJUST, change=back))]
    assert given_(*asked) == Try(twice, "one change: X=2")
    assert given_(*asked, (twice, asked[0][1])) == Try(B, "not looked into before the start")


def test_what_the_probe_condemned_is_not_repaired_when_it_was_left_running() -> None:
    no, wrong = finding(Fate.HOPELESS, Step.PROBE), finding(Fate.ADJUST, change=GLOO)
    assert given_((A, no), (A, wrong)) == Try(B, "not looked into before the start")


def test_a_transient_failure_gets_one_more_start() -> None:
    flaky = finding(Fate.AGAIN)
    assert given_((A, flaky)) == Try(A, "once more: it was again")
    assert given_((A, flaky), (A, flaky)) == Try(B, "not looked into before the start")


def test_a_setting_that_is_hopeless_leaves_the_artefact_to_others() -> None:
    sibling = candidate("sibling", A.artefact.ref)
    narrow = finding(Fate.HOPELESS, scope="candidate")
    assert given_((A, narrow), of=[A, sibling]) == Try(sibling, "not looked into before the start")
    assert given_((A, finding(Fate.HOPELESS)), of=[A, sibling]) == GiveUp("all 2 candidates failed, 2 of them for good")


def test_good_steps_before_the_answer_are_no_answer() -> None:
    up = finding(Fate.OK, Step.WATCH)
    assert given_((A, up)) == Try(B, "not looked into before the start")
    assert given_((A, finding(Fate.OK, Step.VERIFY))) == Serve(A, "it was ok")


def test_a_cluster_that_can_not_is_told_to_the_person() -> None:
    assert given_((A, finding(Fate.CLUSTER))) == GiveUp("no candidate can: it was cluster")


def test_the_budget_is_kept_even_for_a_repair() -> None:
    assert given_((A, finding(Fate.ADJUST, change=GLOO)), budget=1) == GiveUp("the budget of 1 starts is spent")


def test_without_candidates_it_says_so() -> None:
    assert given_(of=[]) == GiveUp("there is no candidate")


# --- the loop itself, over stages in memory ---


@dataclass
class Rehearsal:
    """Stages that look findings up in a script and remember what was called."""

    script: Callable[[str, Candidate], Finding]
    candidates: Sequence[Candidate] = (A, B)
    budget: int = 12
    left_running: Candidate | None = None
    called: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)

    def note(self, kind: str, **data: object) -> None:
        self.noted.append(kind)

    async def assess(self) -> list[Attempt]:
        return [Attempt(one, finding(Fate.OK, Step.PROBE)) for one in self.candidates]

    async def adopt(self) -> Candidate | None:
        return self.left_running

    @property
    def way(self) -> list[Any]:
        return [self.stage(name) for name in ("preflight", "distribute", "launch", "watch", "verify")]

    def stage(self, name: str) -> Any:
        async def run(one: Candidate) -> Finding:
            self.called.append(f"{name} {one.name}")
            return self.script(name, one)

        return run

    async def clear_away(self, candidate: Candidate) -> None:
        self.called.append(f"clear away {candidate.name}")


def all_well(name: str, one: Candidate) -> Finding:
    return finding(Fate.OK, Step(name))


def wrong_answers_from(*names: str) -> Callable[[str, Candidate], Finding]:
    return lambda stage, one: finding(
        Fate.HOPELESS if (stage, one.name) in {("verify", name) for name in names} else Fate.OK, Step(stage)
    )


def test_the_stages_come_in_order_and_what_serves_is_left_running() -> None:
    stages = Rehearsal(all_well)
    verdict, _ = asyncio.run(pivot(stages))
    assert verdict == Serve(A, "it was ok")
    assert stages.called == ["preflight a", "distribute a", "launch a", "watch a", "verify a"]
    assert stages.noted == ["try"] + ["finding"] * 5


def test_every_attempt_that_fails_is_cleared_away_before_the_next() -> None:
    stages = Rehearsal(wrong_answers_from("a", "b"))
    verdict, attempts = asyncio.run(pivot(stages))
    assert isinstance(verdict, GiveUp)
    assert [one for one in stages.called if "verify" in one or "clear" in one] == [
        "verify a",
        "clear away a",
        "verify b",
        "clear away b",
    ]
    assert [attempt.candidate.name for attempt in attempts if is_start(attempt)] == ["a", "b"]


@pytest.mark.parametrize("at", ["preflight", "distribute", "launch", "watch", "verify"])
def test_the_first_bad_finding_ends_the_attempt(at: str) -> None:
    stages = Rehearsal(lambda name, one: finding(Fate.UNKNOWN if name == at else Fate.OK, Step(name)), candidates=[A])
    asyncio.run(pivot(stages))
    assert stages.called[-2:] == [f"{at} a", "clear away a"]


def test_what_runs_already_is_watched_and_verified_not_started() -> None:
    stages = Rehearsal(all_well, left_running=B)
    verdict, _ = asyncio.run(pivot(stages))
    assert verdict == Serve(B, "it was ok")
    assert stages.called == ["watch b", "verify b"]
    assert "try" not in stages.noted


def test_what_runs_already_and_answers_wrong_is_cleared_away() -> None:
    stages = Rehearsal(wrong_answers_from("b"), left_running=B)
    verdict, _ = asyncio.run(pivot(stages))
    assert stages.called[:3] == ["watch b", "verify b", "clear away b"]
    assert verdict == Serve(A, "it was ok")
