"""What an engine's metrics, the kernel's log and the timers of sockets tell; and a budget's facts from counters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.machine import Address
from bascule.watch.acks import unacknowledged
from bascule.watch.budgets import Facts, learned
from bascule.watch.follow import split_lines
from bascule.watch.kernel import out_of_memory
from bascule.watch.load import Load, parse_metrics, waits_since
from bascule.watch.samples import Sample
from bascule.watch.sockets import Seat
from watch_stall.starts import MB, sampled

# Of vLLM 0.32.0 while it served two requests; shortened.
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="drill"} 1.0
vllm:num_requests_waiting{engine="0",model_name="drill"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="drill",reason="capacity"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="drill"} 1.234e+03
vllm:prompt_tokens_created{engine="0",model_name="drill"} 1.796119774e+09
vllm:generation_tokens_total{engine="0",model_name="drill"} 56.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="drill"} 40.0
vllm:iteration_tokens_total_sum{engine="0",model_name="drill"} 1290.0
"""


def test_metrics_of_vllm_tell_requests_and_work():
    assert parse_metrics(METRICS, "vllm", 7.0) == Load(7.0, 2.0, 1234 + 56 + 1290)


def test_metrics_that_are_none_tell_nothing():
    assert parse_metrics("<html>", "vllm", 1.0) == Load(1.0)
    assert parse_metrics(METRICS, "transformers", 1.0) == Load(1.0)
    assert parse_metrics("", "sglang", 1.0) == Load(1.0)


@given(st.text(max_size=300))
def test_any_text_is_read_as_metrics_without_an_error(text):
    parse_metrics(text + "\n" + METRICS, "vllm", 0.0)


def test_requests_wait_since_the_last_work_was_done():
    assert waits_since([]) is None
    assert waits_since([Load(1, 1, 5), Load(2, 1, 6), Load(3, 1, 6), Load(4, 1, 6)]) == 2
    assert waits_since([Load(1, 0, 5), Load(2, 1, 5), Load(3, 1, 5)]) == 2
    assert waits_since([Load(1, 1, 5), Load(2, 0, 5)]) is None
    assert waits_since([Load(1, 1, None), Load(2, None, 5)]) is None


# As they were seen: `dmesg -T` of Linux 5.10, and the journal of a Debian 12.
KERNEL = """\
== now Tue Dec  1 10:31:00 2026
[Tue Dec  1 09:00:00 2026] Memory cgroup out of memory: Killed process 11 (python3) total-vm:1kB, anon-rss:1kB
[Tue Dec  1 10:30:41 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0
[Tue Dec  1 10:30:41 2026] Memory cgroup out of memory: Killed process 977 (VLLM::Worker_TP) total-vm:41943040kB
[Tue Dec  1 10:30:50 2026] lan1: left promiscuous mode
"""
JOURNAL = """\
== now Tue Dec  1 10:31:00 2026
dmesg: dmesg: read kernel buffer failed: Operation not permitted
Dec 01 10:30:57 spark-2 kernel: Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:300000000kB
"""


OWN_PIDS = "== pids pid:[4026531836]"
OTHER_PIDS = "== pids pid:[4026532771]"


def _with_pids(log, line):
    now, _, rest = log.partition("\n")
    return f"{now}\n{line}\n{rest}"


@pytest.mark.parametrize(("known", "expected"), [({977: "python3"}, [19.0]), ({11: "x", 976: "VLLM::Worker_TP"}, [])])
def test_the_kernel_tells_which_of_a_ranks_processes_it_ended_in_the_last_minute(known, expected):
    said = out_of_memory(_with_pids(KERNEL, OWN_PIDS), known)
    assert [ago for ago, line in said if "Killed process 977" in line] == expected
    assert len(said) == len(expected)


@pytest.mark.parametrize(("known", "expected"), [({4: "VLLM::EngineCor"}, [3.0]), ({4242: "python3"}, []), ({}, [])])
@pytest.mark.parametrize("pids", [OTHER_PIDS, "== pids "])
def test_where_the_kernels_numbers_are_not_ours_names_tell_it(pids, known, expected):
    assert [ago for ago, _ in out_of_memory(_with_pids(JOURNAL, pids), known)] == expected


