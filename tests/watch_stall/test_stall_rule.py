"""The rule about stalls on starts made of counters: a true stall within a minute, a slow start never."""

from __future__ import annotations

import pytest

from bascule.watch.budgets import Facts, loading_s, quiet_s, within_s
from bascule.watch.samples import Sample
from bascule.watch.standing import Verdict
from watch_stall.starts import GPU, MB, judged, sampled, stands

STOPPED = 100.0  # when things stop in these starts
MINUTE = STOPPED + 60


def first_stall(ranks, until=180.0, every=2.0):
    """The first time at which a start is called stalled or spinning."""
    times = [at * every for at in range(int(until / every))]
    return next((at for at in times if judged(at, ranks).verdict in ("STALLED", "SPINNING")), None)


# --- true stalls ---


@pytest.mark.parametrize("phase", ["rendezvous", "collective", "queue", "joined", "weights", "loaded", "profile"])
def test_a_full_stop_is_a_stall_within_a_minute_and_not_before_its_time(phase):
    ranks = {rank: (sampled(rank, 400), stands(phase, STOPPED)) for rank in (0, 1)}
    at = first_stall(ranks)
    assert at is not None
    assert STOPPED + 50 <= at <= MINUTE
    judgement = judged(at, ranks)
    assert (judgement.verdict, judgement.phase, judgement.moving) == (Verdict.STALLED, phase, ())
    assert judgement.rank is None, "both wait alike: neither is named"
    assert 50 <= judgement.since_s <= 60
    assert judgement.next_step == stands(phase, 0).next_step
    assert "CPU 0.8 s, disk reads +0 B" in judgement.says
    assert "rank 0" in judgement.says
    assert "rank 1" in judgement.says


def test_a_stall_is_counted_from_the_last_counter_that_moved_and_not_from_the_last_line():
    loading = (0.0, {"read_bytes": 50 * MB, "+memory_bytes": 50 * MB, "cpu_s": 0.5}), (STOPPED, {})
    ranks = {rank: (sampled(rank, 400, *loading), stands("weights", 10)) for rank in (0, 1)}
    at = first_stall(ranks)
    assert at is not None
    assert STOPPED + 48 <= at <= MINUTE
    assert judged(at, ranks).since_s == pytest.approx(at - STOPPED, abs=12)


def test_a_rank_that_stops_before_the_rendezvous_is_stalled_whatever_its_peer_does():
    ranks = {
        0: (sampled(0, 400, (0, {"cpu_s": 1.0, "+memory_bytes": MB})), stands("config", 20, 155)),
        1: (sampled(1, 400), stands("import", 0, STOPPED)),
    }
    judgement = judged(MINUTE, ranks)
    assert (judgement.verdict, judgement.rank, judgement.phase) == (Verdict.STALLED, 1, "import")


def test_a_rank_that_is_alone_behind_is_named():
    ranks = {0: (sampled(0, 400), stands("loaded", STOPPED)), 1: (sampled(1, 400), stands("weights", STOPPED))}
    assert (judged(MINUTE, ranks).verdict, judged(MINUTE, ranks).rank) == (Verdict.STALLED, 1)


def test_a_rank_whose_log_says_less_is_not_taken_for_one_behind():
    ranks = {0: (sampled(0, 400), stands("queue", STOPPED)), 1: (sampled(1, 400), stands("rendezvous", STOPPED))}
    assert (judged(MINUTE, ranks).verdict, judged(MINUTE, ranks).rank) == (Verdict.STALLED, None)


def test_a_head_in_its_last_steps_is_named_though_its_peer_never_says_them():
    ranks = {0: (sampled(0, 400), stands("http", STOPPED)), 1: (sampled(1, 400), stands("profile", 40))}
    assert (judged(MINUTE, ranks).verdict, judged(MINUTE, ranks).rank) == (Verdict.STALLED, 0)


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({"stopped": 3}, "3 processes are stopped by a signal"),
        ({"stopped": 3, "paused": 1}, "its container is paused"),
    ],
)
def test_a_rank_that_was_stopped_is_named(seen, says):
    ranks = {
        0: (sampled(0, 400), stands("loaded", STOPPED)),
        1: (sampled(1, 400, (0, seen)), stands("loaded", STOPPED)),
    }
    judgement = judged(MINUTE, ranks)
    assert (judgement.verdict, judgement.rank) == (Verdict.STALLED, 1)
    assert says in judgement.says


