"""Shapes from configurations and from the headers of weights; what can't be meant is named with its key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core.nouns import Node
from bascule.core.parallel import Customs, Layout, held_of
from bascule.core.shape import Shape, Unshaped
from bascule.discover.config import parse_config
from bascule.discover.estimate import estimate
from bascule.discover.model import read_config_file, read_model
from bascule.discover.shape import shape_of
from bascule.discover.tensors import place_of
from bascule.discover.weights import Head, Weights, weigh
from bascule.errors import ModelError
from bascule.remote.local import LocalRunner
from discover.model_cases import AWQ, MODELOPT, OMNI, header, size_of, write
from fit.fit_cases import ADDER, DEEPSEEK_V3, FAMILIES, GEMMA3_27B, GPT_OSS_120B, LLAMA_70B, NEMOTRON, QWEN_122B, shape

NOT_COUNTED = Weights(None, exact=False)


def parse(config: dict) -> Shape | Unshaped:
    return shape_of(parse_config("m/config.json", json.dumps(config).encode()), NOT_COUNTED)


def held(of: Shape) -> dict[str, int]:
    return held_of(of, Layout(), 0, Customs(), drafts=True)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_shape_weighs_what_the_estimate_says(name: str) -> None:
    config = FAMILIES[name]
    guess = estimate(parse_config("m/config.json", json.dumps(config).encode()))
    assert guess is not None
    assert sum(held(shape(config)).values()) == pytest.approx(guess.bytes, rel=0.001)


@pytest.mark.parametrize(
    ("config", "memories"),
    [
        (QWEN_122B, {"recurrent": 36, "full": 12}),
        (LLAMA_70B, {"full": 80}),
        (GEMMA3_27B, {"sliding": 52, "full": 10}),
        (GPT_OSS_120B, {"sliding": 18, "full": 18}),
        (DEEPSEEK_V3, {"latent": 61}),
        (NEMOTRON, {"recurrent": 23, "full": 6, "none": 23}),
        (LLAMA_70B | {"sliding_window": 4096}, {"sliding": 80}),  # as Mistral 7B
        (LLAMA_70B | {"sliding_window": 4096, "use_sliding_window": False}, {"full": 80}),  # as Qwen2.5
        (
            LLAMA_70B | {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 70},
            {"full": 70, "sliding": 10},
        ),
        (LLAMA_70B | {"model_type": "gemma2", "sliding_window": 4096}, {"sliding": 40, "full": 40}),
        (LLAMA_70B | {"layer_types": ["chunked_attention"] * 80, "attention_chunk_size": 8192}, {"chunked": 80}),
    ],
)
def test_layers_remember_as_the_configuration_says(config: dict, memories: dict) -> None:
    found = shape(config)
    counts: dict[str, int] = {}
    for kind in found.order:
        memory = found.layers[kind].mixer.memory
        counts[memory] = counts.get(memory, 0) + 1
    assert counts == memories


@pytest.mark.parametrize(
    ("change", "context"),
    [
        ({}, 131072),
        ({"max_position_embeddings": None}, None),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, 131072),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 32768}}, 65536),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}}, 131072),
        ({"rope_scaling": {"rope_type": "yarn", "factor": "x"}}, 131072),
    ],
)
def test_the_context_that_a_model_was_made_for(change: dict, context: int | None) -> None:
    assert shape(LLAMA_70B | change).context == context


@pytest.mark.parametrize(
    ("config", "change", "key", "absurd"),
    [
        (LLAMA_70B, {"hidden_size": 0}, "hidden_size", True),
        (LLAMA_70B, {"hidden_size": -1}, "hidden_size", True),
        (LLAMA_70B, {"hidden_size": "8192"}, "hidden_size", True),
        (LLAMA_70B, {"hidden_size": 10**12}, "hidden_size", True),
        (LLAMA_70B, {"hidden_size": None}, "hidden_size", False),
        (LLAMA_70B, {"vocab_size": 0}, "vocab_size", True),
        (LLAMA_70B, {"vocab_size": None}, "vocab_size", False),
        (LLAMA_70B, {"num_hidden_layers": 0}, "num_hidden_layers", True),
        (LLAMA_70B, {"num_hidden_layers": 10**7}, "num_hidden_layers", True),
        (LLAMA_70B, {"num_attention_heads": 0}, "num_attention_heads", True),
        (LLAMA_70B, {"num_key_value_heads": 0}, "num_key_value_heads", True),
        (LLAMA_70B, {"num_key_value_heads": 7}, "num_key_value_heads", True),
        (LLAMA_70B, {"num_key_value_heads": 128}, "num_key_value_heads", True),
        (LLAMA_70B, {"head_dim": 1.5}, "head_dim", True),
        (LLAMA_70B, {"max_position_embeddings": 0}, "max_position_embeddings", True),
        (LLAMA_70B, {"layer_types": ["mamba3"] * 80}, "layer_types", True),
        (DEEPSEEK_V3, {"num_experts_per_tok": 0}, "num_experts_per_tok", True),
        (DEEPSEEK_V3, {"num_experts_per_tok": 300}, "num_experts_per_tok", True),
        (DEEPSEEK_V3, {"num_experts_per_tok": None}, "num_experts_per_tok", False),
        (DEEPSEEK_V3, {"qk_rope_head_dim": None}, "qk_rope_head_dim", False),
        (NEMOTRON, {"hybrid_override_pattern": "M?"}, "layers_block_type", True),
        (NEMOTRON, {"n_groups": 0}, "mamba_num_heads", True),
        (LLAMA_70B, {"mamba_d_state": 16}, "mamba_d_state", False),
        (LLAMA_70B, {"model_type": "glm4v"}, "model_type", False),
        (OMNI, {}, "audio_config", False),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) and len(value) < 3 else "",
)
def test_numbers_that_are_missing_or_absurd_are_named(config: dict, change: dict, key: str, absurd: bool) -> None:
    found = parse(config | change)
    assert isinstance(found, Unshaped), found
    assert found.absurd == absurd
    assert found.key == key or (key == "audio_config" and found.key)
    assert found.says
    assert bool(found.seen) >= absurd


def test_a_model_whose_size_is_unknown_still_has_its_other_facts(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_70B | {"hidden_size": 0}))
    model = read_config_file(path)
    assert model.architectures == ("LlamaForCausalLM",)
    assert isinstance(model.shape, Unshaped)


async def _read(path: Path) -> Shape:
    here = Node("here", "local")
    found = (await read_model(str(path), LocalRunner(here), here)).shape
    assert isinstance(found, Shape)
    return found


async def _model(path: Path):
    here = Node("here", "local")
    return await read_model(str(path), LocalRunner(here), here)


def test_bytes_of_our_own_model_are_those_of_its_tensors() -> None:
    model = asyncio.run(_model(ADDER))
    assert isinstance(model.shape, Shape)
    assert model.shape.exact
    parts = held(model.shape)
    assert sum(parts.values()) == pytest.approx(model.bytes, abs=100)
    assert parts["embedding"] == parts["head"] == 320 * 128 * 2
    assert parts["experts"] == 4 * 8 * 3 * 128 * 64 * 2
    assert parts["norms"] > 0  # which a configuration alone does not tell


SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "tie_word_embeddings": False,
}


def tensors(**more: tuple[str, list[int]]) -> dict[str, tuple[str, list[int]]]:
    found: dict[str, tuple[str, list[int]]] = {
        "model.embed_tokens.weight": ("BF16", [128, 64]),
        "lm_head.weight": ("BF16", [128, 64]),
        "model.norm.weight": ("BF16", [64]),
    }
    for layer in range(2):
        at = f"model.layers.{layer}"
        found[f"{at}.self_attn.q_proj.weight"] = ("BF16", [64, 64])
        found[f"{at}.self_attn.k_proj.weight"] = ("BF16", [32, 64])
        found[f"{at}.self_attn.v_proj.weight"] = ("BF16", [32, 64])
        found[f"{at}.self_attn.o_proj.weight"] = ("BF16", [64, 64])
        found[f"{at}.mlp.gate_proj.weight"] = ("BF16", [128, 64])
        found[f"{at}.mlp.up_proj.weight"] = ("BF16", [128, 64])
        found[f"{at}.mlp.down_proj.weight"] = ("BF16", [64, 128])
    return found | more


def counted(of: dict[str, tuple[str, list[int]]], **change: object) -> Shape:
    head = header(of)
    weights = weigh("m", {"model.safetensors": Head(size_of(head), head)}, None)
    assert weights.parts is not None
    return shape(SMALL | change, weights)


def test_what_was_counted_counts() -> None:
    plain = counted(tensors())
    assert held(plain)["attention"] == 2 * (2 * 64 * 64 + 2 * 32 * 64) * 2
    wide = tensors()
    wide["model.layers.1.mlp.down_proj.weight"] = ("F32", [64, 128])
    found = counted(wide)
    assert held(found)["dense"] - held(plain)["dense"] == 64 * 128 * 2
    assert found.order == (0, 1)  # the two layers are no longer alike
    assert plain.order == (0, 0)


def test_layers_behind_the_last_are_drafts() -> None:
    found = counted(tensors(**{"model.layers.2.mlp.up_proj.weight": ("BF16", [1000, 64])}))
    assert held(found)["draft"] == 1000 * 64 * 2
    assert "draft" not in held_of(found, Layout(), 0, Customs())


def test_a_head_that_is_tied_is_not_counted_twice() -> None:
    found = counted(tensors(), tie_word_embeddings=True)
    assert "head" not in held(found)
    assert found.last[0].bytes == 128 * 64 * 2


def test_names_that_nobody_knows_only_scale() -> None:
    """Half of the bytes under odd names: the parts are in proportion, the sum is that of the file."""
    odd = {f"blob.{at}": ("BF16", [128, 64]) for at in range(8)}
    found = counted(tensors(**odd))
    total = sum(size for size in held(found).values())
    head = header(tensors(**odd))
    assert total == pytest.approx(size_of(head) - len(head), rel=0.001)
    assert "other" not in held(found)


def test_sizes_of_files_alone_scale_too() -> None:
    half = shape(LLAMA_70B, Weights(70_000_000_000))
    assert sum(held(half).values()) == pytest.approx(70e9, rel=1e-6)
    assert not half.exact


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model.layers.3.mlp.gate_proj.weight", (3, "dense")),
        ("model.layers.3.mlp.gate.weight", (3, "router")),
        ("model.layers.3.mlp.gate.e_score_correction_bias", (3, "router")),
        ("model.layers.7.mlp.experts.255.down_proj.weight_scale_inv", (7, "experts")),
        ("model.layers.7.mlp.experts.gate_up_proj_blocks", (7, "experts")),
        ("model.layers.7.mlp.shared_experts.up_proj.weight", (7, "shared")),
        ("model.layers.7.mlp.shared_expert_gate.weight", (7, "shared")),
        ("model.layers.0.block_sparse_moe.experts.0.w1.weight", (0, "experts")),
        ("model.layers.2.self_attn.kv_a_proj_with_mqa.weight", (2, "attention")),
        ("model.language_model.layers.2.linear_attn.in_proj_qkv.weight", (2, "recurrent")),
        ("backbone.layers.4.mixer.in_proj.weight", (4, "recurrent")),
        ("backbone.layers.4.mixer.q_proj.weight", (4, "attention")),
        ("backbone.layers.4.mixer.up_proj.weight", (4, "dense")),
        ("model.visual.blocks.3.attn.qkv.weight", (-1, "vision")),
        ("mtp.layers.0.mlp.gate.weight", (0, "draft")),
        ("lm_head.weight", (-1, "head")),
        ("language_model.model.embed_tokens.weight", (-1, "embedding")),
        ("model.layers.1.input_layernorm.weight", (1, "norms")),
        ("something.else", (-1, "other")),
    ],
)
def test_tensors_belong_to_parts(name: str, place: tuple[int, str]) -> None:
    assert place_of(name) == place


@pytest.mark.parametrize("quantization", [AWQ, MODELOPT["quantization"] | {"quant_method": "modelopt"}])
def test_quantized_models_have_shapes(quantization: dict) -> None:
    found = shape(LLAMA_70B | {"quantization_config": quantization})
    assert sum(held(found).values()) < 45e9
    assert found.sides == ()  # nothing is checked where no blocks share a scale


def test_a_folder_of_shards_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    rows = list(tensors().items())
    write(tmp_path / "model-00001-of-00002.safetensors", dict(rows[:9]))
    write(tmp_path / "model-00002-of-00002.safetensors", dict(rows[9:]))
    assert asyncio.run(_read(tmp_path)) == counted(tensors())


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**13), 10**13) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("pattern", [1, 2.5, True, {}, {"M": 1}, "", [], None])
def test_a_list_of_blocks_that_is_none_is_named(pattern: object) -> None:
    found = parse({**FAMILIES["nemotron"], "hybrid_override_pattern": pattern})
    assert isinstance(found, Unshaped)
    assert found.key == "layers_block_type"


@given(st.sampled_from(sorted(FAMILIES)), st.data())
@settings(deadline=None, max_examples=150)
def test_no_configuration_crashes(name: str, data: st.DataObject) -> None:
    """Any values anywhere: a shape, a reason with a key, or ModelError."""
    config = json.loads(json.dumps(FAMILIES[name]))
    for _ in range(data.draw(st.integers(1, 4))):
        part = data.draw(st.sampled_from([value for value in (config, *config.values()) if isinstance(value, dict)]))
        key = data.draw(st.sampled_from([*part, "layer_types", "sliding_window", "vision_config", "kv_lora_rank"]))
        part[key] = data.draw(JUNK)
    try:
        found = parse(config)
    except ModelError as error:
        assert error.code == "model-broken"
        return
    if isinstance(found, Unshaped):
        assert found.key
        assert found.says
        return
    assert len(found.order) >= 1
    assert all(size >= 0 for size in held(found).values())
