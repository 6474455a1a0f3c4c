"""Logs of all ranks judged together: first error, consequences, clocks, silence; real ones and made ones."""

from __future__ import annotations

import re

import pytest

from bascule.watch.catalogue import When
from bascule.watch.conditions import holds
from bascule.watch.judge import judge
from bascule.watch.samples import Socket
from watch.real_logs import HEALTHY
from watch_catalogue.logs_of import HERE, LOGS, diagnosis, found, told


def real(name: str) -> str:
    path = LOGS / f"{name}.log" if "/" in name else HERE / f"{name}.log"
    return path.read_bytes().decode().removesuffix("\n")


REAL = [  # logs of one start -> failure, class, rank and line of the primary, its phase, consequences
    (
        "vllm/vllm-0.32-gloo-eth9.r0 vllm/vllm-0.32-gloo-eth9.r1",
        "gloo-interface-missing crash",
        1,
        "RuntimeError: [enforce fail at",
        1,
    ),
    ("shared/vllm-0.24-fp8-block.r0 shared/vllm-0.24-fp8-block.r1", "fp8-block-tp crash", 0, "ValueError: Weight", 3),
    ("shared/vllm-0.32-unknown-architecture", "architecture-unsupported crash", 0, "Value error, Model arch", 0),
    ("shared/vllm-0.32-unknown-type", "model-type-unknown crash", 0, "Error parsing config for", 0),
    ("shared/vllm-0.16-unknown-type", "model-type-unknown crash", 0, "Value error, The checkpoint", 0),
    ("shared/vllm-0.32-port-taken", "api-port-taken crash", 0, "OSError: [Errno 98]", 0),
    ("shared/vllm-0.32-alone.r0", "clients-missing hang-then-crash", 0, "torch.distributed.DistStoreError", 3),
    ("shared/vllm-0.32-pp2-layouts.r0", "kv-layouts-differ crash", 0, "AssertionError: Workers disagree", None),
    ("shared/vllm-0.32-cable-cut.r0 shared/vllm-0.32-cable-cut.r1", "rpc-timeout hang-then-crash", 0, "TimeoutErr", 2),
    ("llamacpp/llamacpp-cut-gguf", "model-not-loaded crash", 0, "llama_model_load: error loading model", 1),
    ("llamacpp/llamacpp-port-taken", "api-port-taken crash", 0, "srv", 1),
    ("head-missing.r1", "tcpstore-client-timeout crash", 0, "[c10d] The client socket has timed out", 1),
    ("link-cut.r0 link-cut.r1", "gloo-1800s hang-then-crash", 0, "Error ignored in is_in_the_same_node", 4),
    ("peer-killed.r0 peer-killed.r1", "peer-gone cascade", 0, "RuntimeError: [/__w/pytorch", 4),
    ("slow-and-stopped.r0 slow-and-stopped.r1", "stopped-from-outside stopped", 1, "[shutdown] Executor", 0),
    ("shared/sglang-0.5.15-hang.r0 shared/sglang-0.5.15-hang.r1", "sglang-zmq-wrong-ip hang?", 0, "Message queue", 0),
    ("slow-and-stopped.r0", "None hang?", 0, "NCCL INFO Connected all rings", 0),
]


@pytest.mark.parametrize(("logs", "named", "rank", "begins", "cascades"), REAL, ids=[row[0] for row in REAL])
def test_a_real_start_that_failed(logs: str, named: str, rank: int, begins: str, cascades: int | None) -> None:
    texts = [real(name) for name in logs.split()]
    one = diagnosis(*texts)
    assert f"{one.failure.id if one.failure else None} {one.kind}" == named
    assert one.primary and (one.primary.rank, one.primary.text[: len(begins)]) == (rank, begins)
    assert one.primary.text[:60] in texts[rank].split("\n")[one.primary.line - 1]
    assert cascades is None or one.cascades == cascades