def test_a_rank_that_never_came_is_told_as_such_within_a_minute():
    ranks = {0: (sampled(0, 400), stands("rendezvous", STOPPED)), 1: ([], None)}
    assert judged(STOPPED + 40, ranks).verdict is Verdict.PROGRESSING
    judgement = judged(MINUTE, ranks)
    assert (judgement.verdict, judgement.rank, judgement.phase) == (Verdict.STALLED, 1, "rendezvous")
    assert judgement.says.startswith("rank 1 never joined: nothing was ever seen of it; rank 0 is in rendezvous")


def test_a_rank_that_ended_is_dead_at_once():
    ranks = {rank: (sampled(rank, 400), stands("queue", STOPPED)) for rank in (0, 1)}
    judgement = judged(STOPPED + 2, ranks, r1=False)
    assert (judgement.verdict, judgement.rank, judgement.phase) == (Verdict.DEAD, 1, "queue")


def test_notices_of_a_dead_start_do_not_keep_it_alive():
    log = (0, {"log_bytes": 300.0})
    ranks = {rank: (sampled(rank, 400, log), stands("loaded", STOPPED)) for rank in (0, 1)}
    late = {rank: (samples, stands("loaded", STOPPED)) for rank, (samples, _) in ranks.items()}
    chatty = {
        rank: (samples, type(one)(**{**_fields(one), "last_line_at": MINUTE - 5}))
        for rank, (samples, one) in late.items()
    }
    assert judged(MINUTE, chatty).verdict is Verdict.STALLED


def _fields(one):
    return {name: getattr(one, name) for name in type(one).__dataclass_fields__}


# --- spinning ---


@pytest.mark.parametrize("busy", [{"cpu_s": 1.0}, {"gpu_percent": 98, "gpu_watts": 18, "gpu_bytes": 4e8}])
def test_a_rank_that_is_busy_while_it_waits_spins(busy):
    idle = {"gpu_watts": 12.0, "gpu_percent": 0.0, "gpu_bytes": 4e8} if "gpu_watts" in busy else {}
    ranks = {
        0: (sampled(0, 400, (0, idle)), stands("queue", STOPPED)),
        1: (sampled(1, 400, (0, idle), (STOPPED, busy)), stands("queue", STOPPED)),
    }
    judgement = judged(MINUTE, ranks)
    assert (judgement.verdict, judgement.rank) == (Verdict.SPINNING, 1)
    assert "busy, and nothing comes of it" in judgement.says


def test_cpu_time_alone_is_work_for_as_long_as_the_phase_may_compute_and_spinning_after_that():
    ranks = {0: (sampled(0, 900, (0, {"cpu_s": 1.0})), stands("import", 0))}
    assert judged(100, ranks).verdict is Verdict.SLOW
    assert judged(100, ranks).says == "rank 0: import: CPU 50.0 s, no new lines for 100 s"
    assert (judged(124, ranks).verdict, judged(124, ranks).rank) == (Verdict.SPINNING, 0)
    loaded = {0: (sampled(0, 900, (0, {"cpu_s": 1.0})), stands("loaded", 0))}
    assert judged(590, loaded).verdict is Verdict.SLOW
    assert judged(604, loaded).verdict is Verdict.SPINNING


@pytest.mark.parametrize(
    ("more", "without"),
    [
        ({"+memory_bytes": 0.1 * MB}, ()),
        ({"compilers": 1}, ()),
        ({"+cache_bytes": 1e3}, ()),
        ({"read_bytes": 0.1 * MB}, ()),
        ({"gpu_watts": 300, "gpu_percent": 99}, ()),
        ({}, ("compilers",)),
        ({}, ("memory_bytes",)),
    ],
)
def test_work_that_shows_anywhere_or_that_can_not_be_excluded_is_no_spin(more, without):
    samples = sampled(0, 900, (0, {"cpu_s": 1.0, "gpu_watts": 60}), (10, {"cpu_s": 1.0, **more}), without=without)
    assert judged(880, {0: (samples, stands("loaded", 0))}).verdict is Verdict.SLOW


