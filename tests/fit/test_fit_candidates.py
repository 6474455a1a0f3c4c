"""A candidate against its nodes before any start: what ends it, what is only told, and what nobody knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace as Namespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core.addresses import Pair
from bascule.core.machine import Gpu, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Evidence, Fate, Finding, Model, Node, Setting, Step
from bascule.discover.hardware import link
from bascule.discover.wishes import asked_of, tokens
from bascule.fits import between, fitness, refusal
from bascule.preflight.addresses import Proven
from bascule.stages import Bound
from fit.fit_cases import GIB, QWEN_122B, QWEN_122B_REFUSED, adder, shape

H200 = Gpu(0, "NVIDIA H200", "sm_90", 143771 * 2**20, 143000 * 2**20)
SPARK = Gpu(0, "NVIDIA GB10", "sm_121")


def machine(name: str, gpu: Gpu | None = H200, memory: int = 120 * GIB, free: int = 110 * GIB) -> Node:
    facts = NodeFacts(gpus=(gpu,) if gpu else (), memory_bytes=memory, memory_free_bytes=free)
    return Node(name, name, facts=facts)


TWO = [machine("a"), machine("b")]
SEEN = (Evidence("a", "x", datetime.now(UTC), "y"),)


def model(config: dict, **more) -> Model:
    return Model("/models/m", (), "", shape=shape(config), **more)


def candidate(*flags: str, engine: str = "vllm", tensor: int = 1) -> Candidate:
    pairs = [text.partition(" ") for text in flags]
    settings = tuple(Setting("flag", name, value) for name, _, value in pairs)
    return Candidate("c", engine, Artefact("venv", "/v"), "/models/m", settings, (), tensor)


def test_a_layout_that_the_engine_would_refuse_ends_the_candidate():
    """Three ranks can't share the adder's heads."""
    nodes = [machine(name, None) for name in "abc"]
    found = fitness(candidate(tensor=3), adder(), nodes, 512, None)
    assert found.refused is not None and found.bound is None
    assert (found.refused.fate, found.refused.code, found.refused.scope) == (
        Fate.HOPELESS,
        "heads-not-divisible",
        "candidate",
    )
    assert found.refused.says.startswith("vllm would refuse tensor parallel 3: ")
    assert found.refused.evidence[0].source.endswith("config.json") and found.refused.advice
    assert fitness(candidate(tensor=2), adder(), nodes[:2], 512, None).refused is None


def test_the_release_that_the_probe_read_decides_how_memory_is_divided():
    """vLLM 0.24 held one recurrent state a sequence, newer ones hold two (its log on an H200: tokens within 0.4 %)."""
    old, new, unknown = (
        fitness(candidate(tensor=2), model(QWEN_122B), TWO, 8192, None, release).fit
        for release in ("0.24.0", "0.32.0", "")
    )
    assert old and new and unknown
    assert old.sequences > new.sequences == unknown.sequences
    nodes, wanted = {node.name: node for node in TWO}, Namespace(context=8192)
    stages = Bound(1, None, nodes, {}, model(QWEN_122B), wanted, (), 1, print, lambda kind, **data: None)
    known = Finding(Step.PROBE, Fate.OK, "architecture-known", "vLLM 0.24.0 knows it", SEEN, release="0.24.0")
    assert stages._fitted(candidate(tensor=2), known) is known
    assert stages.fits["c"].fit == old


def test_the_start_that_failed_on_two_h200_ends_before_it_begins():
    found = fitness(candidate(tensor=2), model(QWEN_122B_REFUSED), TWO, 8192, None)
    assert found.refused is not None and found.refused.code == "fp8-block-indivisible"
    assert "--mm-encoder-tp-mode data" in found.refused.advice
    cured = candidate("--mm-encoder-tp-mode data", tensor=2)
    assert fitness(cured, model(QWEN_122B_REFUSED), TWO, 8192, None).refused is None
    assert fitness(candidate(tensor=2), model(QWEN_122B), TWO, 8192, None).refused is None


def test_a_flag_on_memory_alone_leaves_the_layout_to_be_judged():
    flags = ("--cpu-offload-gb 10",)
    refused = fitness(candidate(*flags, tensor=2), model(QWEN_122B_REFUSED), TWO, None, None).refused
    assert refused is not None and refused.code == "fp8-block-indivisible"
    found = fitness(candidate(*flags, tensor=2), model(QWEN_122B), TWO, None, None)
    assert found.fit is None and found.refused is None
    assert found.unknown == "what --cpu-offload-gb 10 does to memory is not known here"


@pytest.mark.parametrize("size", ["536870912", "512M"])
def test_a_size_of_the_cache_that_is_said_counts_and_not_the_share(size):
    flags = (f"--kv-cache-memory-bytes {size}", "--gpu-memory-utilization 0.9")
    found = fitness(candidate(*flags, tensor=2), model(QWEN_122B), TWO, 4096, None, "0.24.0")
    assert found.fit is not None and (found.fit.tokens, found.unknown) == (16384, "")


@pytest.mark.parametrize("flag", ["--quantization fp8", "--dtype float32", "--hf-overrides {}", "--max-model-len 9x"])
def test_with_a_flag_that_nobody_knows_nothing_is_said(flag):
    found = fitness(candidate(flag, tensor=2), model(QWEN_122B_REFUSED), TWO, None, None)
    assert (found.fit, found.refused) == (None, None) and flag in found.unknown


def test_too_large_is_said_only_beyond_the_slack_of_the_figures():
    """On 120 GiB it does not fit, and that is told; on 96 GiB weights alone are too much, whatever the figures miss."""
    spark = machine("s", SPARK)
    found = fitness(candidate(), model(QWEN_122B, bytes=1, bytes_exact=True), [spark], 8192, None)
    assert found.fit is not None and found.fit.fits is False and found.refused is None
    smaller = machine("s", SPARK, memory=96 * GIB)
    refused = fitness(candidate(), model(QWEN_122B, bytes=1, bytes_exact=True), [smaller], 8192, None).refused
    assert refused is not None
    assert (refused.code, refused.fate, refused.scope) == ("does-not-fit", Fate.HOPELESS, "candidate")
    assert "of the 96.0 GiB on s" in refused.says and "bascule fit" in refused.advice
    estimated = model(QWEN_122B, bytes=1, bytes_exact=False)
    assert fitness(candidate(), estimated, [smaller], 8192, None).refused is None, "within the slack of an estimate"


@pytest.mark.parametrize(("share", "refused"), [(1.09, False), (1.11, True)])
def test_the_slack_itself(share, refused):
    spark = machine("s", SPARK)
    found = fitness(candidate(), model(QWEN_122B), [spark], 8192, None).fit
    assert found is not None
    one = found.nodes[0]
    there = replace(one, total=int((one.weights + one.overhead) / share))
    told = refusal(candidate(), model(QWEN_122B), replace(found, nodes=(there,)), "s", datetime.now(UTC))
    assert bool(told) == refused


def test_what_runs_there_already_does_not_make_it_too_small():
    """It may be this very service, to be adopted."""
    full = [machine(name, replace(H200, memory_free_bytes=2 * GIB)) for name in "ab"]
    idle, busy = (fitness(candidate(tensor=2), model(QWEN_122B), nodes, 8192, None) for nodes in (TWO, full))
    assert idle.fit == busy.fit and idle.fit is not None and idle.fit.fits


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (candidate(engine="llamacpp"), "nobody has looked at how llamacpp uses memory"),
        (candidate(engine="something"), "nobody has looked at how something uses memory"),
    ],
)
def test_an_engine_that_nobody_looked_at(what, says):
    assert fitness(what, model(QWEN_122B), TWO, None, None).unknown == says


def test_a_model_or_memory_that_could_not_be_read_is_no_no():
    blind = Node("a", "a", facts=NodeFacts(unknown={"gpus": "nvidia-smi has failed"}))
    found = fitness(candidate(), model(QWEN_122B), [blind], None, None)
    assert found.refused is None and "nvidia-smi has failed" in found.unknown
    unread = fitness(candidate(), Model("m", (), ""), TWO, None, None)
    assert unread.refused is None and unread.unknown == "no config.json was read"


def proven(*pairs: tuple[float | None, float | None]) -> Proven:
    at = Evidence("a", "x", datetime.now(UTC), "x")
    told = tuple(Pair("a", "b", "10.0.0.2", "reached", round_trip_s=trip, rate=rate) for trip, rate in pairs)
    return Proven(None, told, (Finding(Step.PREFLIGHT, Fate.OK, "addresses-proven", "x", (at,)),))


def test_the_link_is_not_better_than_what_was_measured():
    best = link("sockets")
    assert best is not None and between(TWO[:1], None) is None
    assert between(TWO, None) == best
    slow = between(TWO, proven((0.002, 1e8), (0.001, 2e8)))
    assert slow is not None and (slow.latency_s, slow.rate) == (0.002, 1e8)
    assert between(TWO, proven((1e-9, 1e15))) == best, "the table's best stays the limit"
    assert between(TWO, proven((None, None))) == best
    assert between([replace(node, hcas=("mlx5_0:1",)) for node in TWO], proven((0.002, 1e8))) == link("rdma")


def test_a_slow_link_lowers_the_bound():
    fast, slow = (fitness(candidate(tensor=2), model(QWEN_122B), TWO, 8192, one) for one in (None, proven((0.01, 1e8))))
    assert fast.bound is not None and slow.bound is not None
    assert fast.bound.tok_s is not None and slow.bound.tok_s is not None
    assert slow.bound.tok_s < fast.bound.tok_s / 2


@pytest.mark.parametrize(
    ("text", "count"),
    [("32768", 32768), ("32k", 32000), ("32K", 32768), ("1M", 2**20), ("25.6k", 25600), ("auto", None), ("-1", None)],
)
def test_tokens_as_vllm_takes_them(text, count):
    assert tokens(text) == count
    asked = asked_of(candidate(f"--max-model-len {text}"), 512)
    assert asked is not None and asked.wish.context == count and not asked.beyond


@pytest.mark.parametrize("text", ["", "x", "32 k", "25.6K", "1e5", "-5", "0", "9" * 40, "٣٢", "0x10", "1_000"])
def test_what_is_no_number_of_tokens(text):
    asked = asked_of(candidate(f"--max-model-len {text}"), 512)
    assert asked is not None and asked.beyond == ("--max-model-len",) and asked.wish.context is None


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("--gpu-memory-utilization 0.9", "utilisation", 0.9),
        ("--kv-cache-dtype fp8_e4m3", "number", 1),
        ("--kv-cache-dtype bfloat16", "number", 2),
        ("--kv-cache-dtype auto", "number", None),
        ("--speculative-config {}", "drafts", True),
    ],
)
def test_other_flags(flag, field, value):
    asked = asked_of(candidate(flag), None)
    assert asked is not None and getattr(asked.wish, field) == value and not asked.beyond


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "1.5", "90%", ""])
def test_a_share_that_is_none(value):
    asked = asked_of(candidate(f"--gpu-memory-utilization {value}"), None)
    assert asked is not None and asked.beyond == ("--gpu-memory-utilization",) and asked.wish.utilisation is None


def test_a_flag_that_a_change_took_away_is_not_asked_for():
    made = candidate("--max-model-len 4096", "--enable-expert-parallel")
    made = made.changed(Setting("flag", "--max-model-len", None)).changed(
        Setting("flag", "--enable-expert-parallel", None)
    )
    asked = asked_of(made, 512)
    assert asked is not None and asked.wish.context == 512 and not asked.layout.experts
    with_it = asked_of(candidate("--enable-expert-parallel"), 512)
    assert with_it is not None and with_it.layout.experts


NAMES = st.sampled_from(
    ["--max-model-len", "--gpu-memory-utilization", "--kv-cache-dtype", "--context-length", "--mem-fraction-static"]
)


@settings(max_examples=150, deadline=None)
@given(NAMES, st.text(max_size=12), st.sampled_from(["vllm", "sglang"]))
def test_no_value_of_a_flag_makes_it_fail(name, value, engine):
    found = fitness(candidate(f"{name} {value}", engine=engine, tensor=2), model(QWEN_122B), TWO, 8192, None)
    assert found.fit or found.unknown
