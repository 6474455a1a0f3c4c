"""Which layouts are refused before a start, each with the fault that makes it so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core.legal import refusals
from bascule.core.parallel import Customs, Layout
from fit.fit_cases import (
    DEEPSEEK_V3,
    FAMILIES,
    LLAMA_70B,
    NEMOTRON,
    QWEN_122B,
    QWEN_122B_NAMED,
    QWEN_122B_REFUSED,
    engine,
    shape,
)

ODD = {
    "num_attention_heads": 66,
    "num_key_value_heads": 6,
    "head_dim": 128,
    "intermediate_size": 28674,
    "vocab_size": 128000,
}
VLLM, SGLANG = engine("vllm").customs, engine("sglang").customs


def codes(config: dict, layout: Layout, customs: Customs = VLLM) -> list[str]:
    return [refusal.code for refusal in refusals(shape(config), layout, customs)]


def test_the_start_that_failed_on_two_h200_is_refused_before_any_start() -> None:
    """Its log: Weight input_size_per_partition = 576 is not divisible by weight quantization block_k = 128."""
    found = refusals(shape(QWEN_122B_REFUSED), Layout(2, 1, 2), VLLM)
    assert {refusal.code for refusal in found} == {"fp8-block-indivisible"}
    assert "1152 over 2 ranks is 576" in found[0].says
    assert "128" in found[0].says
    assert "--mm-encoder-tp-mode data" in found[0].remedy
    assert "modules_to_not_convert" in found[0].remedy


@pytest.mark.parametrize(
    ("config", "layout", "customs"),
    [
        (QWEN_122B, Layout(2, 1, 2), VLLM),  # the start that served
        (QWEN_122B_REFUSED, Layout(1), VLLM),  # nothing is cut
        (QWEN_122B_NAMED, Layout(2, 1, 2), VLLM),  # its modules are named, so they are not quantized
        (QWEN_122B_REFUSED, Layout(2, 1, 2), Customs(cuts_tower=False)),  # --mm-encoder-tp-mode data
        (QWEN_122B_REFUSED, Layout(1, 2, 2), VLLM),
    ],
    ids=["served", "one rank", "named", "tower whole", "stages"],
)
def test_its_remedies_are_legal(config: dict, layout: Layout, customs: Customs) -> None:
    assert codes(config, layout, customs) == []


@pytest.mark.parametrize(
    ("change", "tensor", "code"),
    [
        ({"num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128}, 8, "heads-not-divisible"),
        ({"num_key_value_heads": 16}, 32, ""),  # repeated
        ({"num_attention_heads": 72, "num_key_value_heads": 6, "head_dim": 128}, 4, "kv-heads-not-divisible"),
        ({"intermediate_size": 28670}, 4, "width-not-divisible"),
        (ODD, 3, "vocabulary-not-divisible"),
    ],
)
def test_what_does_not_divide_is_refused(change: dict, tensor: int, code: str) -> None:
    whole = LLAMA_70B | change
    assert codes(whole, Layout(tensor)) == ([code] if code else [])
    assert codes(whole, Layout(1)) == []


def test_sglang_pads_the_vocabulary_and_wants_even_experts() -> None:
    assert codes(LLAMA_70B | ODD, Layout(3), SGLANG) == []
    some = DEEPSEEK_V3 | {"n_routed_experts": 250, "quantization_config": None}
    assert codes(some, Layout(8, experts=True), SGLANG) == ["experts-not-divisible"]
    assert codes(some, Layout(8, experts=True), VLLM) == []
    assert codes(some | {"n_routed_experts": 8, "num_experts_per_tok": 4}, Layout(16, experts=True), VLLM) == [
        "experts-not-divisible"
    ]


@pytest.mark.parametrize(("tensor", "legal"), [(1, True), (8, True), (16, False), (3, False)])
def test_the_width_of_an_expert_bounds_tensor_parallelism(tensor: int, legal: bool) -> None:
    """1024 over 16 ranks is 64, half a block; vLLM raises ValueError then."""
    plain = {**QWEN_122B, "vision_config": None}
    assert ("fp8-block-indivisible" not in codes(plain, Layout(tensor)) and not codes(plain, Layout(tensor))) == legal
    if tensor == 16:
        (first,) = {refusal.code for refusal in refusals(shape(plain), Layout(tensor), VLLM)}
        assert first == "fp8-block-indivisible"
        shared = refusals(shape(plain), Layout(tensor, experts=True), VLLM)
        assert all("shared_expert" in refusal.says for refusal in shared)  # whole experts cure the routed ones


def test_recurrent_heads_divide_too() -> None:
    sizes = {**QWEN_122B["text_config"], "num_attention_heads": 48, "num_key_value_heads": 3, "head_dim": 128}
    found = codes({**QWEN_122B, "text_config": sizes, "vision_config": None, "quantization_config": None}, Layout(3))
    assert "state-heads-not-divisible" in found
    assert "heads-not-divisible" not in found


def test_groups_of_mamba_divide_or_there_is_one() -> None:
    assert codes(NEMOTRON, Layout(4)) == []
    odd = NEMOTRON | {"n_groups": 6}
    assert codes(odd, Layout(4)) == ["state-heads-not-divisible"]
    assert codes(NEMOTRON | {"n_groups": 1}, Layout(4)) == []


def test_stages_and_nodes() -> None:
    assert codes(LLAMA_70B, Layout(1, 81)) == ["layers-too-few"]
    assert codes(LLAMA_70B, Layout(1, 80)) == []
    assert codes(LLAMA_70B, Layout(4, 1, 3)) == ["nodes-uneven"]


SHAPES = {name: shape(config) for name, config in FAMILIES.items()}


@given(st.sampled_from(sorted(SHAPES)), st.integers(1, 64), st.integers(1, 8), st.booleans())
@settings(deadline=None)
def test_one_rank_is_always_legal_and_every_refusal_has_a_remedy(name, tensor, pipeline, experts) -> None:
    assert refusals(SHAPES[name], Layout(), VLLM) == ()
    for refusal in refusals(SHAPES[name], Layout(tensor, pipeline, experts=experts), VLLM):
        assert refusal.says
        assert refusal.remedy
        assert refusal.code == refusal.code.lower()