@pytest.mark.parametrize("text", ["", "dmesg: not permitted", KERNEL.partition("\n")[2], "== now yesterday\n" + KERNEL])
def test_a_kernel_log_without_a_time_tells_nothing(text):
    assert out_of_memory(text, {11: "python3", 977: "VLLM::Worker_TP"}) == []


SEATS = (
    Seat(0, "h1", "10.82.0.1", (Address("fab0", "10.82.0.1", 24), Address("lan0", "10.82.1.1", 24))),
    Seat(1, "h2", "10.82.0.2", (Address("fab0", "10.82.0.2", 24),)),
)
# `ss -tanoi` of iproute2 6.1, between two hosts whose packets were dropped.
TIMERS = """\
State  Recv-Q Send-Q Local Address:Port  Peer Address:Port
ESTAB  0      0         10.82.0.1:22        10.82.1.254:40222 timer:(on,200ms,9)
\t cubic rto:200
ESTAB  0      2048      10.82.0.1:57244     10.82.0.2:45967 timer:(on,26sec,8)
\t cubic wscale:10,10 rto:51456 backoff:8 rtt:0.06/0.03 unacked:1 retrans:0/8 lost:1
ESTAB  0      0  [::ffff:10.82.0.1]:29500 [::ffff:10.82.0.2]:39000 timer:(on,11sec,7)
ESTAB  0      48        10.82.0.1:46097     10.82.0.2:55146 timer:(persist,696ms,7)
ESTAB  0      0         10.82.0.1:57246     10.82.0.2:45969 timer:(on,200ms,1)
ESTAB  0      0         10.82.0.1:57248     10.82.0.2:45971 timer:(keepalive,12sec,9)
SYN-SENT 0    1         10.82.0.1:57250     10.82.0.2:45973 timer:(on,3sec,6)
"""


def test_packets_that_nobody_acknowledges_are_proven_by_timers():
    first, second, third = unacknowledged({"h1": TIMERS, "h2": ""}, SEATS)
    assert (first.node, first.peer, first.remote, first.tries) == ("h1", "h2", "10.82.0.2:45967", 8)
    assert str(second) == "10.82.0.1:29500 has sent the same 7 times to 10.82.0.2:39000 on h2, without an answer"
    assert (third.local, third.tries) == ("10.82.0.1:46097", 7)
    assert unacknowledged({"h1": TIMERS.replace(",8)", ",5)").replace(",7)", ",5)")}, SEATS) == []


def test_lines_end_as_they_are_written_and_a_half_one_is_kept():
    assert split_lines(b"a\r\nb\nc\rd") == [b"a", b"b", b"c", b"d"]
    assert split_lines(b"a\r") == [b"a\r"]
    assert split_lines(b"a\r\n") == [b"a", b""]


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r\n", b"\n", b"\r"]), max_size=12), st.integers(0, 24))
def test_lines_are_the_same_wherever_a_log_is_cut(parts, at):
    log = b"".join(parts)
    *first, rest = split_lines(log[:at])
    assert [*first, *split_lines(rest + log[at:])] == split_lines(log)


def test_the_rate_of_the_disk_is_learned_from_the_slower_rank():
    fast, slow = ((20, {"read_bytes": 300 * MB}), (40, {})), ((20, {"read_bytes": 100 * MB}), (60, {}))
    facts = learned(Facts(), {0: sampled(0, 100, *fast), 1: sampled(1, 100, *slow)})
    assert facts.disk_rate == pytest.approx(100 * MB, rel=0.1)
    assert learned(Facts(), {0: sampled(0, 100, (0, {"read_bytes": 2 * MB}))}).disk_rate is None
    assert learned(Facts(disk_rate=7.0), {0: sampled(0, 100, *fast)}).disk_rate == 7.0


@pytest.mark.parametrize(("first", "cold"), [((0.0, 5e8), True), ((3e8, 5e8), False), ((0.0, None), None)])
def test_caches_are_cold_when_they_were_empty_at_the_beginning(first, cold):
    samples = {
        rank: [Sample(rank, 0.0, {}), Sample(rank, 2.0, {} if size is None else {"cache_bytes": size})]
        for rank, size in enumerate(first)
    }
    assert learned(Facts(), samples).cold_caches is cold
