"""Laws of the rule about stalls, on starts that hypothesis makes up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.engines.catalogue import ENGINES
from bascule.watch.budgets import Facts
from bascule.watch.noise import noise
from bascule.watch.samples import COUNTERS, GAUGES, Sample
from bascule.watch.standing import Verdict
from watch_stall.starts import MB, judged, sampled, stands

NO_BUDGET = [phase.name for phase in ENGINES["vllm"].lore.phases if phase.quiet_s == 0 and phase.name != "ready"]
WORKING = [phase.name for phase in ENGINES["vllm"].lore.phases if not phase.waits and phase.name != "ready"]
# Per second, just above what noise.toml allows per minute.
REAL = {
    "cpu_s": 0.2,
    "read_bytes": 0.05 * MB,
    "written_bytes": 0.05 * MB,
    "+memory_bytes": 0.1 * MB,
    "+gpu_bytes": 0.4 * MB,
    "net_rx_bytes": 0.2 * MB,
    "rdma_bytes": 0.2 * MB,
}
whole = settings(max_examples=60, deadline=None)


@whole
@given(st.sampled_from(sorted(REAL)), st.sampled_from(WORKING), st.integers(60, 500), st.sampled_from([1, 2]))
def test_a_start_in_which_a_real_counter_moves_is_never_stalled(name, phase, now, ranks):
    moving = (sampled(0, 500, (0, {"gpu_bytes": 0, "gpu_watts": 50}), (4, {name: REAL[name]})), stands(phase, 2))
    others = {rank: (sampled(rank, 500), stands(phase, 2)) for rank in range(1, ranks)}
    phases_met = phase not in ("import", "config")
    verdict = judged(now, {0: moving, **(others if phases_met else {})}).verdict
    assert verdict in (Verdict.PROGRESSING, Verdict.SLOW)


@whole
@given(
    st.lists(st.sampled_from(NO_BUDGET), min_size=1, max_size=3),
    st.floats(20, 200),
    st.floats(0.9, 1.0),
    st.dictionaries(st.sampled_from(sorted(REAL)), st.just(1), max_size=4),
)
def test_a_full_stop_is_always_called_within_a_minute(phases, stopped, luck, moved):
    before = {name: 3 * REAL[name] for name in moved}
    ranks = {
        rank: (sampled(rank, 300, (0, before), (stopped, {})), stands(phase, 2, stopped))
        for rank, phase in enumerate(phases)
    }
    assert judged(stopped + 49 * luck, ranks).verdict is not Verdict.STALLED
    assert judged(stopped + 56, ranks).verdict is Verdict.STALLED


@whole
@given(st.sampled_from(NO_BUDGET), st.integers(0, 100))
def test_a_stall_stays_one_while_nothing_moves_and_grows_older(phase, later):
    ranks = {rank: (sampled(rank, 300), stands(phase, 10)) for rank in (0, 1)}
    first, second = judged(70, ranks), judged(70 + later, ranks)
    assert (first.verdict, second.verdict) == (Verdict.STALLED, Verdict.STALLED)
    assert second.since_s - first.since_s == later


@whole
@given(st.sets(st.sampled_from(COUNTERS + GAUGES)), st.sampled_from(NO_BUDGET))
def test_a_counter_that_is_missing_never_makes_a_stall(missing, phase):
    with_all = {0: (sampled(0, 200), stands(phase, 10))}
    without = {0: (sampled(0, 200, without=tuple(missing)), stands(phase, 10))}
    needed = missing & {"cpu_s", "memory_bytes"} or (phase == "weights" and "read_bytes" in missing)
    assert judged(100, with_all).verdict is Verdict.STALLED
    assert judged(100, without).verdict is (Verdict.UNKNOWN if needed else Verdict.STALLED)


values = st.dictionaries(st.sampled_from(COUNTERS + GAUGES), st.floats(0, 1e15), max_size=16)
anything = st.lists(st.tuples(st.floats(0, 1000), values), max_size=30)


@whole
@given(anything, anything, st.sampled_from(NO_BUDGET), st.floats(0, 2000), st.none() | st.booleans())
def test_whatever_was_sampled_the_verdict_is_one_and_the_same_each_time(first, second, phase, now, alive):
    ranks = {
        rank: ([Sample(rank, at, row) for at, row in sorted(rows, key=lambda one: one[0])], stands(phase, 0))
        for rank, rows in enumerate((first, second))
    }
    judgement = judged(now, ranks, Facts(), **({} if alive is None else {"r1": alive}))
    assert judgement == judged(now, ranks, Facts(), **({} if alive is None else {"r1": alive}))
    assert judgement.verdict in Verdict
    assert judgement.since_s >= 0
    assert judgement.says
    assert (judgement.verdict is Verdict.DEAD) == (alive is False)


def test_the_window_leaves_two_looks_of_a_minute():
    assert noise().quiet_s + 2 * 2 + 5 < 60
