"""Which sides of quantized matrices tensor parallelism cuts, where blocks of them share a scale (pure).

Which matrices engines join and check: validate_fp8_block_shape and validate_fp8_block_shape_moe of vllm 0.32.0
(layers/quantization/utils/fp8_utils.py), and ColumnParallelLinear and RowParallelLinear of its models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bascule.core.nouns import Quantization
from bascule.core.shape import Dimensions, Side
from bascule.discover.blocks import blocks_of, layer_count
from bascule.discover.config import Config
from bascule.discover.mixers import head_size
from bascule.discover.numbers import Shapes

_TOWER = re.compile(r"(?:^|\.)(?:visual|vision_tower|vision_model|vision)\.")
_EXACT = ("fp8",)  # methods whose lists name modules one by one, and mean no others


def sides_of(config: Config, dimensions: Dimensions) -> tuple[Side, ...]:
    """All of them; none where a model isn't quantized in blocks."""
    quantization = config.quantization
    if quantization is None or len(quantization.block) != 2 or not all(quantization.block):
        return ()
    rows, columns = quantization.block
    found = [*_language(config.text, dimensions, rows, columns)]
    if not _tower_is_left_alone(quantization):
        found += _vision(config.whole, rows, columns)
    return tuple(side for side in found if side.size)


def _language(text: Mapping[str, Any], sizes: Dimensions, rows: int, columns: int) -> Iterator[Side]:
    kinds = {kind for block in blocks_of(text, layer_count(text)) for kind in block}
    shapes = Shapes(text)
    if kinds - {"linear_attention", "mamba", "mlp", "moe"}:
        yield from _attention(text, sizes, rows, columns)
    if "linear_attention" in kinds:
        keys = shapes.get("linear_num_key_heads") * shapes.get("linear_key_head_dim")
        values = shapes.get("linear_num_value_heads") * shapes.get("linear_value_head_dim")
        yield Side("linear_attn.in_proj_qkvz (keys)", keys, rows, always=True)
        yield Side("linear_attn.in_proj_qkvz (values)", values, rows, always=True)
        yield Side("linear_attn.out_proj", values, columns)
    yield Side("mlp.gate_up_proj", sizes.dense_width, rows, always=True)
    yield Side("mlp.down_proj", sizes.dense_width, columns)
    yield Side("mlp.shared_expert.gate_up_proj", sizes.shared_width, rows, always=True)
    yield Side("mlp.shared_expert.down_proj", sizes.shared_width, columns)
    yield Side("mlp.experts.gate_up_proj", sizes.expert_width, rows, of_experts=True, always=True)
    yield Side("mlp.experts.down_proj", sizes.expert_width, columns, of_experts=True)


def _attention(text: Mapping[str, Any], sizes: Dimensions, rows: int, columns: int) -> Iterator[Side]:
    shapes = Shapes(text)
    if shapes.maybe("kv_lora_rank"):
        value, plain = shapes.get("v_head_dim"), shapes.get("qk_nope_head_dim")
        yield Side("self_attn.q_b_proj", sizes.heads * (plain + shapes.get("qk_rope_head_dim")), rows)
        yield Side("self_attn.kv_b_proj", sizes.heads * (plain + value), rows)
        yield Side("self_attn.o_proj", sizes.heads * value, columns)
        return
    size = head_size(text, sizes.hidden)
    yield Side("self_attn.qkv_proj (queries)", sizes.heads * size, rows, always=True)
    yield Side("self_attn.qkv_proj (keys)", sizes.kv_heads * size, rows, always=True, least=size)
    yield Side("self_attn.o_proj", sizes.heads * size, columns)


def _vision(whole: Mapping[str, Any], rows: int, columns: int) -> Iterator[Side]:
    given = whole.get("vision_config")
    if not isinstance(given, dict):
        return
    shapes = Shapes(given)
    yield Side("visual.blocks.attn.qkv", shapes.get("hidden_size"), rows, always=True)
    yield Side("visual.blocks.attn.proj", shapes.get("hidden_size"), columns)
    yield Side("visual.blocks.mlp.linear_fc1", shapes.zero("intermediate_size"), rows)
    yield Side("visual.blocks.mlp.linear_fc2", shapes.zero("intermediate_size"), columns)


def _tower_is_left_alone(quantization: Quantization) -> bool:
    """The vision tower is not quantized: a list names modules in it, or where names are patterns, it as a whole."""
    names = quantization.skipped
    if quantization.method in _EXACT:
        return any(_TOWER.search(name) for name in names)
    return any("vis" in name for name in names)