# --- slow starts ---

SLOW = {
    "weights at 1 MB/s": ("weights", {"read_bytes": MB, "+memory_bytes": MB, "cpu_s": 0.01}),
    "weights over NFS at 1 MB/s": ("weights", {"net_rx_bytes": MB, "cpu_s": 0.02}),
    "one compiler on one core": ("compile", {"cpu_s": 0.9, "compilers": 1}),
    "JIT, shared core": ("warm-up", {"cpu_s": 0.2, "compilers": 7, "+cache_bytes": 2e4}),
    "tuning on a GPU": ("warm-up", {"gpu_watts": 240, "gpu_percent": 99, "cpu_s": 0.05}),
    "repacking": ("loaded", {"cpu_s": 1.0, "+memory_bytes": 0.05 * MB}),
    "importing from a slow disk": ("import", {"read_bytes": 0.2 * MB, "cpu_s": 0.03}),
}


@pytest.mark.parametrize(("phase", "moves"), SLOW.values(), ids=SLOW)
def test_a_slow_start_is_never_stalled(phase, moves):
    idle = {"gpu_watts": 60} if "gpu_watts" in moves else {}
    samples = [sampled(rank, 1300, (0, idle), (10, {**idle, **moves})) for rank in (0, 1)]
    ranks = {rank: (one, stands(phase, 10)) for rank, one in enumerate(samples)}
    assert first_stall(ranks, until=1300, every=26) is None
    judgement = judged(1200, ranks)
    assert judgement.verdict is Verdict.SLOW
    assert judgement.moving
    assert "no new lines for 1190 s" in judgement.says


def test_a_rank_that_waits_for_one_that_moves_is_not_stalled():
    ranks = {
        0: (sampled(0, 1300), stands("rendezvous", 30)),
        1: (sampled(1, 1300, (0, {"cpu_s": 0.5, "read_bytes": MB, "+memory_bytes": MB})), stands("import", 0)),
    }
    assert first_stall(ranks, until=110) is None
    judgement = judged(110, ranks)
    assert (judgement.verdict, judgement.rank, judgement.phase) == (Verdict.SLOW, 1, "import")
    assert judgement.says.endswith("; rank 0 waits")


def test_what_compiles_is_told_with_its_figures():
    samples = sampled(0, 200, (0, {"cpu_s": 4.0, "+cache_bytes": 0.5 * MB, "compilers": 7}))
    named = [Sample(one.rank, one.at, one.values, (), ("cicc", "nvcc", "python3")) for one in samples]
    judgement = judged(194, {0: (named, stands("compile", 100))})
    assert judgement.moving == ("7 cicc, nvcc", "CPU 200.0 s", "caches +25.0 MB")
    assert judgement.says == "rank 0: compile: 7 cicc, nvcc, caches +25.0 MB, no new lines for 94 s"


def test_a_bar_is_told_while_lines_come():
    samples, progress = sampled(0, 200), stands("weights", 100, 190)
    half = type(progress)(**{**_fields(progress), "fraction": 0.4})
    judgement = judged(194, {0: (samples, half)})
    assert (judgement.verdict, judgement.says) == (Verdict.PROGRESSING, "rank 0: weights 40 %")


def test_dots_that_are_drawn_one_by_one_are_progress():
    samples = sampled(0, 300, (0, {"log_bytes": 0.5}))
    assert judged(200, {0: (samples, stands("weights", 10, engine="llamacpp"))}).verdict is Verdict.PROGRESSING


def test_a_quiet_service_is_ready_and_not_stalled():
    ranks = {0: (sampled(0, 900), stands("ready", 10)), 1: (sampled(1, 900), stands("profile", 10))}
    assert judged(900, ranks).verdict is Verdict.READY


# --- what is not known ---


@pytest.mark.parametrize("without", [("cpu_s",), ("memory_bytes",), ("read_bytes", "gpu_bytes")])
def test_a_counter_that_could_not_be_read_is_not_taken_for_one_that_stands_still(without):
    ranks = {rank: (sampled(rank, 400, without=without), stands("weights", STOPPED)) for rank in (0, 1)}
    judgement = judged(MINUTE + 100, ranks)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "not read: " in judgement.says
    assert judged(MINUTE, {0: (sampled(0, 400), stands("weights", STOPPED))}).verdict is Verdict.STALLED


