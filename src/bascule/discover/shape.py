"""The shape of a model from its config.json and, where they were read, its weights' headers (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bascule.core.shape import Dimensions, Layer, Mixer, Shape, Unshaped, Weight
from bascule.discover.blocks import blocks_of, expert_count, layer_count
from bascule.discover.config import Config
from bascule.discover.estimate import plain_width, width_of
from bascule.discover.jsons import shortened
from bascule.discover.mixers import attention_kinds, kv_heads, mixer_of
from bascule.discover.numbers import Shapes, Unsized
from bascule.discover.parts import dense_width, expert_width, is_tied, parts_of, shared_width
from bascule.discover.sides import sides_of
from bascule.discover.tensors import OUTSIDE, Place, behind
from bascule.discover.weights import Weights

_UNKNOWN_MOST = 0.02  # share of bytes under names that no pattern knows, beyond which parts are only scaled
_READ_NEVER = ("embedding", "vision", "draft")  # by a token of text: a row of the embedding is next to nothing


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Weights as they lie: in each layer, and outside of them."""

    layers: Sequence[tuple[Weight, ...]]
    outside: tuple[Weight, ...]


def shape_of(config: Config, weights: Weights) -> Shape | Unshaped:
    """The shape, or why it can't be told."""
    try:
        return _shape(config, weights)
    except Unsized as why:
        absurd = why.seen is not None and why.key != "model_type"
        return Unshaped(why.key, str(why), "" if why.seen is None else shortened(why.seen), absurd)


def _shape(config: Config, weights: Weights) -> Shape:
    text = config.text
    dimensions = _dimensions(config)
    sheet = _weighed(config, weights, dimensions)
    hidden, number = dimensions.hidden, plain_width(config)
    layers = [Layer(mixer, own) for mixer, own in zip(_mixers(text, hidden, number), sheet.layers, strict=True)]
    kinds = list(dict.fromkeys(layers))
    places = {layer: place for place, layer in enumerate(kinds)}
    return Shape(
        dimensions,
        tuple(kinds),
        tuple(places[layer] for layer in layers),
        tuple(one for one in sheet.outside if one.part in ("embedding", "vision")),
        tuple(one for one in sheet.outside if one.part not in ("embedding", "vision", "draft")),
        tuple(one for one in sheet.outside if one.part == "draft"),
        sides_of(config, dimensions),
        number,
        _context(text),
        is_tied(config),
        bool(weights.parts),
    )


def _dimensions(config: Config) -> Dimensions:
    """The counts; raises Unsized for those that can't be meant."""
    text = config.text
    shapes = Shapes(text)
    hidden, words = _positive(shapes, "hidden_size", "n_embd"), _positive(shapes, "vocab_size")
    blocks = [block for one in blocks_of(text, layer_count(text)) for block in one]
    heads, groups = kv_heads(text)
    state = next((mixer.state for mixer in _mixers(text, hidden, 2) if mixer.state), None)
    experts = expert_count(text) if "moe" in blocks else 0
    vision = config.whole.get("vision_config")
    return Dimensions(
        heads,
        0 if shapes.maybe("kv_lora_rank") else groups,
        state.heads if state else 0,
        state.groups if state and not (state.mamba and state.groups == 1) else 0,
        experts,
        _active(text, experts) if experts else 0,
        expert_width(text) if experts else 0,
        dense_width(text) if "mlp" in blocks else 0,
        shared_width(text) if experts else 0,
        Shapes(vision).zero("num_heads", "num_attention_heads") if isinstance(vision, dict) else 0,
        hidden,
        words,
    )


def _positive(shapes: Shapes, *names: str) -> int:
    value = shapes.get(*names)
    if not value:
        raise Unsized(f"{names[0]} is 0", names[0], 0)
    return value


def _active(text: Mapping[str, Any], experts: int) -> int:
    """Routed experts that one token uses."""
    active = Shapes(text).get(
        "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts"
    )
    if not 0 < active <= experts:
        raise Unsized(f"num_experts_per_tok is not from 1 to {experts}", "num_experts_per_tok", active)
    return active


