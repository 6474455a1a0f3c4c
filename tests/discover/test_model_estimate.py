"""Sizes by shapes alone, against parameters counted in the classes of transformers 5.19.0 and published sizes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bascule.core.nouns import Quantization
from bascule.discover.config import Config, parse_config
from bascule.discover.estimate import estimate
from bascule.discover.model import read_config_file
from discover.model_cases import AWQ, DEEPSEEK, GLM_FLASH, GPT_OSS, LLAMA, OMNI, QWEN35

ROOT = Path(__file__).parents[2]
ADDER = ROOT / "models/adder"
VLLM = ROOT / ".engines/vllm-0.32.0"  # with transformers 5.19.0
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def parse(config) -> Config:
    return parse_config("m/config.json", json.dumps(config).encode())


def qwen35(**text) -> dict:
    """Another size of Qwen3.5."""
    vision = {**QWEN35["vision_config"], "out_hidden_size": text["hidden_size"]}
    return {**QWEN35, "text_config": {**QWEN35["text_config"], **text}, "vision_config": vision}


SMALL = qwen35(
    hidden_size=2048,
    num_hidden_layers=40,
    num_attention_heads=16,
    linear_num_value_heads=32,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
)
LARGE = qwen35(hidden_size=4096, num_hidden_layers=60, num_experts=512)


@pytest.mark.parametrize(
    ("config", "language", "parameters", "size"),
    [
        (SMALL, 34.66e9, 35.95e9, 71.9e9),
        (QWEN35, 122.11e9, 125.09e9, 250.2e9),  # published: 250 GB
        (LARGE, 396.35e9, 403.40e9, 806.8e9),
        (SMALL | {"quantization_config": FP8}, 34.66e9, 35.95e9, 37.4e9),
        (QWEN35 | {"quantization_config": FP8}, 122.11e9, 125.09e9, 127.1e9),
        (LARGE | {"quantization_config": FP8}, 396.35e9, 403.40e9, 406.1e9),
        (DEEPSEEK, 671.03e9, 684.5e9, 688.6e9),  # published: 671 B, 685 B with the draft layer
        (GLM_FLASH, 29.943e9, 29.943e9, 59.89e9),
        (LLAMA, 6.738e9, 6.738e9, 13.48e9),  # published: 13.5 GB
        (LLAMA | {"quantization_config": AWQ}, 6.738e9, 6.738e9, 3.89e9),  # published: 3.89 GB
        (GPT_OSS, 116.83e9, 116.83e9, 65.25e9),  # published: 65.25 GB of safetensors
    ],
    ids=["35B", "122B", "397B", "35B FP8", "122B FP8", "397B FP8", "DeepSeek", "GLM", "Llama", "Llama AWQ", "gpt-oss"],
)
def test_an_estimate_is_within_one_percent(config, language, parameters, size) -> None:
    found = estimate(parse(config))
    assert found is not None
    assert found.language == pytest.approx(language, rel=0.01)
    assert found.parameters == pytest.approx(parameters, rel=0.01)
    assert found.bytes == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize("change", ["tie_word_embeddings", "n_shared_experts", "first_k_dense_replace"])
def test_each_shape_counts(change: str) -> None:
    other = {"tie_word_embeddings": True}.get(change, 0)
    before, after = estimate(parse(DEEPSEEK)), estimate(parse(DEEPSEEK | {change: other}))
    assert before is not None
    assert after is not None
    assert after.language != before.language


def test_layers_are_dense_where_the_configuration_says_so() -> None:
    lists = [{"mlp_layer_types": ["dense"] + ["sparse"] * 46}, {"moe_layer_freq": [0] + [1] * 46}]
    sizes = {estimate(parse({**GLM_FLASH, "first_k_dense_replace": 0, **one})).language for one in lists}
    assert sizes == {estimate(parse(GLM_FLASH)).language}


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": None},
        {"hidden_size": 4096.0},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": True},
        {"vocab_size": "32000"},
        {"layer_types": ["mamba"] * 32},
        {"layer_types": 3},
        {"hybrid_override_pattern": "M-M*"},
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}},
        {"vision_config": []},
        {"vision_config": {"width": 3}},
    ],
    ids=str,
)
def test_what_is_not_understood_gives_no_estimate(change: dict) -> None:
    assert estimate(parse(LLAMA)) is not None
    assert estimate(parse(LLAMA | change)) is None
    assert estimate(parse(OMNI)) is None  # its audio tower is not counted


def test_a_config_alone_gives_a_model_whose_size_is_an_estimate(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(QWEN35 | {"quantization_config": FP8}))
    model = read_config_file(path)
    assert (model.path, model.model_type, model.bytes_exact, model.parameters) == (
        str(path),
        "qwen3_5_moe",
        False,
        None,
    )
    assert model.bytes == pytest.approx(127.1e9, rel=0.01)
    assert model.quantization == Quantization("fp8", "", 8, (128, 128))


def test_an_estimate_of_our_own_model_is_near_to_what_its_file_holds() -> None:
    model = read_config_file(ADDER / "config.json")
    assert not model.bytes_exact
    assert model.bytes == pytest.approx((ADDER / "model.safetensors").stat().st_size, rel=0.01)


@pytest.mark.parametrize(
    ("skipped", "layers"),
    [
        (["lm_head"], 0),
        (["model.layers.0.self_attn*", "model.layers.7.self_attn", "model.layers.7.mlp"], 2),
        (["model.layers.*.self_attn"], 32),
        (["re:.*self_attn$"], 32),
    ],
)
def test_attention_that_is_left_alone_needs_more(skipped: list[str], layers: int) -> None:
    given = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    everything = estimate(parse(LLAMA | {"quantization_config": given}))
    less = estimate(parse(LLAMA | {"quantization_config": {**given, "ignore": skipped}}))
    attention = layers * 4 * 4096 * 4096
    assert less.bytes - everything.bytes == pytest.approx(attention * (2 - 0.5625), rel=1e-6)


# Makes each class from its default configuration without memory for its weights, and counts its parameters.
COUNT = """
import json, sys, torch, transformers
for model_type, name in json.loads(sys.argv[1]).items():
    config = transformers.AutoConfig.for_model(model_type)
    with torch.device("meta"):
        count = sum(weights.numel() for weights in getattr(transformers, name)(config).parameters())
    print(json.dumps([{**config.to_dict(), "architectures": [name]}, count], default=str))
"""
CLASSES = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama": "LlamaForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
}


@pytest.mark.engine
@pytest.mark.skipif(not VLLM.exists(), reason="make engines")
def test_an_estimate_is_what_the_classes_of_transformers_have() -> None:
    words = [str(VLLM / "bin/python"), "-c", COUNT, json.dumps(CLASSES)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(CLASSES)
    for config, count in lines:
        found = estimate(parse(config))
        assert found is not None, config["model_type"]
        own = found.parameters if "vision_config" in config else found.language
        assert own == pytest.approx(count, rel=0.01), config["model_type"]
