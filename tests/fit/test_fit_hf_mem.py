"""Figures against hf-mem's, another program that counts what a model needs, where it counts the same things."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size
from hf_mem.safetensors.metadata import parse_safetensors_metadata

from bascule.core.nouns import Node
from bascule.discover.model import read_model
from bascule.discover.safetensors import header_length
from bascule.remote.local import LocalRunner
from fit.fit_cases import ADDER, LLAMA_70B, shape

MISTRAL = LLAMA_70B | {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "sliding_window": 4096,
}
QWEN3 = LLAMA_70B | {"head_dim": 128, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4}


@pytest.mark.parametrize("config", [LLAMA_70B, QWEN3], ids=["llama", "qwen3"])
@pytest.mark.parametrize("tokens", [1, 8192, 131072])
def test_keys_and_values_of_full_attention_are_as_many(config: dict, tokens: int) -> None:
    found = shape(config)
    ours = tokens * sum(found.layers[kind].mixer.token_bytes(1, 2) for kind in found.order)
    assert ours == compute_safetensors_kv_cache_size(config, "BF16", tokens)


def test_a_window_bounds_them_there_too() -> None:
    """hf-mem counts a window where the list of layers says so and all of them slide."""
    found = shape(MISTRAL)
    config = MISTRAL | {"layer_types": ["sliding_attention"] * 32}
    theirs = compute_safetensors_kv_cache_size(config, "BF16", 100_000)
    window = sum(found.layers[kind].mixer.window for kind in found.order)
    assert theirs == window * found.layers[0].mixer.token_bytes(1, 2)


def test_weights_of_our_own_model_are_as_many_bytes() -> None:
    raw = (ADDER / "model.safetensors").read_bytes()
    theirs = parse_safetensors_metadata({"Transformer": json.loads(raw[8 : 8 + header_length(raw[:8])])})
    here = Node("here", "local")
    model = asyncio.run(read_model(str(ADDER), LocalRunner(here), here))
    assert model.bytes == theirs.bytes_count
    assert model.parameters == theirs.param_count
    assert Path(model.path) == ADDER
