"""How each layer of a model remembers earlier tokens, by its config.json (pure).

Which layers slide, where a configuration lists no layers: configuration_*.py and modeling_*.py of transformers 5.19.0
and 4.57.6. States: MambaStateShapeCalculator of vllm 0.32.0 (model_executor/layers/mamba/mamba_utils.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bascule.core.shape import Memory, Mixer, State
from bascule.discover.blocks import layer_types
from bascule.discover.facts import attention_fact
from bascule.discover.numbers import Shapes, Unsized

_STATE_WIDTHS: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes
_LATENT_INDEX_GROUP = 128  # numbers of sparse attention's index that share one scale of 4 bytes


def mixer_of(kind: str, text: Mapping[str, Any], hidden: int, number: int) -> Mixer:
    """The memory of a layer whose attention is of this kind; `number`: bytes of one number. Raises Unsized."""
    if kind == "linear_attention":
        return Mixer("recurrent", state=_delta_net(text, number))
    if kind == "mamba":
        return Mixer("recurrent", state=_mamba(text, number))
    shapes = Shapes(text)
    if latent := shapes.maybe("kv_lora_rank"):
        return Mixer("latent", width=latent + shapes.get("qk_rope_head_dim"), beside=_index(shapes))
    heads, groups = kv_heads(text)
    size = head_size(text, hidden)
    values = shapes.maybe("v_head_dim") or size
    window = _window(kind, text)
    memory: Memory = "full" if window is None else "chunked" if kind == "chunked_attention" else "sliding"
    return Mixer(memory, groups or heads, size + values, window or 0)


def attention_kinds(text: Mapping[str, Any], layers: int) -> list[str]:
    """The kind of attention in each layer, also where only a window and a pattern are told."""
    kinds = layer_types(text, layers)
    if "layer_types" in text or set(kinds) != {"full_attention"}:
        return kinds
    window = Shapes(text).maybe("sliding_window")
    if not window or text.get("use_sliding_window") is False:
        return kinds
    every = _pattern(text)
    first = Shapes(text).zero("max_window_layers") if text.get("use_sliding_window") is True else 0
    slides = (layer >= first and (every == 0 or (layer + 1) % every) for layer in range(layers))
    return ["sliding_attention" if one else "full_attention" for one in slides]


def kv_heads(text: Mapping[str, Any]) -> tuple[int, int]:
    """Heads, and heads of keys and values. Raises Unsized when they can't belong together."""
    shapes = Shapes(text)
    heads = shapes.get("num_attention_heads", "n_head")
    groups = shapes.maybe("num_key_value_heads")
    groups = heads if groups is None else groups
    if not heads:
        raise Unsized("num_attention_heads is 0", "num_attention_heads", 0)
    if not groups or heads % groups:
        seen = f"{groups} of {heads} heads"
        raise Unsized(f"num_key_value_heads does not divide {heads} heads", "num_key_value_heads", seen)
    return heads, groups


def head_size(text: Mapping[str, Any], hidden: int) -> int:
    """Numbers in one head. Raises Unsized for heads without any."""
    shapes = Shapes(text)
    size = shapes.maybe("head_dim") or hidden // max(shapes.get("num_attention_heads", "n_head"), 1)
    if not size:
        raise Unsized("heads have no numbers", "head_dim", text.get("head_dim"))
    return size


def _window(kind: str, text: Mapping[str, Any]) -> int | None:
    """Tokens that a layer of this kind looks back; None: all."""
    if kind == "full_attention":
        return None
    key = "attention_chunk_size" if kind == "chunked_attention" else "sliding_window"
    return Shapes(text).maybe(key) or None


def _pattern(text: Mapping[str, Any]) -> int:
    """Every how many layers one is full; 0: none is."""
    given = Shapes(text).maybe("sliding_window_pattern", "_sliding_window_pattern")
    if given is not None:
        return given
    return attention_fact("full_every").get(str(text.get("model_type")), 0)


def _index(shapes: Shapes) -> int:
    """Bytes that one token leaves for the index of sparse attention: FP8 and a scale for each group."""
    size = shapes.zero("index_head_dim")
    return size + -(-size // _LATENT_INDEX_GROUP) * 4 if size else 0


def _delta_net(text: Mapping[str, Any], number: int) -> State:
    """Gated DeltaNet."""
    shapes = Shapes(text)
    heads, value = shapes.get("linear_num_value_heads"), shapes.get("linear_value_head_dim")
    groups, key = shapes.get("linear_num_key_heads"), shapes.get("linear_key_head_dim")
    if not heads or not groups or heads % groups:
        raise Unsized("linear_num_key_heads does not divide the value heads", "linear_num_key_heads", groups)
    taps = max(shapes.get("linear_conv_kernel_dim") - 1, 0)
    cell = _STATE_WIDTHS.get(str(text.get("mamba_ssm_dtype")))
    return State(heads, value * key, heads * value, groups, 2 * key, taps, number, cell)


def _mamba(text: Mapping[str, Any], number: int) -> State:
    """Mamba-2; without a word on it, its matrices are float32."""
    shapes = Shapes(text)
    heads, size = shapes.get("mamba_num_heads"), shapes.get("mamba_head_dim")
    groups, cells = shapes.get("n_groups"), shapes.get("ssm_state_size")
    if not heads or not groups:
        raise Unsized("mamba_num_heads or n_groups is 0", "mamba_num_heads", heads)
    taps = max(shapes.get("conv_kernel") - 1, 0)
    cell = _STATE_WIDTHS.get(str(text.get("mamba_ssm_cache_dtype")), 4)
    return State(heads, size * cells, heads * size, groups, 2 * cells, taps, number, cell, mamba=True)
