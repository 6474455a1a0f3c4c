"""The rules about a service that serves, on ranks made of counters: what is trouble, what is doubt, what is idle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.watch.load import Asked, Load, times
from bascule.watch.serving import Served, State, judge
from watch_stall.starts import GPU, MB, sampled

NOW = 600.0
SPINS = {"cpu_s": 1.0}
GPU_SPINS = {**GPU, "gpu_percent": 100}
GPU_WORKS = {**GPU, "gpu_percent": 100, "gpu_watts": 600}
WORKS = {"cpu_s": 1.0, "net_rx_bytes": MB, "net_tx_bytes": MB}


def rank(number, *stretches, now=NOW, **more):
    """A rank that was seen until now, and whose log has been silent."""
    return Served(number, sampled(number, now, *stretches), seen_at=now, **more)


def judged(*ranks, loads=(), asked=None, now=NOW):
    return judge(ranks, loads, asked, now)


def busy_loads(tokens_per_s=0.0, open_=2.0, since=0.0):
    return [Load(at, open_, 1000 + tokens_per_s * at) for at in range(int(since), int(NOW), 5)]


def waiting(one, since):
    """The same with a request at its API that has waited since a time."""
    told = {"requests": 1.0, "request_since": since}
    return replace(one, samples=[replace(s, values={**s.values, **told}) for s in one.samples])


# --- idle, and well ---


@settings(deadline=None)
@given(st.lists(st.sampled_from(["idle", "polls", "works", "gpu"]), min_size=1, max_size=4), st.booleans())
def test_a_service_without_requests_is_never_in_trouble(kinds, told):
    doing = {"idle": {}, "polls": SPINS, "works": WORKS, "gpu": GPU_SPINS}
    ranks = [rank(number, (0, doing[kind])) for number, kind in enumerate(kinds)]
    outlook = judged(*ranks, loads=[Load(NOW, 0.0 if told else None, 5.0)])
    assert (outlook.state, {one.state for one in outlook.ranks}) == (State.SERVING, {State.SERVING})


@pytest.mark.parametrize(
    "moving",
    [
        WORKS,
        {"+memory_bytes": MB, "cpu_s": 1.0},
        {"cpu_s": 1.0, "compilers": 3},
        {"read_bytes": MB},
        {"cpu_s": 0.2},
        {"cpu_s": 0.05, "runnable": 1},
    ],
)
def test_requests_that_wait_while_something_moves_are_no_standstill(moving):
    ranks = rank(0), rank(1, (0, moving))
    assert judged(*ranks, loads=busy_loads()).state is State.SERVING


def test_tokens_that_come_are_progress_whatever_the_counters_say():
    ranks = rank(0, (0, GPU_SPINS)), rank(1, (0, GPU_SPINS))
    assert judged(*ranks, loads=busy_loads(tokens_per_s=0.2)).state is State.SERVING
    assert judged(*ranks, loads=busy_loads()).state is State.SPINNING


def test_a_log_that_says_something_new_is_progress():
    ranks = rank(0, spoke_at=NOW - 30), rank(1)
    assert judged(*ranks, loads=busy_loads()).state is State.SERVING


# --- trouble ---


def test_a_rank_that_ended_is_dead_and_its_busy_peer_spins():
    outlook = judged(rank(0, (0, SPINS)), rank(1, alive=False, ended="with status 1"))
    assert (outlook.state, outlook.rank) == (State.DEAD, 1)
    assert [one.state for one in outlook.ranks] == [State.SPINNING, State.DEAD]
    assert outlook.says.startswith("rank 1: ended with status 1; rank 0: busy while it waits for its peer (CPU 20.0 s")


def test_a_stopped_rank_is_told_after_some_seconds_and_not_at_once():
    seen = {
        now: judged(rank(0, now=now), rank(1, (NOW - 8, {"stopped": 4}), now=now), now=now).state
        for now in (NOW - 10, NOW - 6, NOW)
    }
    assert seen == {NOW - 10: State.SERVING, NOW - 6: State.SERVING, NOW: State.STOPPED}
    ranks = rank(0), rank(1, (NOW - 8, {"stopped": 4}))
    assert judged(*ranks).says == "rank 1: 4 of its 4 processes are stopped by a signal"
    ranks = rank(0), rank(1, (NOW - 8, {"stopped": 4, "paused": 1}))
    assert judged(*ranks).says == "rank 1: its container is paused"


def test_counters_that_are_old_tell_nothing_of_a_stop():
    late = NOW + 60
    one = replace(rank(0, (0, {"stopped": 4})), seen_at=late)
    assert judged(one, now=late).state is State.SERVING


def test_a_node_that_tells_nothing_is_unknown_and_hides_no_dead_peer():
    lost = replace(rank(1), seen_at=NOW - 30)
    outlook = judged(rank(0), lost, loads=busy_loads())
    assert (outlook.state, outlook.rank) == (State.UNKNOWN, 1)
    assert outlook.says == "rank 1: its node has told nothing of it for 30 s"
    assert judged(rank(0, alive=False), lost).state is State.DEAD


@pytest.mark.parametrize("ages", [(59, State.SERVING), (61, State.STANDSTILL)])
def test_requests_that_are_open_while_nothing_moves_are_a_standstill_after_a_minute(ages):
    age, state = ages
    by_metrics = judged(
        rank(0), rank(1), loads=[Load(NOW - age - 60, 0.0, 9.0), Load(NOW - age, 1.0, 9.0), Load(NOW, 1.0, 9.0)]
    )
    by_sockets = judged(waiting(rank(0), NOW - age), rank(1))
    by_question = judged(rank(0), rank(1), asked=Asked(NOW - age))
    assert [one.state for one in (by_metrics, by_sockets, by_question)] == [state] * 3
    assert [one.rank for one in (by_metrics, by_sockets, by_question)] == [None] * 3


def test_a_standstill_needs_the_whole_minute_of_quiet():
    ranks = rank(0, (0, WORKS), (NOW - 50, {})), rank(1)
    assert judged(*ranks, loads=busy_loads()).state is State.SERVING
    ranks = rank(0, (0, WORKS), (NOW - 70, {})), rank(1)
    assert judged(*ranks, loads=busy_loads()).state is State.STANDSTILL


def test_what_can_not_be_read_is_never_a_standstill():
    unread = replace(rank(1), samples=sampled(1, NOW, without=("memory_bytes",)))
    assert judged(rank(0), unread, loads=busy_loads()).state is State.SERVING
    assert judged(rank(0), replace(rank(1), samples=()), loads=busy_loads()).state is State.SERVING


def test_a_gpu_that_works_at_idle_power_spins_and_one_that_draws_power_works():
    idle_first = (0, GPU)
    spins = rank(0, idle_first, (100, GPU_SPINS)), rank(1, idle_first)
    outlook = judged(*spins, loads=busy_loads(since=200))
    assert (outlook.state, outlook.rank) == (State.SPINNING, 0)
    assert "nothing comes of what rank 0 does" in outlook.says
    works = rank(0, idle_first, (100, GPU_WORKS)), rank(1, idle_first)
    assert judged(*works, loads=busy_loads(since=200)).state is State.SERVING


def test_cpu_time_alone_is_a_spin_after_minutes_and_only_with_peers():
    ranks = rank(0, (0, SPINS)), rank(1)
    early, late = busy_loads(since=NOW - times().spin_s + 20), busy_loads(since=NOW - times().spin_s - 20)
    assert judged(*ranks, loads=early).state is State.SERVING
    outlook = judged(*ranks, loads=late)
    assert (outlook.state, outlook.rank) == (State.SPINNING, 0)
    assert judged(rank(0, (0, SPINS)), loads=late).state is State.SERVING, "alone it may well be computing"


def test_two_questions_that_fail_are_trouble_and_one_is_not():
    once = Asked(NOW - 20, NOW - 19, failed="HTTP 500")
    assert judged(rank(0), asked=once).state is State.SERVING
    assert judged(rank(0), asked=once).doubt == "the last question failed"
    outlook = judged(rank(0), asked=replace(once, tries=2))
    assert (outlook.state, outlook.says) == (State.UNANSWERED, "asked for one token: HTTP 500")


def test_a_service_that_can_not_be_asked_is_not_in_trouble():
    outlook = judged(rank(0), asked=Asked(NOW - 20, NOW - 19, refused="HTTP 401", tries=5))
    assert (outlook.state, outlook.doubt) == (State.SERVING, "")


# --- doubt ---


def test_a_busy_rank_that_moves_nothing_else_is_a_doubt_until_a_question_is_answered():
    ranks = rank(0, (0, SPINS)), rank(1)
    assert judged(*ranks).doubt.startswith("rank 0 is busy, and nothing else moves (CPU 20.0 s")
    assert judged(*ranks, asked=Asked(NOW - 5)).doubt == "", "it was asked already"
    assert judged(*ranks, asked=Asked(NOW - 100, NOW - 99)).doubt == ""
    assert judged(*ranks, asked=Asked(NOW - 700, NOW - 601)).doubt != ""
    assert judged(rank(0, (0, WORKS)), rank(1)).doubt == ""


def test_somebody_connected_while_nothing_moves_is_a_doubt():
    assert judged(rank(0, connections=True), rank(1)).doubt.startswith("somebody is connected to the API")
    assert judged(rank(0, connections=True), rank(1, (0, WORKS))).doubt == ""
    assert judged(rank(0), rank(1)).doubt == ""
