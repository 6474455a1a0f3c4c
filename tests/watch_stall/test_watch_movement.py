"""What moved of a rank: figures, noise, and what could not be read."""

from __future__ import annotations

import pytest

from bascule.watch.history import KEPT, History
from bascule.watch.movement import last_moved, movement, size
from bascule.watch.samples import Sample
from bascule.watch.standing import Verdict
from watch_stall.starts import MB, judged, sampled, stands


def moved(samples, began=40, ended=100):
    return {move.name: move.says for move in movement(samples, began, ended).moving}


def test_a_rank_that_waits_moves_nothing_above_noise():
    assert moved(sampled(0, 200)) == {}


@pytest.mark.parametrize(
    ("what", "name", "says"),
    [
        ({"cpu_s": 0.5}, "cpu", "CPU 30.0 s"),
        ({"read_bytes": MB}, "read_bytes", "disk reads +60.0 MB"),
        ({"written_bytes": MB}, "written_bytes", "disk writes +60.0 MB"),
        ({"+memory_bytes": MB}, "memory_bytes", "memory +60.0 MB"),
        ({"+gpu_bytes": MB}, "gpu_bytes", "GPU memory +60.0 MB"),
        ({"net_rx_bytes": MB}, "net_bytes", "network +60.3 MB"),
        ({"net_tx_bytes": MB}, "net_bytes", "network +60.1 MB"),
        ({"rdma_bytes": 20 * MB}, "rdma_bytes", "RDMA +1.2 GB"),
    ],
)
def test_each_counter_is_told_with_its_figure(what, name, says):
    assert moved(sampled(0, 200, (0, what))) == {name: says}


@pytest.mark.parametrize("work", [{"cpu_s": 0.5}, {"written_bytes": MB}])
def test_caches_grow_by_the_work_of_the_rank(work):
    assert moved(sampled(0, 200, (0, {**work, "+cache_bytes": 500})))["cache_bytes"] == "caches +30.0 kB"


def test_caches_that_a_neighbour_fills_are_no_progress_of_a_rank_that_does_nothing():
    """Seen on an H200: a start that stood still beside one that compiled into the same folder."""
    filled = (0, {"+cache_bytes": 2e4})
    assert moved(sampled(0, 200, filled)) == {}
    assert judged(120, {0: (sampled(0, 200, filled), stands("queue", 2))}).verdict is Verdict.STALLED


@pytest.mark.parametrize("unread", ["cpu_s", "written_bytes"])
def test_caches_count_where_it_is_not_known_who_fills_them(unread):
    samples = sampled(0, 200, (0, {"+cache_bytes": 500}), without=(unread,))
    assert moved(samples) == {"cache_bytes": "caches +30.0 kB"}


@pytest.mark.parametrize("name", ["cpu_s", "memory_bytes", "read_bytes", "net_rx_bytes", "gpu_watts", "compilers"])
def test_what_can_not_be_read_is_named_and_not_zero(name):
    seen = movement(sampled(0, 200, (0, {"gpu_watts": 60}), without=(name,)), 40, 100)
    called = {"cpu_s": "cpu", "net_rx_bytes": "net_bytes", "gpu_watts": "gpu"}.get(name, name)
    assert called in seen.unknown
    assert seen.amount(called) is None


def test_a_counter_that_is_read_only_at_one_end_is_not_known():
    early = [s if s.at < 60 else Sample(0, s.at, {"log_bytes": 0}) for s in sampled(0, 200)]
    late = [s if s.at > 60 else Sample(0, s.at, {"log_bytes": 0}) for s in sampled(0, 200)]
    assert movement(early, 40, 100).amount("cpu") is None
    assert movement(late, 40, 100).amount("cpu") is None
    assert movement([], 40, 100).amount("cpu") is None


def test_processes_that_end_take_their_cpu_time_along_and_others_go_on():
    times = [Sample(0, at, {"cpu_s": cpu}) for at, cpu in ((40, 100), (60, 110), (80, 20), (100, 30))]
    assert movement(times, 40, 100).amount("cpu") == pytest.approx(20 / 60)


def test_memory_that_is_only_taken_back_is_no_work():
    gauge = [Sample(0, at, {"memory_bytes": value}) for at, value in ((40, 9e9), (60, 5e9), (80, 4e9), (100, 4e9))]
    assert movement(gauge, 40, 100).moving == ()
    again = [*gauge[:-1], Sample(0, 100, {"memory_bytes": 4.5e9})]
    assert movement(again, 40, 100).amount("memory_bytes") == 0.5e9


def test_when_a_rank_last_moved_is_found():
    samples = sampled(0, 300, (0, {"cpu_s": 1.0}), (100, {}))
    assert last_moved(samples, waits=False) == pytest.approx(100, abs=10)
    assert last_moved(samples, waits=True) is None, "CPU time is no progress of a rank that waits"
    assert last_moved([], waits=False) is None


@pytest.mark.parametrize(("count", "says"), [(0, "+0 B"), (31e6, "+31.0 MB"), (1.5e9, "+1.5 GB"), (-2e3, "-2.0 kB")])
def test_bytes_in_words(count, says):
    assert size(count) == says


def test_of_old_samples_only_the_one_with_the_lowest_power_is_kept():
    history = History()
    for at in range(0, 4000, 2):
        history.add(Sample(0, float(at), {"gpu_watts": 60.0 if at == 100 else 300.0}))
    kept = history.samples
    assert (kept[0].at, kept[1].at, kept[-1].at, len(kept)) == (100, 3098, 3998, 452)


def test_a_clock_that_stands_still_fills_no_memory():
    history = History()
    for _ in range(3 * KEPT):
        history.add(Sample(0, 1.0, {}))
    assert len(history.samples) == KEPT
