"""What a failed start died of, told by real logs: the right name on the right node, and never a wrong one."""

from __future__ import annotations

import pytest

from bascule.core.layout import Place
from bascule.core.nouns import Fate, Finding, Setting, Step
from bascule.watch.diagnose import catalogue, diagnose
from watch.real_logs import BEGAN, HEALTHY, LOGS, PLACES, read, said

DIED = "rank 0 on a ended with status 1"
SAMPLES = {  # failure -> logs that end in it
    "gloo-interface-missing": ["vllm/vllm-0.32-gloo-eth9.r1"],
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
UNKNOWN = {  # failures without a rule -> the line that tells most
    "shared/vllm-0.24-fp8-block.r0": "ValueError: Weight input_size_per_partition = 576 is not divisible by",
    "shared/vllm-0.24-fp8-block.r1": "ValueError: Weight input_size_per_partition = 576 is not divisible by",
    "shared/vllm-0.32-alone.r0": "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients.",
    "shared/vllm-0.32-pp2-layouts.r0": "AssertionError: Workers disagree on supported KV cache layouts",
    "shared/vllm-0.32-cable-cut.r0": "TimeoutError",
    "shared/vllm-0.32-cable-cut.r1": "unbound_buffer.cc:78] Timed out waiting 60000ms for recv operation to complete",
}


def fired(lines: list[str], *, cascades: bool = False) -> set[str]:
    known = [failure for failure in catalogue() if cascades or not failure.cascade]
    return {failure.id for failure in known for line in lines if failure.signature.search(line)}


def test_every_known_failure_has_a_real_log() -> None:
    assert set(SAMPLES) == {failure.id for failure in catalogue() if not failure.cascade}
    assert all(failure.source and failure.says for failure in catalogue())


@pytest.mark.parametrize(("failure", "log"), PAIRS)
def test_a_failure_is_known_by_its_own_log_and_by_no_other(failure: str, log: str) -> None:
    assert fired(read(log)) == {failure}


@pytest.mark.parametrize("log", [*HEALTHY, *UNKNOWN, "shared/healthy-lines.txt", "shared/sglang-0.5.15-hang.r0"])
def test_no_rule_fires_on_a_log_that_it_is_not_about(log: str) -> None:
    assert fired(read(log)) == set()


def test_healthy_lines_are_not_even_consequences() -> None:
    assert fired(read("shared/healthy-lines.txt"), cascades=True) == set()
    assert fired(read("shared/vllm-0.24-gpu-ok.r1"), cascades=True) == {"peer-gone"}, "it was shut down at the end"


def test_every_log_here_is_used() -> None:
    used = {*HEALTHY, *UNKNOWN, *(log for _, log in PAIRS)}
    shared = {f"shared/{path.stem}" for path in (LOGS / "shared").glob("*.log")}
    assert shared - used == {"shared/sglang-0.5.15-hang.r0", "shared/sglang-0.5.15-hang.r1"}


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
        ("llamacpp/llamacpp-cut-gguf", "the engine can't load /models/cut.gguf"),
    ],
)
def test_a_known_failure_says_what_it_is_about(log: str, says: str) -> None:
    assert diagnose(said(read(log)), DIED, PLACES).says == says


@pytest.mark.parametrize(("log", "words"), UNKNOWN.items())
def test_an_unknown_failure_gets_no_name_but_its_first_error_is_quoted(log: str, words: str) -> None:
    finding = diagnose(said(read(log)), DIED, PLACES)
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "rank-died")
    assert finding.says.startswith(f"{DIED}: ")
    assert words in finding.evidence[0].excerpt


def test_a_rank_that_dies_without_an_error_quotes_its_last_words() -> None:
    finding = diagnose(said(["INFO one", "INFO two", "", "  "]), DIED, PLACES)
    assert (finding.code, finding.says, finding.evidence[0].excerpt) == ("rank-died", f"{DIED}: INFO two", "INFO two")


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
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "ERROR [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
    "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "TimeoutError: RPC call to execute_model timed out.",
]


def test_the_first_error_of_all_ranks_wins() -> None:
    first_a, then_b = said([MEMORY], [GLOO])
    assert diagnose([first_a, then_b], DIED, PLACES).code == "out-of-memory"
    assert diagnose([then_b, first_a], DIED, PLACES).code == "gloo-interface-missing"


@pytest.mark.parametrize("consequence", CONSEQUENCES)
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
