"""How large a model is by its config.json alone: the products of its shapes (pure).

Norms and biases are left out (less than 0.1 %). What is not understood gives no estimate rather than a wrong one.
Formulas: modeling_*.py of transformers 5.19.0; figures in tests/discover/test_estimate.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bascule.core.nouns import Quantization
from bascule.discover.config import Config
from bascule.discover.facts import estimate_fact, format_of
from bascule.discover.jsons import is_count

_MOST = 10**8  # of one number in a configuration; the largest vocabularies have 10**6
_LAYERS = 10_000
_NUMBER = re.compile(r"\d+")
_WIDTHS = {"float32": 4, "float": 4, "float64": 8, "float8_e4m3fn": 1}  # bytes; everything else is 2


class Unsized(ValueError):
    """The size can't be told from this configuration; says which key."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Parameters of the language model, of all with vision and what predicts more tokens, and bytes of all."""

    language: int
    parameters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters that are stored alike: `kind` is experts, attention, linear, dense, draft, or kept."""

    kind: str
    count: int
    language: bool = True


@dataclass(frozen=True, slots=True)
class Shapes:
    """Numbers of a configuration by name; a missing or odd one raises Unsized."""

    given: Mapping[str, Any]

    def get(self, *names: str) -> int:
        """The first of these that is there."""
        value = self.maybe(*names)
        if value is None:
            raise Unsized(f"no {names[0]}")
        return value

    def maybe(self, *names: str) -> int | None:
        """The same; None when none is there or it is null."""
        for name in names:
            value = self.given.get(name)
            if value is not None:
                if not is_count(value, _MOST) or not isinstance(value, int):
                    raise Unsized(f"{name} is no count")
                return value
        return None

    def zero(self, *names: str) -> int:
        """The same; 0 when none is there."""
        return self.maybe(*names) or 0


def estimate(config: Config) -> Estimate | None:
    """The size by shapes; None when they don't tell it."""
    try:
        parts = list(_parts(config))
        size = sum(part.count * _width(part, config) for part in parts)
    except Unsized:
        return None
    total = sum(part.count for part in parts)
    return Estimate(sum(part.count for part in parts if part.language), total, round(size)) if total else None


def _parts(config: Config) -> Iterator[Part]:
    text = config.text
    if unknown := estimate_fact("unknown_keys").intersection((*text, *config.whole)):
        raise Unsized(min(unknown))
    if unknown := estimate_fact("unknown_types").intersection((config.model_type, str(text.get("model_type")))):
        raise Unsized(min(unknown))
    shapes = Shapes(text)
    hidden, layers = shapes.get("hidden_size", "n_embd"), shapes.get("num_hidden_layers", "n_layer")
    if not 0 < layers <= _LAYERS:
        raise Unsized("num_hidden_layers is no count")
    tied = text.get("tie_word_embeddings", config.whole.get("tie_word_embeddings"))
    yield Part("kept", shapes.get("vocab_size") * hidden * (1 if tied is True else 2))
    for kind in _layer_types(text, layers):
        yield from _linear(shapes, hidden) if kind == "linear_attention" else _attention(text, hidden)
    sparse = _sparse(text, layers)
    experts = list(_experts(shapes, hidden)) if any(sparse) else []
    dense = [] if all(sparse) else [Part("dense", _matrices(text) * hidden * _dense_width(shapes))]
    for routed in sparse:
        yield from experts if routed else dense
    yield from _draft(text, hidden, [*_attention(text, hidden), *(experts or dense)])
    yield from _vision(config.whole)


