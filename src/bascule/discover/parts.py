"""The weights of a model by its config.json alone, part by part: the products of its shapes (pure).

Norms and biases are left out (less than 0.1 %). What is not understood raises Unsized rather than give a wrong figure.
Formulas: modeling_*.py of transformers 5.19.0; figures in tests/discover/test_model_estimate.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bascule.core.shape import Split
from bascule.discover.blocks import MOST_LAYERS, blocks_of, check_known, expert_count, layer_count
from bascule.discover.config import Config
from bascule.discover.facts import estimate_fact
from bascule.discover.mixers import head_size
from bascule.discover.numbers import Shapes, Unsized


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters that are stored and divided alike.

    `kind` says how they are stored: experts, attention, linear, dense, draft, or kept (never quantized).
    """

    kind: str
    count: int
    language: bool = True
    name: str = ""  # a part as core.shape.Weight names it
    split: Split = "tensor"
    layer: int | None = None  # None: it is in no layer


def parts_of(config: Config) -> Iterator[Part]:
    """All weights: the embedding, layer by layer, the head, what predicts more tokens, the vision tower."""
    text = config.text
    check_known(config)
    shapes = Shapes(text)
    hidden, layers = shapes.get("hidden_size", "n_embd"), layer_count(text)
    words = shapes.get("vocab_size") * hidden
    yield Part("kept", words, name="embedding", split="vocabulary")
    for number, block in enumerate(blocks_of(text, layers)):
        yield from (replace(part, layer=number) for part in _block(text, hidden, block))
    yield Part("kept", 0 if is_tied(config) else words, name="head", split="vocabulary")
    yield from _draft(text, hidden, _last_layer(text, hidden, layers))
    yield from _vision(config.whole)


def is_tied(config: Config) -> bool:
    """Head and embedding are one matrix."""
    return config.text.get("tie_word_embeddings", config.whole.get("tie_word_embeddings")) is True


def shared_width(text: Mapping[str, Any]) -> int:
    """Width of all shared experts together."""
    shapes = Shapes(text)
    given = shapes.maybe("shared_expert_intermediate_size")
    if given is not None:
        return given
    width = shapes.maybe("moe_shared_expert_intermediate_size") or expert_width(text)
    return width * shapes.zero("n_shared_experts", "num_shared_experts")


def expert_width(text: Mapping[str, Any]) -> int:
    """Width of one routed expert."""
    return Shapes(text).get("moe_intermediate_size", "intermediate_size")


def dense_width(text: Mapping[str, Any]) -> int:
    """Width of the feed-forward block of a layer without experts."""
    shapes = Shapes(text)
    return shapes.maybe("intermediate_size", "ffn_hidden_size", "n_inner") or 4 * shapes.get("hidden_size", "n_embd")


def _block(text: Mapping[str, Any], hidden: int, block: tuple[str, ...]) -> Iterator[Part]:
    shapes = Shapes(text)
    for kind in block:
        if kind == "moe":
            yield from _experts(text, hidden)
        elif kind == "mlp":
            yield Part("dense", _matrices(text) * hidden * dense_width(text), name="dense")
        elif kind == "linear_attention":
            yield from _linear(shapes, hidden)
        elif kind == "mamba":
            yield from _mamba(shapes, hidden)
        else:
            yield from _attention(text, hidden)


def _attention(text: Mapping[str, Any], hidden: int) -> Iterator[Part]:
    """Grouped heads, or DeepSeek's latent ones, of which the projections downwards are on every rank."""
    shapes = Shapes(text)
    heads = shapes.get("num_attention_heads", "n_head")
    if latent := shapes.maybe("kv_lora_rank"):
        rope, value = shapes.get("qk_rope_head_dim"), shapes.get("v_head_dim")
        plain, low = shapes.get("qk_nope_head_dim"), shapes.maybe("q_lora_rank")
        query = heads * (plain + rope)
        downwards = hidden * (latent + rope) + (low * hidden if low else 0)
        upwards = (low or hidden) * query + latent * heads * (plain + value)
        yield Part("attention", downwards, name="attention", split="whole")
        yield Part("attention", upwards + heads * value * hidden, name="attention")
        return
    size = head_size(text, hidden)
    groups = shapes.maybe("num_key_value_heads") or heads
    gated = text.get("attn_output_gate") is True or str(text.get("model_type")) in estimate_fact("output_gate")
    yield Part("attention", hidden * size * heads * (3 if gated else 2), name="attention")
    yield Part("attention", hidden * size * 2 * groups, name="attention", split="heads")


