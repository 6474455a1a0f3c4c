"""The answers of the sampler's commands: recorded ones are understood, broken ones are void as a whole."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.watch import readings
from bascule.watch.readings import (
    Garbled,
    parse_caches,
    parse_gpus,
    parse_look,
    parse_marks,
    parse_roots,
    parse_sockets,
)
from watch_sampler.sampler_parts import recorded

PARSERS = (parse_look, parse_gpus, parse_caches, parse_marks, parse_roots, parse_sockets)
SOCKETS = """=== sockets
socket 1 mine 02 0202580A:9C40 0201580A:A465
socket 1 mine 0A 00000000000000000000000000000000:6D7C 00000000000000000000000000000000:0000
socket 1 mine 01 0000000000000000FFFF000002004D0A:9C42 0000000000000000FFFF000001004D0A:61A8
network 1 mine
network 2 any
=== took
0m0.000000s 0m0.000000s
0m0.010000s 0m0.020000s
=== end
"""


def test_version_2_of_cgroups_tells_cpu_devices_and_memory_of_a_container():
    look = parse_look(recorded("cgroup2"))
    reading = look.ranks[0]
    assert reading.root == (464, 2523)
    assert reading.cgroup == {
        "cpu": 21235523000,
        "read": 1013690368 + 4096,
        "written": 778240,
        "memory": 1480364032,
    }
    assert [one.name for one in reading.processes] == ["python3", "VLLM::EngineCor", "cicc"]
    assert (reading.processes[0].own, reading.processes[1].children) == (1205 + 874, 11)
    assert reading.net == {"enp1s0f0np0": (1000, 2000), "enP7s7": (5, 7)}
    assert look.rdma == (1000 + 500) * 4  # words of 4 bytes
    assert look.page == 4096


def test_version_1_of_cgroups_tells_the_same():
    one, two = (parse_look(recorded(name)).ranks[0].cgroup for name in ("cgroup1", "cgroup2"))
    assert one == {**two, "read": 1013690368}


def test_a_container_without_any_io_has_read_nothing_which_is_not_the_same_as_unknown():
    told = "=== look\ncgroup 0 io - rbytes=0 wbytes=0\ncgroup 1 memory 5\n=== end\n"
    look = parse_look(told)
    assert look.ranks[0].cgroup == {"read": 0, "written": 0}
    assert "read" not in look.ranks[1].cgroup


def test_pages_of_64_kib_names_with_brackets_and_a_rank_that_is_gone_are_understood():
    look = parse_look(recorded("processes-64k"))
    assert look.page == 65536
    assert look.ranks[0].root is None
    assert look.ranks[1].processes[1].name == "a name (with) 1 2"
    assert look.ranks[1].processes[1].read is None
    assert look.ranks[1].net == {"eth0": (2**64 - 1, 3)}


def test_what_a_small_system_does_not_tell_is_missing_and_not_zero():
    look = parse_look(recorded("busybox"))
    assert (look.page, look.rdma) == (None, None)
    assert look.ranks[0].cgroup == {}
    assert look.ranks[0].net == {}


def test_gpus_are_read_where_memory_is_told_and_where_it_is_not():
    h200, gb10 = parse_gpus(recorded("h200")), parse_gpus(recorded("gb10"))
    assert (h200.gpus[0].percent, h200.gpus[0].watts, h200.gpus[0].bytes) == (100.0, 576.98, 2509 * 1024 * 1024)
    assert (gb10.gpus[0].percent, gb10.gpus[0].watts, gb10.gpus[0].bytes) == (96.0, 11.17, None)
    assert [(app.pid, app.bytes) for app in gb10.apps] == [(114687, 19135 * 1024 * 1024), (200, 300 * 1024 * 1024)]
    assert parse_gpus(recorded("without-nvidia-smi")).gpus == ()


def test_sockets_are_read_in_both_families_with_what_their_rank_is_known_by():
    found = parse_sockets(SOCKETS)
    assert found[1].mine
    assert [(one.state, one.local, one.remote) for one in found[1].sockets] == [
        ("SYN-SENT", "10.88.2.2:40000", "10.88.1.2:42085"),
        ("LISTEN", "[::]:28028", ""),
        ("ESTABLISHED", "10.77.0.2:40002", "10.77.0.1:25000"),
    ]
    assert (found[2].mine, found[2].sockets) == (False, ())
    assert readings.taken(SOCKETS) == pytest.approx(0.03)


@pytest.mark.parametrize("name", ["cgroup1", "cgroup2", "processes-64k", "busybox"])
def test_an_answer_that_ends_early_is_void(name):
    whole = recorded(name)
    for at in range(0, len(whole) - 2, 7):
        with pytest.raises(Garbled):
            parse_look(whole[:at])


@pytest.mark.parametrize(
    "line",
    [
        "process 0 1 2 R 1 1 0 0 1 - -",
        "process 0 -1 2 R 1 1 0 0 1 - - x",
        "process 0 1 2 RR 1 1 0 0 1 - - x",
        "process 0 1 2 R 1 1 0 0 999999999999999999999999 - - x",
        "process ٣ 1 2 R 1 1 0 0 1 - - x",
        "net 0 eth0 1",
        "net 0 eth0 1 2 3",
        "cgroup 0 cpu usage_usec",
        "cgroup 0 cpu 1e9",
        "cgroup 0 io 8:0 rbytes=x wbytes=1",
        "cgroup 0 heat 1",
        "cgroup 0 paused THAWED",
        "rank 0 1",
        "rdma /sys/x nan",
        "page KernelPageSize: 4 MB",
        "something else",
        "",
    ],
)
def test_one_broken_line_makes_a_look_void(line):
    with pytest.raises(Garbled):
        parse_look(f"=== look\n{line}\n=== end\n")


def test_gpus_that_do_not_answer_are_none_and_broken_rows_are_void():
    assert parse_gpus("=== gpus\ngpu No devices were found\n=== took\n=== end\n").gpus == ()
    assert parse_gpus(recorded("driver-lost").replace("because it couldn't", "as it can't")).gpus == ()
    with pytest.raises(Garbled):
        parse_gpus("=== gpus\ngpu GPU-1, 5\n=== took\n=== end\n")


@given(st.text(max_size=300), st.sampled_from(PARSERS))
def test_no_answer_ever_gives_anything_but_a_value_or_garbled(text, parser):
    for whole in (text, f"=== {parser.__name__.removeprefix('parse_')}\n{text}\n=== end\n"):
        with contextlib.suppress(Garbled):
            parser(whole)


@settings(max_examples=200)
@given(st.data())
def test_a_recorded_answer_with_broken_bytes_is_void_or_well_formed(data):
    name = data.draw(st.sampled_from(["cgroup1", "cgroup2", "processes-64k"]))
    text = recorded(name)
    at = data.draw(st.integers(0, len(text) - 1))
    broken = text[:at] + data.draw(st.text(max_size=5)) + text[at + data.draw(st.integers(0, 5)) :]
    try:
        look = parse_look(broken)
    except Garbled:
        return
    assert all(one.own >= 0 and len(one.state) == 1 for reading in look.ranks.values() for one in reading.processes)


def test_an_answer_without_end_is_refused_before_it_is_read():
    with pytest.raises(Garbled, match="characters"):
        parse_look("=== look\n" + "x" * readings.LONGEST + "\n=== end\n")