def _layer_types(text: Mapping[str, Any], layers: int) -> list[str]:
    """The kind of attention in each layer."""
    kinds = text.get("layer_types")
    if kinds is None:
        every = Shapes(text).maybe("full_attention_interval")
        if "linear_num_key_heads" not in text or not every:
            return ["full_attention"] * layers
        return ["linear_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    known = ("full_attention", "linear_attention", "sliding_attention", "chunked_attention")
    if not isinstance(kinds, list) or len(kinds) < layers or not all(kind in known for kind in kinds[:layers]):
        raise Unsized("layer_types")
    return kinds[:layers]


def _attention(text: Mapping[str, Any], hidden: int) -> Iterator[Part]:
    """Grouped heads, or DeepSeek's latent ones."""
    shapes = Shapes(text)
    heads = shapes.get("num_attention_heads", "n_head")
    if latent := shapes.maybe("kv_lora_rank"):
        rope, value = shapes.get("qk_rope_head_dim"), shapes.get("v_head_dim")
        plain, low = shapes.get("qk_nope_head_dim"), shapes.maybe("q_lora_rank")
        query = heads * (plain + rope)
        queries = low * (hidden + query) if low else hidden * query
        keys = hidden * (latent + rope) + latent * heads * (plain + value)
        yield Part("attention", queries + keys + heads * value * hidden)
        return
    size = shapes.maybe("head_dim") or hidden // max(heads, 1)
    groups = shapes.maybe("num_key_value_heads") or heads
    gated = text.get("attn_output_gate") is True or text.get("model_type") in estimate_fact("output_gate")
    yield Part("attention", hidden * size * (heads * (2 if gated else 1) + 2 * groups + heads))


def _linear(shapes: Shapes, hidden: int) -> Iterator[Part]:
    """Gated DeltaNet, as in Qwen3-Next and Qwen3.5."""
    heads = shapes.get("linear_num_value_heads")
    keys = shapes.get("linear_num_key_heads") * shapes.get("linear_key_head_dim")
    values = heads * shapes.get("linear_value_head_dim")
    yield Part("linear", hidden * (2 * keys + 3 * values))
    yield Part("kept", 2 * hidden * heads + (2 * keys + values) * shapes.get("linear_conv_kernel_dim"))


def _sparse(text: Mapping[str, Any], layers: int) -> list[bool]:
    """Which layers have experts."""
    shapes = Shapes(text)
    if not _expert_count(shapes):
        return [False] * layers
    for key, sign in (("mlp_layer_types", "sparse"), ("moe_layer_freq", 1)):
        if isinstance(text.get(key), list):
            return [kind == sign for kind in [*text[key], *[sign] * layers][:layers]]
    every = shapes.maybe("decoder_sparse_step", "moe_layer_freq") or 1
    first = shapes.zero("first_k_dense_replace")
    given = text.get("mlp_only_layers")
    plain = {layer for layer in given if isinstance(layer, int)} if isinstance(given, list) else set()
    offset = 1 if "decoder_sparse_step" in text else 0
    return [layer >= first and layer not in plain and (layer + offset) % every == 0 for layer in range(layers)]


def _expert_count(shapes: Shapes) -> int:
    return shapes.zero("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


def _experts(shapes: Shapes, hidden: int) -> Iterator[Part]:
    """Routed and shared experts, and the router."""
    count = _expert_count(shapes)
    width = shapes.get("moe_intermediate_size", "intermediate_size")
    shared = shapes.maybe("shared_expert_intermediate_size")
    if shared is None:
        shared = width * shapes.zero("n_shared_experts", "num_shared_experts")
    yield Part("experts", 3 * hidden * count * width)
    yield Part("dense", 3 * hidden * shared)
    yield Part("kept", hidden * count)


def _dense_width(shapes: Shapes) -> int:
    return shapes.maybe("intermediate_size", "ffn_hidden_size", "n_inner") or 4 * shapes.get("hidden_size", "n_embd")


def _matrices(text: Mapping[str, Any]) -> int:
    return 2 if text.get("model_type") in estimate_fact("ungated") else 3


def _draft(text: Mapping[str, Any], hidden: int, layer: list[Part]) -> Iterator[Part]:
    """Layers that predict more tokens; DeepSeek and GLM store embedding and head with each once more."""
    shapes = Shapes(text)
    own = shapes.zero("mtp_num_hidden_layers")
    layers = own or shapes.zero("num_nextn_predict_layers")
    if layers > _LAYERS:
        raise Unsized("num_nextn_predict_layers")
    yield Part("draft", layers * (sum(part.count for part in layer) + 2 * hidden * hidden), language=False)
    if not own:
        yield Part("kept", layers * 2 * shapes.get("vocab_size") * hidden, language=False)


def _vision(whole: Mapping[str, Any]) -> Iterator[Part]:
    """A tower of plain transformer blocks with what joins it to the language model, as in Qwen's and most others'."""
    given = whole.get("vision_config")
    if given is None:
        return
    if not isinstance(given, dict):
        raise Unsized("vision_config")
    shapes = Shapes(given)
    width, blocks = shapes.get("hidden_size"), shapes.get("depth", "num_hidden_layers")
    count = blocks * (4 * width * width + 2 * width * shapes.get("intermediate_size"))
    pixels = shapes.zero("patch_size") ** 2 * (shapes.maybe("temporal_patch_size") or 1)
    count += width * (
        (shapes.maybe("in_channels", "num_channels") or 3) * pixels + shapes.zero("num_position_embeddings")
    )
    if out := shapes.maybe("out_hidden_size"):
        merged = width * (shapes.maybe("spatial_merge_size") or 2) ** 2
        deep = given.get("deepstack_visual_indexes")
        count += merged * (merged + out) * (1 + (len(deep) if isinstance(deep, list) else 0))
    yield Part("kept", count, language=False)


def _width(part: Part, config: Config) -> float:
    """Bytes of one parameter of this part, in the mean of all layers."""
    plain = _WIDTHS.get(config.dtype, 2)
    quantization = config.quantization
    if quantization is None or part.kind == "kept":
        return plain
    if quantization.bits is None:
        raise Unsized("quantization_config")
    kind = format_of(quantization.method, quantization.algorithm)
    scales = plain / math.prod(quantization.block) if quantization.block else (kind.scales if kind else 0.0)
    alone = _left_alone(part.kind, quantization, Shapes(config.text).get("num_hidden_layers", "n_layer"))
    return alone * plain + (1 - alone) * (quantization.bits / 8 + scales)


def _left_alone(kind: str, quantization: Quantization, layers: int) -> float:
    """The share of layers whose attention is among the modules that stay as they were; all of them in gpt-oss."""
    module = {"attention": "self_attn", "linear": "linear_attn"}.get(kind)
    names = [name for name in quantization.skipped if module and name.rstrip("*$.").endswith(module)]
    numbers = [_NUMBER.search(name) for name in names]
    if not all(numbers):
        return 1.0  # a pattern that names no layer is for all
    return min(1.0, len({match[0] for match in numbers if match}) / layers)