PAIRS = [
    "vllm/vllm-0.32-tp2-ok.r0 vllm/vllm-0.32-tp2-ok.r1",
    "shared/vllm-0.24-gpu-ok.r0 shared/vllm-0.24-gpu-ok.r1",
    "shared/sglang-0.5.15-ok.r0 shared/sglang-0.5.15-ok.r1",
    "stopped-after-serving.r0 stopped-after-serving.r1",
]


@pytest.mark.parametrize(
    "logs", [*HEALTHY, *PAIRS, "request-failed", "stopped-after-serving.r0", "llamacpp-recorded", "peer-killed.r1"]
)
def test_a_start_that_became_ready_is_healthy(logs: str) -> None:
    one = diagnosis(*map(real, logs.split()))
    assert (one.kind, one.failure, one.primary, one.remedies) == ("healthy", None, None, ())


def test_a_degraded_success_is_told_beside_it() -> None:
    assert [one.id for one in diagnosis(real("shared/sglang-0.5.15-ok.r0")).degraded] == ["nccl-no-ib-device"]


# --- made ones ---


def vllm(at: str, text: str, process: str = "Worker pid=7", level: str = "INFO") -> str:
    return "\n".join(f"({process}) {level} 01-01 {at} [x.py:1] {line}" for line in text.split("\n"))


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
ODD = "Traceback (most recent call last):\n  File 1\nWidgetError: odd"
DEAD = "EngineDeadError: EngineCore encountered an issue."
BEGIN = vllm("00:00:00", "Launching vLLM (v0.33.0)")


def test_the_first_error_of_all_ranks_wins() -> None:
    early, late = vllm("00:00:10", OOM, level="ERROR"), vllm("00:00:50", ODD, level="ERROR")
    assert found(f"{BEGIN}\n{late}", f"{BEGIN}\n{early}") == ("out-of-memory", "crash")
    early, late = vllm("00:00:10", ODD, level="ERROR"), vllm("00:00:50", OOM, level="ERROR")
    assert found(f"{BEGIN}\n{late}", f"{BEGIN}\n{early}") == (None, "unknown")


def test_where_the_clock_can_not_tell_what_is_known_comes_first() -> None:
    known, odd = vllm("00:00:11", OOM, level="ERROR"), vllm("00:00:10", ODD, level="ERROR")
    assert found(f"{BEGIN}\n{odd}", f"{BEGIN}\n{known}") == ("out-of-memory", "crash")
    assert found(f"{BEGIN}\n{odd}\n{known}") == (None, "unknown"), "in one log the order is certain"


def test_clocks_that_differ_are_set_by_the_rendezvous_or_by_the_first_lines() -> None:
    head = f"{BEGIN}\n{vllm('00:00:30', OOM, level='ERROR')}"
    ahead = "\n".join(
        (vllm("03:00:00", "Launching vLLM (v0.33.0)"), vllm("03:00:10", ODD, level="ERROR"))
    )  # three hours ahead: 10 s after its start
    assert found(head, ahead) == (None, "unknown")
    met = [vllm(at, "rank 0 in world size 2 is assigned as TP rank 0") for at in ("00:01:00", "00:01:40")]
    first = f"{BEGIN}\n{met[0]}\n{vllm('00:01:30', ODD, level='ERROR')}"
    second = f"{BEGIN}\n{met[1]}\n{vllm('00:01:45', OOM, level='ERROR')}"  # 40 s ahead: 5 s after they met
    assert found(first, second) == ("out-of-memory", "crash")


def test_consequences_are_counted_and_never_taken_for_the_cause() -> None:
    one = diagnosis(
        f"{BEGIN}\n{vllm('00:00:05', DEAD, level='ERROR')}", f"{BEGIN}\n{vllm('00:00:09', ODD, level='ERROR')}"
    )
    assert (one.failure, one.kind, one.cascades) == (None, "unknown", 1)
    alone = diagnosis(f"{BEGIN}\n{vllm('00:00:05', DEAD, level='ERROR')}")
    assert alone.failure and (alone.failure.id, alone.kind, alone.cascades) == ("engine-dead", "cascade", 0)
    assert alone.cause.startswith("a consequence, and its cause is not in these logs")