def _linear(shapes: Shapes, hidden: int) -> Iterator[Part]:
    """Gated DeltaNet, as in Qwen3-Next and Qwen3.5."""
    heads = shapes.get("linear_num_value_heads")
    keys = shapes.get("linear_num_key_heads") * shapes.get("linear_key_head_dim")
    values = heads * shapes.get("linear_value_head_dim")
    yield Part("linear", hidden * (2 * keys + 3 * values), name="recurrent")
    small = 2 * hidden * heads + (2 * keys + values) * shapes.get("linear_conv_kernel_dim")
    yield Part("kept", small, name="recurrent")


def _mamba(shapes: Shapes, hidden: int) -> Iterator[Part]:
    """Mamba-2: what goes in (gate, values, keys and queries of each group, steps), a convolution, and out again."""
    heads = shapes.get("mamba_num_heads")
    values = heads * shapes.get("mamba_head_dim")
    groups = 2 * shapes.get("n_groups") * shapes.get("ssm_state_size")
    yield Part("linear", hidden * (3 * values + groups + heads), name="recurrent")
    yield Part("kept", (values + groups) * shapes.get("conv_kernel"), name="recurrent")


def _experts(text: Mapping[str, Any], hidden: int) -> Iterator[Part]:
    """Routed and shared experts, and the router; Nemotron's routed ones may work on narrower vectors."""
    matrices = _matrices(text)
    latent = Shapes(text).maybe("moe_latent_size")
    yield Part(
        "experts",
        matrices * (latent or hidden) * expert_count(text) * expert_width(text),
        name="experts",
        split="experts",
    )
    yield Part("dense", matrices * hidden * shared_width(text), name="shared")
    yield Part("kept", hidden * expert_count(text), name="router", split="whole")
    if latent:
        yield Part("dense", 2 * hidden * latent, name="shared", split="whole")


def _matrices(text: Mapping[str, Any]) -> int:
    return 2 if str(text.get("model_type")) in estimate_fact("ungated") else 3


def _last_layer(text: Mapping[str, Any], hidden: int, layers: int) -> list[Part]:
    """A layer as those are made that predict more tokens: plain attention, and experts where there are some."""
    sparse = any("moe" in block for block in blocks_of(text, layers))
    return list(_block(text, hidden, ("full_attention", "moe" if sparse else "mlp")))


def _draft(text: Mapping[str, Any], hidden: int, layer: list[Part]) -> Iterator[Part]:
    """Layers that predict more tokens; DeepSeek and GLM store embedding and head with each once more."""
    shapes = Shapes(text)
    own = shapes.zero("mtp_num_hidden_layers")
    layers = own or shapes.zero("num_nextn_predict_layers")
    if layers > MOST_LAYERS:
        raise Unsized("num_nextn_predict_layers", "num_nextn_predict_layers", layers)
    count = layers * (sum(part.count for part in layer) + 2 * hidden * hidden)
    yield Part("draft", count, language=False, name="draft")
    if not own:
        again = layers * 2 * shapes.get("vocab_size") * hidden
        yield Part("kept", again, language=False, name="draft", split="vocabulary")


def _vision(whole: Mapping[str, Any]) -> Iterator[Part]:
    """A tower of plain transformer blocks with what joins it to the language model, as in Qwen's and most others'."""
    given = whole.get("vision_config")
    if given is None:
        return
    if not isinstance(given, dict):
        raise Unsized("vision_config", "vision_config", given)
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
    yield Part("kept", count, language=False, name="vision")
