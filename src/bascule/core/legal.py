"""Which layouts an engine refuses, before it is started: pure rules over a model's shape.

Sources: vllm 0.32.0: config/model.py (verify_with_parallel_config), distributed/utils.py (divide),
model_executor/layers/vocab_parallel_embedding.py, layers/linear.py, layers/quantization/utils/fp8_utils.py
(validate_fp8_block_shape); sglang 0.5.15: srt/layers/moe/fused_moe_triton/layer.py, vocab_parallel_embedding.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bascule.core.parallel import VOCABULARY_UNIT, Customs, Layout
from bascule.core.shape import Dimensions, Shape

_SMALLER = "take another tensor parallel size"
_WHOLE_TOWER = "--mm-encoder-tp-mode data keeps the vision tower whole on every rank"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an engine would refuse a layout, as words a person can search for, and what to do."""

    code: str
    says: str
    remedy: str


def refusals(shape: Shape, layout: Layout, customs: Customs) -> tuple[Refusal, ...]:
    """Everything about this layout that an engine would refuse; none: it is legal."""
    sizes = shape.dimensions
    found = [
        *_nodes(layout),
        *_layers(shape, layout),
        *_heads(sizes, layout, customs),
        *_widths(sizes, layout, customs),
    ]
    if layout.experts:
        found += _experts(sizes.experts, layout.tensor, customs)
    return (*found, *(() if found else _blocks(shape, layout, customs)))


def _nodes(layout: Layout) -> Iterator[Refusal]:
    if layout.ranks % layout.nodes:
        yield Refusal(
            "nodes-uneven",
            f"{layout.ranks} ranks don't divide over {layout.nodes} nodes",
            "take as many ranks on every node",
        )


def _layers(shape: Shape, layout: Layout) -> Iterator[Refusal]:
    if layout.pipeline > len(shape.order):
        yield Refusal(
            "layers-too-few",
            f"{len(shape.order)} layers are too few for {layout.pipeline} stages",
            "take fewer stages",
        )


def _heads(sizes: Dimensions, layout: Layout, customs: Customs) -> Iterator[Refusal]:
    """Every rank gets as many heads; KV heads may be repeated instead."""
    tensor = layout.tensor
    if sizes.heads % tensor:
        yield Refusal("heads-not-divisible", f"{sizes.heads} attention heads don't divide by {tensor}", _SMALLER)
    if sizes.kv_heads % tensor and tensor % sizes.kv_heads:
        yield Refusal("kv-heads-not-divisible", f"{sizes.kv_heads} KV heads and {tensor} ranks don't divide", _SMALLER)
    if sizes.state_heads % tensor or sizes.state_groups % tensor:
        says = (
            f"{sizes.state_heads} heads and {sizes.state_groups} key heads of recurrent layers don't divide by {tensor}"
        )
        yield Refusal("state-heads-not-divisible", says, _SMALLER)
    if sizes.vision_heads % tensor and customs.cuts_tower:
        says = f"{sizes.vision_heads} heads of the vision tower don't divide by {tensor}"
        yield Refusal("vision-heads-not-divisible", says, _WHOLE_TOWER)


def _widths(sizes: Dimensions, layout: Layout, customs: Customs) -> Iterator[Refusal]:
    """Matrices and the vocabulary are cut into equal slices."""
    tensor = layout.tensor
    widths = {"feed-forward blocks": sizes.dense_width, "shared experts": sizes.shared_width}
    if not layout.experts:
        widths["experts"] = sizes.expert_width
    for what, width in widths.items():
        if width % tensor:
            says = f"{what} are {width} wide, which does not divide by {tensor}"
            yield Refusal("width-not-divisible", says, _SMALLER)
    rows = -(-sizes.vocabulary // VOCABULARY_UNIT) * VOCABULARY_UNIT
    if rows % tensor and not customs.pads_vocabulary:
        says = f"a vocabulary of {sizes.vocabulary}, padded to {rows}, does not divide by {tensor}"
        yield Refusal("vocabulary-not-divisible", says, _SMALLER)


def _experts(experts: int, tensor: int, customs: Customs) -> Iterator[Refusal]:
    if experts < tensor:
        yield Refusal("experts-not-divisible", f"{experts} experts are too few for {tensor} ranks", _SMALLER)
    elif experts % tensor and not customs.uneven_experts:
        yield Refusal("experts-not-divisible", f"{experts} experts don't divide by {tensor}", _SMALLER)


def _blocks(shape: Shape, layout: Layout, customs: Customs) -> Iterator[Refusal]:
    """Matrices whose blocks of quantized weights would be cut through; told once for each share."""
    told = set()
    for side in shape.sides:
        tower = side.matrix.startswith("visual.")
        cut = not (side.of_experts and layout.experts) and not (tower and not customs.cuts_tower)
        share = max(side.size // layout.tensor, side.least) if cut else side.size
        if share % side.block == 0 or not (side.always or (cut and layout.tensor > 1)) or (share, tower) in told:
            continue
        told.add((share, tower))
        yield Refusal(
            "fp8-block-indivisible",
            f"{side.matrix}: {side.size} over {layout.tensor} ranks is {share}, not a multiple of the block of "
            f"{side.block} that shares a scale",
            _way_out(side.of_experts, tower),
        )


def _way_out(of_experts: bool, tower: bool) -> str:
    if tower:
        return f"{_WHOLE_TOWER}; if it is not quantized, modules_to_not_convert has to name each of its modules"
    return "--enable-expert-parallel leaves experts whole" if of_experts else _SMALLER
