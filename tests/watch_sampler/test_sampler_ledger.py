"""From readings to Samples: counters never fall, and what was not read is not there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bascule.watch.ledger import Dear, Ledger, Moment, cache_folders, enter, is_compiler
from bascule.watch.readings import Process, Reading, parse_gpus, parse_look
from bascule.watch.samples import COUNTERS, GAUGES
from watch_sampler.sampler_parts import recorded


def process(pid=1, own=0, name="python3", *, state="S", children=0, read=0, written=0):
    return Process(pid, 1, state, own, children, 10, read, written, name)


def moment(*processes, at=0.0, rank=0, page=4096, alone=True, dear=None, net=None, rdma=None, cgroup=None):
    reading = Reading((1, 1), processes, cgroup or {}, net or {})
    return Moment(rank, at, reading, page, rdma, alone, dear or Dear())


def run(*moments):
    ledger, samples = Ledger(), []
    for one in moments:
        ledger, sample = enter(ledger, one)
        samples.append(sample)
    return samples


def test_a_process_that_ends_takes_nothing_off_and_what_its_parent_did_since_counts():
    first, second, third = run(
        moment(process(1, 100), process(2, 500)), moment(process(1, 150)), moment(process(1, 170))
    )
    assert [one.values["cpu_s"] for one in (first, second, third)] == [6.0, 6.0, 6.2]


def test_a_child_that_was_waited_for_is_counted_once():
    first, second = run(moment(process(1, 100), process(2, 500)), moment(process(1, 100, children=520)))
    assert (first.values["cpu_s"], second.values["cpu_s"]) == (6.0, 6.2)


def test_a_counter_that_changes_its_source_gains_nothing_by_that():
    first, second, third = run(
        moment(process(1, 100)),
        moment(process(1, 200), cgroup={"cpu": 500_000_000_000}),
        moment(process(1, 200), cgroup={"cpu": 501_000_000_000}),
    )
    assert [one.values["cpu_s"] for one in (first, second, third)] == [1.0, 1.0, 2.0]


@given(st.lists(st.dictionaries(st.integers(1, 4), st.integers(0, 2**63)), min_size=1, max_size=12))
def test_counters_never_fall(looks):
    samples = run(
        *(
            moment(*(process(pid, own, read=own) for pid, own in look.items()), net={"a": (own_of(look), 0)})
            for look in looks
        )
    )
    for name in COUNTERS:
        told = [one.values[name] for one in samples if name in one.values]
        assert told == sorted(told)


def own_of(look):
    return sum(look.values())


def test_values_have_only_the_agreed_names_and_what_was_not_read_has_none():
    look = parse_look(recorded("busybox"))
    (sample,) = run(Moment(0, 0.0, look.ranks[0], look.page, look.rdma, True))
    processes = {"processes", "compilers", "stopped", "runnable"}
    assert set(sample.values) == {"cpu_s", "read_bytes", "written_bytes"} | processes
    full = parse_look(recorded("cgroup2"))
    dear = Dear(parse_gpus(recorded("h200")), 12345, requests=(2, 7.5))
    (sample,) = run(Moment(0, 0.0, full.ranks[0], full.page, full.rdma, True, dear))
    assert set(sample.values) == set(COUNTERS) - {"log_bytes"} | set(GAUGES) - {"paused"}
    assert (sample.values["requests"], sample.values["request_since"]) == (2, 7.5)


def test_unreadable_bytes_of_processes_are_missing():
    (sample,) = run(moment(process(read=None, written=None)))
    assert "read_bytes" not in sample.values
    assert "written_bytes" not in sample.values


def test_memory_is_of_the_pages_that_this_kernel_has():
    look = parse_look(recorded("processes-64k"))
    (sample,) = run(Moment(1, 0.0, look.ranks[1], look.page, None, True))
    assert sample.values["memory_bytes"] == 1000 * 65536
    assert sample.values["processes"] == 1  # the other one has ended


def test_memory_of_gb10_is_that_of_the_rank_on_it_and_never_zero():
    gpus = parse_gpus(recorded("gb10"))
    own, other = run(
        moment(process(114687), dear=Dear(gpus)),
        moment(process(5), dear=Dear(gpus)),
    )
    assert own.values["gpu_bytes"] == 19135 * 1024 * 1024
    assert own.values["gpu_watts"] == 11.17
    assert not {"gpu_bytes", "gpu_percent", "gpu_watts"} & set(other.values)  # computes on no GPU


def test_where_nobody_is_known_to_compute_a_rank_alone_has_all_gpus_and_several_have_none():
    gpus = parse_gpus("=== gpus\ngpu GPU-1, 50, 100.5, 10\ngpu GPU-2, 90, [N/A], 20\n=== took\n=== end\n")
    (alone,) = run(moment(process(), dear=Dear(gpus)))
    assert alone.values["gpu_percent"] == 90
    assert alone.values["gpu_bytes"] == 30 * 1024 * 1024
    assert "gpu_watts" not in alone.values  # of one of them it is not known
    (shared,) = run(moment(process(), dear=Dear(gpus), alone=False))
    assert "gpu_percent" not in shared.values


def test_busiest_are_those_that_used_most_since_the_last_look():
    first, second = run(
        moment(process(1, 1000, "python3"), process(2, 5, "cicc"), process(3, 0, "sleep")),
        moment(process(1, 1001, "python3"), process(2, 90, "cicc"), process(3, 0, "sleep"), process(4, 30, "ptxas")),
    )
    assert first.busiest == ()
    assert second.busiest == ("cicc", "ptxas", "python3")
    assert second.values["compilers"] == 2


def test_stopped_processes_are_counted_and_ended_ones_are_not():
    (sample,) = run(moment(process(1, state="T"), process(2, state="t"), process(3, state="Z"), process(4)))
    assert (sample.values["stopped"], sample.values["processes"]) == (2, 3)


def test_compilers_are_known_with_versions_and_cut_names_and_engines_are_none():
    assert all(map(is_compiler, ("nvcc", "cc1plus", "ninja", "g++-12", "aarch64-linux-g", "clang++-17", "ld")))
    assert not any(map(is_compiler, ("python3", "VLLM::EngineCor", "sglang::schedul", "gccgo-tool", "lda", "node")))


def test_caches_are_where_the_variables_of_the_rank_say():
    env = {"VLLM_CACHE_ROOT": "/x/vllm", "XDG_CACHE_HOME": "/cache/", "FLASHINFER_WORKSPACE_BASE": "/fast"}
    folders = cache_folders(env)
    assert {"/x/vllm", "/cache/sglang", "/fast/.cache/flashinfer", "~/.triton/cache"} <= set(folders)
    assert "~/.cache/vllm" in cache_folders({})


def test_of_a_gpu_that_others_use_as_well_a_rank_has_what_its_own_processes_hold():
    seen = "=== gpus\ngpu GPU-1, 50, 100.5, 3000\napp 7, 1000, GPU-1\n{}=== took\n=== end\n"
    (alone,) = run(moment(process(7), dear=Dear(parse_gpus(seen.format("")))))
    assert alone.values["gpu_bytes"] == 3000 * 1024 * 1024  # with the contexts that no process is charged for
    (shared,) = run(moment(process(7), dear=Dear(parse_gpus(seen.format("app 8, 1500, GPU-1\n")))))
    assert shared.values["gpu_bytes"] == 1000 * 1024 * 1024
    untold = parse_gpus(seen.format("app 8, 1500, GPU-1\n").replace(" 1000,", " [N/A],"))
    (whole,) = run(moment(process(7), dear=Dear(untold)))
    assert whole.values["gpu_bytes"] == 3000 * 1024 * 1024