def test_what_is_weak_gives_way_to_what_is_strong_even_if_it_came_first() -> None:
    weak = vllm("00:00:05", "TimeoutError: RPC call to execute_model timed out.", level="ERROR")
    assert found(f"{BEGIN}\n{weak}") == ("rpc-timeout", "hang-then-crash")
    assert found(f"{BEGIN}\n{weak}", f"{BEGIN}\n{vllm('00:09:05', ODD, level='ERROR')}") == (None, "unknown")


READY = "INFO:     Application startup complete."


def test_an_error_that_the_start_outlived_is_none() -> None:
    odd, known = vllm("00:00:10", ODD, level="ERROR"), vllm("00:00:10", OOM, level="ERROR")
    for error in (odd, known):
        assert found(f"{BEGIN}\n{error}\n{READY}") == (None, "healthy")
        assert found(f"{BEGIN}\n{READY}\n{error}")[1] != "healthy"
    went_on = vllm("00:00:20", "Starting to load model /m...")
    assert found(f"{BEGIN}\n{odd}\n{went_on}") == (None, "hang?"), "the same process went on"
    assert found(f"{BEGIN}\n{odd}\n{went_on.replace('pid=7', 'pid=8')}") == (None, "unknown"), "another one did"
    assert found(f"{BEGIN}\n{known}\n{went_on}") == ("out-of-memory", "crash")


def test_an_error_of_another_rank_before_the_head_was_ready_is_none() -> None:
    head = f"{BEGIN}\n{vllm('00:02:00', 'x')}\n{READY}"
    assert found(head, f"{BEGIN}\n{vllm('00:01:00', ODD, level='ERROR')}") == (None, "healthy")
    assert found(head, f"{BEGIN}\n{vllm('00:03:00', ODD, level='ERROR')}") == (None, "unknown")


STOP = vllm("00:05:00", "[shutdown] EngineCore: trigger received signal=SIGTERM")


def test_what_is_said_after_an_ordered_end_is_no_failure() -> None:
    gone = vllm("00:05:01", "RuntimeError: Connection closed by peer [192.0.2.1]:5", level="ERROR")
    assert found(f"{BEGIN}\n{READY}\n{STOP}", f"{BEGIN}\n{gone}") == (None, "healthy")
    assert found(f"{BEGIN}\n{READY}\n{STOP}\n{vllm('00:05:02', ODD, level='ERROR')}") == (None, "healthy")
    assert found(f"{BEGIN}\n{READY}", f"{BEGIN}\n{gone}") == ("peer-gone", "cascade")
    assert found(f"{BEGIN}\n{STOP}") == ("stopped-from-outside", "stopped")


NCCL = "node-a:1:9 [0] misc/new.cc:1 NCCL WARN {}\n" + vllm(
    "00:00:09",
    "Traceback (most recent call last):\n  File 1\nRuntimeError: NCCL error: unhandled system error",
    level="ERROR",
)


def test_of_nccl_the_first_warning_is_the_cause_and_the_exception_a_consequence() -> None:
    assert found(f"{BEGIN}\n{NCCL.format('Call to ibv_create_cq failed with error Cannot allocate memory')}") == (
        "nccl-memlock",
        "crash",
    )
    one = diagnosis(f"{BEGIN}\n{NCCL.format('The flux is not aligned')}")
    assert one.primary and (one.failure, one.primary.line, one.cascades) == (None, 2, 1)


def test_silence_alone_is_never_called_a_hang_for_sure_but_its_length_is_told() -> None:
    begin = "[2026-01-01 00:00:00 TP{}] sglang server_args=1\n[2026-01-01 00:00:01 TP{}] Init torch distributed begin."
    stuck, other = begin.format(0, 0), begin.format(1, 1).replace("00:00:01", "00:00:02")
    assert found(stuck, other) == ("sglang-init-nccl-hang", "hang?")
    later = f"{stuck}\n[2026-01-01 00:09:00 TP1] Waiting still"
    one = diagnosis(stuck, later.replace("TP0", "TP1"))
    assert one.failure and (one.failure.id, one.kind) == ("sglang-init-nccl-hang", "hang?")
    assert "The logs go on for 539 s after it" in one.cause


