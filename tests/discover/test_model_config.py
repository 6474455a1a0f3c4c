"""What a config.json says of its model; whatever it holds, it is a fact or one sentence of complaint."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.nouns import Quantization
from bascule.discover.config import Config, parse_config
from bascule.discover.estimate import estimate
from bascule.discover.jsons import MAX_CONFIG
from bascule.discover.quantization import MAX_NAMES
from bascule.errors import ModelError
from discover.model_cases import AWQ, DEEPSEEK, GLM_FLASH, GPT_OSS, GPTQ, LLAMA, MODELOPT, NVFP4, OMNI, QWEN35


def parse(config: Any, beside: Any = None) -> Config:
    return parse_config(
        "m/config.json", json.dumps(config).encode(), None if beside is None else json.dumps(beside).encode()
    )


@pytest.mark.parametrize(
    ("config", "architecture", "model_type", "dtype"),
    [
        (QWEN35, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "bfloat16"),
        (DEEPSEEK, "DeepseekV3ForCausalLM", "deepseek_v3", "bfloat16"),
        (GLM_FLASH, "Glm4MoeLiteForCausalLM", "glm4_moe_lite", "bfloat16"),
        (LLAMA, "LlamaForCausalLM", "llama", "float16"),
        (GPT_OSS, "GptOssForCausalLM", "gpt_oss", ""),
        (OMNI, "Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe", "bfloat16"),
        ({"llm_config": {"architectures": ["A"], "model_type": "a"}}, "A", "a", ""),
        (
            {"architectures": None, "language_config": {"architectures": ["B"], "torch_dtype": "torch.float"}},
            "B",
            "",
            "float",
        ),
        ({"architectures": [], "text_config": {"architectures": ["C"]}, "model_type": "c"}, "C", "c", ""),
    ],
)
def test_a_name_at_the_top_counts_else_the_one_of_the_language_part(config, architecture, model_type, dtype) -> None:
    found = parse(config)
    assert (found.architectures, found.model_type, found.dtype) == ((architecture,), model_type, dtype)


def test_the_numbers_of_the_language_model_are_in_its_innermost_part() -> None:
    assert parse(QWEN35).text is not parse(QWEN35).whole
    assert parse(QWEN35).text["hidden_size"] == 3072
    assert parse(OMNI).text["hidden_size"] == 2048
    assert parse(LLAMA).text["hidden_size"] == 4096


@pytest.mark.parametrize(
    ("config", "beside", "wanted"),
    [
        (LLAMA, None, None),
        (LLAMA | {"quantization_config": None}, None, None),
        (DEEPSEEK, None, Quantization("fp8", "", 8, (128, 128))),
        (
            GPT_OSS,
            None,
            Quantization(
                "mxfp4",
                "",
                4,
                (),
                ("model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"),
            ),
        ),
        (LLAMA | {"quantization_config": AWQ}, None, Quantization("awq", "", 4)),
        (LLAMA | {"quantization_config": GPTQ}, None, Quantization("gptq", "", 8, (), (".*\\.self_attn",))),
        (
            LLAMA | {"quantization_config": NVFP4},
            None,
            Quantization("compressed-tensors", "nvfp4-pack-quantized", 4, (), ("lm_head", "re:.*mlp.gate$")),
        ),
        (
            LLAMA | {"compression_config": {k: v for k, v in NVFP4.items() if k != "quant_method"}},
            None,
            Quantization("compressed-tensors", "nvfp4-pack-quantized", 4, (), ("lm_head", "re:.*mlp.gate$")),
        ),
        (LLAMA, MODELOPT, Quantization("modelopt", "NVFP4", 4, (), ("lm_head", "model.layers.0.self_attn*"))),
        (LLAMA | {"quantization_config": AWQ}, MODELOPT, Quantization("awq", "", 4)),
        (
            LLAMA | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}},
            None,
            Quantization("modelopt", "FP8", 8, (), ("lm_head",)),
        ),
        (
            LLAMA | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}},
            None,
            Quantization("modelopt", "MIXED_PRECISION", None),
        ),
        (
            QWEN35 | {"text_config": {"quantization_config": {"quant_method": "FP8", "ignored_layers": ["lm_head"]}}},
            None,
            Quantization("fp8", "", 8, (), ("lm_head",)),
        ),
        (LLAMA | {"quantization_config": {"load_in_4bit": True}}, None, Quantization("bitsandbytes", "", 4)),
    ],
)
def test_each_tool_says_in_its_own_words_how_it_quantized(config, beside, wanted) -> None:
    assert parse(config, beside).quantization == wanted


def test_groups_of_several_widths_have_no_one_width() -> None:
    groups = {"a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}, "c": {"weights": None}}
    mixed = {**NVFP4, "config_groups": groups, "format": "mixed-precision"}
    assert parse(LLAMA | {"quantization_config": mixed}).quantization == Quantization(
        "compressed-tensors", "mixed-precision", None, (), ("lm_head", "re:.*mlp.gate$")
    )


def test_remote_code_is_what_the_files_of_the_model_can_bring() -> None:
    config = parse(DEEPSEEK)
    assert config.modules == ("configuration_deepseek.py", "modeling_deepseek.py")
    assert config.remote_code() == ("DeepseekV3Config", "DeepseekV3ForCausalLM")
    assert config.remote_code({"modeling_deepseek.py", "config.json"}) == ("DeepseekV3ForCausalLM",)
    assert config.remote_code(()) == ()


def test_remote_code_may_live_in_another_repository() -> None:
    config = parse(LLAMA | {"auto_map": {"AutoModel": "some/one--modeling.X", "AutoTokenizer": ["a.Slow", None]}})
    assert config.modules == ("a.py",)
    assert config.remote_code(()) == ("X",)
    assert config.remote_code(("a.py",)) == ("X", "Slow")


WRONG = [
    ({"architectures": 7}, "names no architectures"),
    ({"architectures": ["a b"]}, "names no architectures"),
    ({"architectures": ["\ud800"]}, "names no architectures"),
    ({"architectures": ["A"] * 1_000_000}, "names no architectures"),
    ({"architectures": None, "text_config": [1]}, "text_config is no object"),
    ({"model_type": 3}, "model_type is no name"),
    ({"model_type": float("nan")}, "model_type is no name"),
    ({"torch_dtype": {}}, "torch_dtype is no name"),
    ({"auto_map": []}, "auto_map is no object"),
    ({"auto_map": {"AutoModel": "../../x"}}, "auto_map leads to no classes"),
    ({"auto_map": {"AutoModel": [[1]]}}, "auto_map leads to no classes"),
    ({"quantization_config": "fp8"}, "quantization_config is no object"),
    ({"quantization_config": {}}, "names no quant_method"),
    ({"quantization_config": {"quant_method": 8}}, "quant_method is no name"),
    ({"quantization_config": AWQ | {"bits": "4"}}, "bits is no number of bits"),
    ({"quantization_config": AWQ | {"bits": True}}, "bits is no number of bits"),
    ({"quantization_config": AWQ | {"bits": float("nan")}}, "bits is no number of bits"),
    ({"quantization_config": AWQ | {"bits": 10**4000}}, "bits is no number of bits"),
    ({"quantization_config": AWQ | {"modules_to_not_convert": 3}}, "modules_to_not_convert is no list of modules"),
    ({"quantization_config": NVFP4 | {"ignore": [None]}}, "ignore is no list of modules"),
    ({"quantization_config": NVFP4 | {"ignore": ["x"] * (MAX_NAMES + 1)}}, "ignore is no list of modules"),
    ({"quantization_config": NVFP4 | {"config_groups": []}}, "config_groups is no object"),
    ({"quantization_config": NVFP4 | {"config_groups": {"g": 1}}}, "group 'g' says nothing of its weights"),
    ({"quantization_config": {"quant_method": "fp8", "weight_block_size": 128}}, "weight_block_size is no shape"),
    ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 1]}}, "weight_block_size is no shape"),
    ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [1.5]}}, "weight_block_size is no shape"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_wrong_type_is_told_with_what_was_seen(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse(LLAMA | change)
    assert caught.value.code == "model-broken"
    assert caught.value.says.endswith(says)
    assert 0 < len(caught.value.seen) < 1000
    assert caught.value.seen.isprintable()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"[" * 1_000_000, "is no JSON"),
        (b'{"a":' * 1_000_000, "is no JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "is no JSON"),
        (b"{" + b" " * MAX_CONFIG + b"}", "is larger than 16 MiB"),
        (b"\xff\xfe", "is no JSON"),
    ],
    ids=["deep list", "deep object", "long number", "long", "bytes"],
)
def test_a_file_made_to_hurt_is_told_in_no_time(raw: bytes, says: str) -> None:
    begun = time.process_time()
    with pytest.raises(ModelError, match=says) as caught:
        parse_config("m/config.json", raw)
    assert caught.value.code == "model-broken"
    assert time.process_time() - begun < 5


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["fp8", "m.C", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
KEYS = sorted({*QWEN35, *QWEN35["text_config"], *DEEPSEEK, *GPT_OSS, *NVFP4, *AWQ, "auto_map", "layer_types"})


@given(st.sampled_from([QWEN35, DEEPSEEK, GPT_OSS, OMNI]), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3))
def test_any_config_is_a_fact_or_a_complaint(config: dict[str, Any], change: dict[str, Any]) -> None:
    changed = {**config, **change, "text_config": {**config.get("text_config", {}), **change}}
    try:
        found = parse(changed, change)
    except ModelError as error:
        assert (error.code, error.seen != "") == ("model-broken", True)
        return
    assert found.architectures
    guess = estimate(replace(found))
    assert guess is None or (guess.bytes >= 0 and guess.parameters >= guess.language > 0)


@given(
    st.dictionaries(st.sampled_from([*NVFP4, *AWQ, "weight_block_size", "quantization", "producer"]), JSON, max_size=5)
)
def test_any_quantization_is_a_fact_or_a_complaint(given_config: dict[str, Any]) -> None:
    try:
        found = parse(LLAMA | {"quantization_config": given_config}).quantization
    except ModelError as error:
        assert error.code == "model-broken"
        return
    assert found is not None
    assert found.method
    assert str(found)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_fact_or_a_complaint(raw: bytes) -> None:
    with pytest.raises(ModelError):
        parse_config("m/config.json", raw)