def _mixers(text: Mapping[str, Any], hidden: int, number: int) -> list[Mixer]:
    layers = layer_count(text)
    blocks = blocks_of(text, layers)
    kinds = attention_kinds(text, layers) if all(len(block) == 2 for block in blocks) else [one[0] for one in blocks]
    found = {
        kind: Mixer("none") if kind in ("mlp", "moe") else mixer_of(kind, text, hidden, number) for kind in set(kinds)
    }
    return [found[kind] for kind in kinds]


def _context(text: Mapping[str, Any]) -> int | None:
    """The most tokens that the model was made for; YaRN stretches what it was trained on."""
    rope = text.get("rope_scaling") or text.get("rope_parameters")
    if isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) == "yarn":
        begun, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
        if isinstance(begun, int) and isinstance(factor, int | float) and 0 < begun * factor < 10**9:
            return int(begun * factor)
    given = Shapes(text).maybe("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
    if given == 0:
        raise Unsized("max_position_embeddings is 0", "max_position_embeddings", 0)
    return given


def _weighed(config: Config, weights: Weights, dimensions: Dimensions) -> _Sheet:
    """Bytes by the configuration, put right by what was counted."""
    sheet = _by_configuration(config, dimensions)
    layers = len(sheet.layers)
    counted = behind(weights.parts, layers) if weights.parts else {}
    unknown = sum(size for (_, part), size in counted.items() if part == "other")
    if counted and unknown <= _UNKNOWN_MOST * sum(counted.values()):
        return _corrected(sheet, counted, tied=is_tied(config))
    if weights.bytes and weights.exact:
        return _scaled(sheet, weights.bytes, tied=is_tied(config))
    return sheet


def _by_configuration(config: Config, dimensions: Dimensions) -> _Sheet:
    rows: list[list[Weight]] = [[] for _ in range(layer_count(config.text))]
    outside: list[Weight] = []
    share = dimensions.experts_active / dimensions.experts if dimensions.experts else 1.0
    widths: dict[tuple[str, str], float] = {}
    for part in parts_of(config):
        width = widths.setdefault((part.kind, part.name), width_of(part, config))
        active = 0.0 if part.name in _READ_NEVER else share if part.name == "experts" else 1.0
        weight = Weight(part.name, round(part.count * width), part.split, active)
        (outside if part.layer is None else rows[part.layer]).append(weight)
    if is_tied(config):  # the head reads the embedding's matrix
        words = next(one.bytes for one in outside if one.part == "embedding")
        outside = [replace(one, bytes=words) if one.part == "head" else one for one in outside]
    return _Sheet([tuple(row) for row in rows], tuple(outside))


def _corrected(sheet: _Sheet, counted: Mapping[Place, int], *, tied: bool) -> _Sheet:
    """Every part as large as its tensors are."""
    by_layer: dict[int, dict[str, int]] = {}
    for (layer, part), size in counted.items():
        by_layer.setdefault(layer, {})[part] = size
    outside = dict(by_layer.get(OUTSIDE, {}))
    if tied:
        outside["head"] = outside.get("embedding", 0)
    return _Sheet(
        [_as_counted(row, by_layer.get(number, {})) for number, row in enumerate(sheet.layers)],
        _as_counted(sheet.outside, outside),
    )


def _as_counted(row: Iterable[Weight], counted: Mapping[str, int]) -> tuple[Weight, ...]:
    row = tuple(row)
    expected = Counter[str]()
    for one in row:
        expected[one.part] += one.bytes
    known = [
        replace(one, bytes=round(one.bytes * counted.get(one.part, 0) / expected[one.part]))
        for one in row
        if expected[one.part]
    ]
    more = [
        Weight(part, size, "whole", 0.0 if part in _READ_NEVER else 1.0)
        for part, size in sorted(counted.items())
        if size and not expected[part]
    ]
    return (*known, *more)


def _scaled(sheet: _Sheet, size: int, *, tied: bool) -> _Sheet:
    """All parts in proportion, so that together they are as large as the files."""
    rows = [*sheet.layers, sheet.outside]
    total = sum(one.bytes for row in rows for one in row if not (tied and one.part == "head"))
    factor = size / total if total else 1.0

    def scaled(row: tuple[Weight, ...]) -> tuple[Weight, ...]:
        return tuple(replace(one, bytes=round(one.bytes * factor)) for one in row)

    return _Sheet([scaled(row) for row in sheet.layers], scaled(sheet.outside))