def test_a_notice_that_repeats_itself_does_not_hide_the_line_before_it() -> None:
    notice = vllm(
        "00:{:02}:00", "No available shared memory broadcast block found in 60 seconds. This typically happens"
    )
    notices = "\n".join(notice.replace("{:02}", f"{minute:02}") for minute in range(1, 12))
    bar = "Tuning mxfp8_gemm:   0%|          | 0/16 [00:00<?, ?it/s]"
    one = diagnosis(f"{BEGIN}\n{bar}\n{notices}", f"{BEGIN}\n{vllm('00:00:02', 'Starting to load model')}")
    assert one.failure and one.primary
    assert (one.failure.id, one.kind, one.proven, one.primary.line) == ("fi-autotune-desync", "hang?", True, 2)
    both = diagnosis(f"{BEGIN}\n{bar}\n{notices}", f"{BEGIN}\n{bar}")
    assert both.failure and both.failure.id == "shm-broadcast-wait", "a bar on both ranks is no desync"
    assert found(f"{BEGIN}\n{notice.replace('{:02}', '01')}") == ("shm-broadcast-wait", "hang?")


def test_an_empty_log_and_no_log_say_nothing() -> None:
    assert found("") == (None, "unknown")
    assert found("", "\n \n") == (None, "unknown")
    assert judge([]).kind == "unknown"


def test_a_year_that_turns_does_not_turn_the_order() -> None:
    before = "INFO 12-31 23:59:50 [x.py:1] vLLM begins\nERROR 12-31 23:59:58 [x.py:1] " + OOM
    after = "INFO 12-31 23:59:50 [x.py:1] vLLM begins\nERROR 01-01 00:00:30 [x.py:1] WidgetError: odd"
    assert found(after, before) == ("out-of-memory", "crash")


# --- other evidence ---

MINE, PEER = told("Tuning x:   0%|", "mine"), told("Load weight begin", "peer")
WEIGHTS, NEVER = re.compile("Load weight begin"), re.compile("never said by anybody")
SYN = {1: (Socket("SYN-SENT", "10.88.2.2:5", "10.88.1.2:42085"),)}


@pytest.mark.parametrize(
    ("when", "sockets", "expected"),
    [
        (When(), None, True),
        (When(none_said=(WEIGHTS,)), None, False),
        (When(none_said=(NEVER,)), None, True),
        (When(all_said=(WEIGHTS,)), None, False),
        (When(peer_lacks=re.compile(r"Tuning \S+:\s+\d+%")), None, True),
        (When(count=3), None, None),
        (When(socket={"state": "SYN-SENT"}), None, None),
        (When(socket={"state": "SYN-SENT"}), SYN, True),
        (When(socket={"state": "SYN-SENT", "remote": "10.77."}), SYN, False),
        (When(count=3, none_said=(WEIGHTS,)), None, False),
    ],
)
def test_other_evidence_is_for_it_or_against_it_or_was_not_looked_at(
    when: When, sockets: dict[int, tuple[Socket, ...]] | None, expected: bool | None
) -> None:
    assert holds(when, MINE, [PEER], sockets) is expected
    assert holds(When(peer_lacks=NEVER), MINE, []) is None, "without a peer nothing can lack"


def test_sockets_prove_the_wrong_address_or_speak_against_it() -> None:
    logs = [told(real(f"shared/sglang-0.5.15-hang.r{rank}"), f"r{rank}") for rank in (0, 1)]
    assert judge(logs).proven is None
    proven = judge(logs, SYN)
    assert proven.failure and (proven.failure.id, proven.proven) == ("sglang-zmq-wrong-ip", True)
    fine = judge(logs, {0: (Socket("ESTABLISHED", "10.77.0.1:1", "10.77.0.2:2"),)})
    assert (fine.failure, fine.kind) == (None, "hang?")