def test_a_rank_that_is_not_sampled_any_more_is_not_known_to_be_quiet():
    lost = [sample for sample in sampled(1, 400) if sample.at <= 140]
    ranks = {0: (sampled(0, 400), stands("queue", STOPPED)), 1: (lost, stands("queue", STOPPED))}
    assert (judged(MINUTE, ranks).verdict, judged(MINUTE, ranks).rank) == (Verdict.UNKNOWN, 1)


def test_power_is_measured_against_the_lowest_of_the_whole_start():
    waits = (0, {**GPU, "gpu_watts": 70}), (20, {**GPU, "gpu_watts": 420, "gpu_percent": 100})
    assert judged(200, {0: (sampled(0, 400, *waits), stands("profile", 20))}).verdict is Verdict.SLOW
    near_idle = (0, {**GPU, "gpu_watts": 70}), (20, {**GPU, "gpu_watts": 130, "gpu_percent": 100})
    assert judged(200, {0: (sampled(0, 400, *near_idle), stands("profile", 20))}).verdict is Verdict.SPINNING


# --- budgets ---


def test_budgets_depend_on_facts():
    weights, config = stands("weights", 0).now, stands("config", 0).now
    slow_disk = Facts(bytes_to_load=119e9, disk_rate=0.05e9)
    assert loading_s(slow_disk) == 2380
    assert within_s(weights, slow_disk) == 3 * 2380 + 120
    assert within_s(weights, Facts(bytes_to_load=5e6, disk_rate=1e9)) == weights.within_s
    assert within_s(weights, Facts(bytes_to_load=5e6)) == weights.within_s
    assert within_s(stands("compile", 0).now, Facts(cold_caches=True)) == 2 * stands("compile", 0).now.within_s
    assert within_s(config, Facts(cold_caches=True)) == config.within_s
    assert (quiet_s(weights, Facts()), quiet_s(weights, Facts(network_storage=True))) == (50, 180)
    assert quiet_s(stands("queue", 0).now, Facts(network_storage=True)) == 50
    assert quiet_s(stands("http", 0, engine="sglang").now, Facts()) == 130


def test_storage_that_may_hang_for_a_while_gets_its_time():
    ranks = {0: (sampled(0, 400), stands("weights", STOPPED))}
    facts = Facts(network_storage=True)
    assert judged(STOPPED + 170, ranks, facts).verdict is not Verdict.STALLED
    assert judged(STOPPED + 184, ranks, facts).verdict is Verdict.STALLED


# --- a start that gets no CPU ---


@pytest.mark.parametrize("phase", ["rendezvous", "joined", "loaded", "http"])
def test_a_start_that_is_throttled_is_slow_and_never_stalled(phase):
    """5 % of a core, and nothing else to be seen; a process is runnable at nearly every look."""
    held = (0, {"cpu_s": 0.05, "runnable": 1})
    ranks = {rank: (sampled(rank, 400, held), stands(phase, 10)) for rank in (0, 1)}
    assert first_stall(ranks, until=400) is None
    judgement = judged(300, ranks)
    assert judgement.verdict is Verdict.SLOW
    assert "0.9 processes wait for a CPU" in judgement.says or "1.0 processes wait for a CPU" in judgement.says


def test_a_process_that_runs_now_and_then_waits_for_no_cpu():
    polls = [(at, {"runnable": float(at % 20 == 0)}) for at in range(0, 400, 2)]
    ranks = {rank: (sampled(rank, 400, *polls), stands("loaded", STOPPED)) for rank in (0, 1)}
    assert judged(MINUTE, ranks).verdict is Verdict.STALLED


def test_a_rank_that_spins_on_a_core_of_its_own_waits_for_no_cpu():
    spins = (0, {"cpu_s": 1.0, "runnable": 1})
    ranks = {rank: (sampled(rank, 400, spins), stands("rendezvous", STOPPED)) for rank in (0, 1)}
    assert judged(MINUTE, ranks).verdict is Verdict.SPINNING
