"""What a failed start died of, told by real logs: the right name on the right node, and never a wrong one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bascule.core.layout import Place
from bascule.core.machine import NodeFacts, RdmaPort
from bascule.core.nouns import Fate, Finding, Setting, Step
from bascule.watch.catalogue import catalogue
from bascule.watch.diagnose import diagnose, diagnose_silence, weaknesses
from watch.real_logs import BEGAN, HEALTHY, LOGS, PLACES, read, said

NO_RDMA = NodeFacts(rdma=(), infiniband=False)
DIED = "rank 0 on a ended with status 1"
SAMPLES = {  # failure -> logs that end in it
    "gloo-interface-missing": ["vllm/vllm-0.32-gloo-eth9.r1"],
    "fp8-block-tp": ["shared/vllm-0.24-fp8-block.r0", "shared/vllm-0.24-fp8-block.r1"],
    "clients-missing": ["shared/vllm-0.32-alone.r0"],
    "kv-layouts-differ": ["shared/vllm-0.32-pp2-layouts.r0"],
    "rpc-timeout": ["shared/vllm-0.32-cable-cut.r0"],
    "gloo-1800s": ["shared/vllm-0.32-cable-cut.r1"],
    "architecture-unsupported": ["shared/vllm-0.32-unknown-architecture"],
    "model-type-unknown": ["shared/vllm-0.32-unknown-type", "shared/vllm-0.16-unknown-type"],
    "heads-not-divisible": ["shared/vllm-0.32-tp3"],
    "rendezvous-port-taken": ["shared/torch-2.13-rendezvous-port-taken"],
    "api-port-taken": ["shared/vllm-0.32-port-taken", "llamacpp/llamacpp-port-taken"],
    "disk-full": ["shared/python-disk-full"],
    "out-of-memory": ["shared/torch-2.13-out-of-memory-cpu", "shared/torch-out-of-memory-gpu"],
    "model-not-loaded": ["llamacpp/llamacpp-no-model", "llamacpp/llamacpp-cut-gguf"],
    "unknown-flag": ["shared/vllm-0.32-unknown-flag"],
}
PAIRS = [(failure, log) for failure, logs in SAMPLES.items() for log in logs]
SILENT = ["shared/sglang-0.5.15-hang.r0", "shared/sglang-0.5.15-hang.r1", "vllm/vllm-0.32-gloo-eth9.r0"]


@pytest.mark.parametrize("log", [*HEALTHY, *SILENT])
def test_no_failure_is_named_where_nobody_said_one(log: str) -> None:
    finding = diagnose(said(read(log)), DIED, PLACES)
    assert (finding.code, finding.fate) == ("rank-died", Fate.UNKNOWN)
    assert finding.says.startswith(f"{DIED}, without an error line; the last line of rank 0: ")


def test_every_log_here_is_used() -> None:
    used = {*HEALTHY, *SILENT, *(log for _, log in PAIRS)}
    assert {f"shared/{path.stem}" for path in (LOGS / "shared").glob("*.log")} <= used


@pytest.mark.parametrize(("failure", "log"), PAIRS)
def test_a_known_failure_is_named_and_quotes_its_line(failure: str, log: str) -> None:
    rule = next(one for one in catalogue() if one.id == failure)
    finding = diagnose(said(read(log)), DIED, PLACES)
    assert (finding.step, finding.code, finding.fate, finding.scope) == (Step.WATCH, failure, rule.fate, rule.scope)
    assert (finding.evidence[0].node, finding.evidence[0].source) == ("a", "log of rank 0")
    assert rule.signature.search(finding.evidence[0].excerpt)
    assert "{" not in finding.says + finding.advice


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("shared/vllm-0.32-unknown-architecture", "the engine does not support 'Qwen9MoeForCausalLM'"),
        ("shared/vllm-0.16-unknown-type", "its transformers does not know the model type qwen3_5_moe_text"),
        ("shared/vllm-0.32-tp3", "4 attention heads can't be divided over 3 ranks"),
        ("shared/torch-2.13-rendezvous-port-taken", "port 29533 for the rendezvous is taken on a"),
        ("shared/vllm-0.32-unknown-flag", "the engine does not know --no-such-flag 1 --other"),
        ("shared/vllm-0.24-fp8-block.r0", "Block-FP8 checkpoint: a per-rank shard is smaller than the 128-wide scale"),
        (
            "llamacpp/llamacpp-cut-gguf",
            "the engine can't load the model: tensor 'blk.0.ffn_gate_exps.weight' data is not",
        ),
    ],
)
def test_a_known_failure_says_what_it_is_about(log: str, says: str) -> None:
    assert diagnose(said(read(log)), DIED, PLACES).says.startswith(says)


def test_an_unknown_failure_gets_no_name_but_its_first_error_is_quoted() -> None:
    finding = diagnose(said(["INFO one", "ValueError: the moon is full", "RuntimeError: and then this"]), DIED, PLACES)
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "rank-died")
    assert (finding.says, finding.evidence[0].excerpt) == (
        f"{DIED}: ValueError: the moon is full",
        "ValueError: the moon is full",
    )


def test_a_rank_that_dies_without_an_error_quotes_its_last_words() -> None:
    finding = diagnose(said(["INFO one", "INFO two", "", "  "]), DIED, PLACES)
    says = f"{DIED}, without an error line; the last line of rank 0: INFO two"
    assert (finding.code, finding.says, finding.evidence[0].excerpt) == ("rank-died", says, "INFO two")


@pytest.mark.parametrize("lines", [[], ["", " "]])
def test_a_rank_that_dies_without_a_word_has_its_death_as_evidence(lines: list[str]) -> None:
    finding = diagnose(said(lines), DIED, PLACES)
    assert (finding.fate, finding.says, finding.evidence[0].excerpt) == (Fate.UNKNOWN, f"{DIED}, without a word", DIED)


# --- two ranks ---

GLOO = "RuntimeError: [gloo/transport/tcp/device.cc:164] ifa != nullptr. Unable to find address for: eth9"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:41000"
CONSEQUENCES = [
    GONE,
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}",
    "Exception: WorkerProc initialization failed due to an exception in a background process.",
    "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "[2026-01-01 00:00:00] Received sigquit from a child process. It usually means the child failed.",
]
WEAK = [  # they name what happened, but not where something stronger was said
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "ERROR [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
    "TimeoutError: RPC call to execute_model timed out.",
    "RuntimeError: Application timeout caused pair closure",
]


def test_the_first_error_of_all_ranks_wins() -> None:
    first_a, then_b = said([MEMORY], [GLOO])
    for lines in ([first_a, then_b], [then_b, first_a]):
        assert diagnose(lines, DIED, PLACES).code == "out-of-memory"
    first_b, then_a = replace(then_b, at=first_a.at), replace(first_a, at=then_b.at)
    assert diagnose([first_b, then_a], DIED, PLACES).code == "gloo-interface-missing"


@pytest.mark.parametrize("consequence", [*CONSEQUENCES, *WEAK])
def test_a_consequence_is_never_taken_for_the_cause(consequence: str) -> None:
    lines = said([consequence], ["INFO still here", "ValueError: the real cause"])
    finding = diagnose(lines, DIED, PLACES)
    assert (finding.code, finding.says, finding.evidence[0].node) == (
        "rank-died",
        f"{DIED}: ValueError: the real cause",
        "b",
    )
    assert diagnose(said([consequence], [MEMORY]), DIED, PLACES).code == "out-of-memory"


@pytest.mark.parametrize("consequences", [CONSEQUENCES, CONSEQUENCES[::-1]])
def test_consequences_alone_give_no_name(consequences: list[str]) -> None:
    finding = diagnose(said(consequences), DIED, PLACES)
    assert (finding.code, finding.fate) == ("rank-died", Fate.UNKNOWN)
    assert finding.says.startswith(f"{DIED}, and only consequences were said: ")


def test_two_real_ranks_of_which_one_has_a_wrong_interface() -> None:
    lines = said(read("vllm/vllm-0.32-gloo-eth9.r0"), read("vllm/vllm-0.32-gloo-eth9.r1"))
    finding = diagnose(lines, DIED, PLACES)
    assert (finding.fate, finding.code) == (Fate.ADJUST, "gloo-interface-missing")
    assert finding.change == Setting("env", "GLOO_SOCKET_IFNAME", "eth1", "b")
    assert finding.says == "b has no interface eth9, which GLOO_SOCKET_IFNAME names"
    assert finding.evidence[0].source == "log of rank 1"


@pytest.mark.parametrize("places", [(PLACES[0], Place("b", "10.0.0.2", None)), (PLACES[0],)])
def test_a_change_that_is_not_known_is_not_made_up(places: tuple[Place, ...]) -> None:
    finding = diagnose(said([], [GLOO]), DIED, places)
    assert (finding.fate, finding.code, finding.change) == (Fate.UNKNOWN, "gloo-interface-missing", None)


def test_a_long_line_is_cut_and_keeps_its_time() -> None:
    finding: Finding = diagnose(said(["ValueError: " + "x" * 1000]), DIED, PLACES)
    assert (len(finding.evidence[0].excerpt), finding.evidence[0].excerpt[-1]) == (400, "…")
    assert finding.evidence[0].seen_at == BEGAN


@pytest.mark.parametrize(
    "noise",
    [
        "/venv/lib/x.py:13: UserWarning: Failed to load image: ValueError: no",
        "PackageNotFoundError: x (ignored)",
        '    raise ValueError("in the traceback, not the error itself")',
        "    raise TimeoutError",
    ],
)
def test_warnings_and_lines_of_code_are_not_quoted_as_the_error(noise: str) -> None:
    finding = diagnose(said([noise, "KeyError: 'the error itself'"]), DIED, PLACES)
    assert finding.evidence[0].excerpt == "KeyError: 'the error itself'"


def test_a_proven_standstill_has_the_name_that_the_catalogue_has_for_where_it_stopped() -> None:
    lines = [*said(read("shared/sglang-0.5.15-hang.r0")), *said(read("shared/sglang-0.5.15-hang.r1"))]
    finding = diagnose_silence(lines, PLACES)
    assert finding is not None
    assert (finding.code, finding.fate) == ("sglang-zmq-wrong-ip", Fate.ADJUST)
    assert finding.change is not None and finding.change.name == "SGLANG_HOST_IP"


@pytest.mark.parametrize("log", HEALTHY)
def test_a_standstill_that_nobody_knows_has_no_name(log: str) -> None:
    assert diagnose_silence(said(read(log)), PLACES) is None


def test_what_came_up_worse_than_it_could_is_told_and_what_came_up_well_is_not() -> None:
    well = said(read("vllm/vllm-0.32-tp2-ok.r0"))
    assert weaknesses(well) == ()
    line = next(one.samples[0] for one in catalogue() if one.id == "nccl-ib-open-failed")
    worse = [*well[:3], replace(well[3], text=line), *well[3:]]
    assert [one.id for one in weaknesses(worse)] == ["nccl-ib-open-failed"]


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ([NO_RDMA, NO_RDMA], []),
        (
            [NO_RDMA, replace(NO_RDMA, rdma=(RdmaPort("mlx5_0", 1, True, "Ethernet", 100.0, None),))],
            ["nccl-no-ib-device"],
        ),
        ([NO_RDMA, replace(NO_RDMA, infiniband=True)], ["nccl-no-ib-device"]),
        ([NO_RDMA, NodeFacts()], ["nccl-no-ib-device"]),  # not read: not known to lack it
    ],
)
def test_sockets_are_a_weakness_only_where_rdma_may_be(facts: list[NodeFacts], told: list[str]) -> None:
    worse = said([*read("vllm/vllm-0.32-tp2-ok.r0"), "vm:8193:8193 [0] NCCL INFO NET/IB : No device found."])
    lacks = frozenset.intersection(*(one.lacks for one in facts))
    assert [one.id for one in weaknesses(worse, lacks)] == told
