"""How a model is cut over ranks: tensor, pipeline and expert parallel, and what each rank then holds and reads.

Source: vllm 0.32.0: distributed/utils.py (get_pp_indices), model_executor/layers/vocab_parallel_embedding.py,
layers/linear.py, layers/fused_moe/expert_map_manager.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bascule.core.shape import Dimensions, Shape, Weight

VOCABULARY_UNIT = 64  # rows that an embedding is padded to


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks: `tensor` of them share each layer, `pipeline` stages follow each other, on so many nodes."""

    tensor: int = 1
    pipeline: int = 1
    nodes: int = 1
    experts: bool = False  # each rank of a stage holds whole experts instead of a slice of all (expert parallel)

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.tensor * self.pipeline

    @property
    def on_each(self) -> int:
        """Ranks on one node."""
        return -(-self.ranks // self.nodes)

    @property
    def crosses(self) -> bool:
        """Ranks that share a layer are on several nodes."""
        return self.nodes > 1 and self.on_each % self.tensor != 0

    def __str__(self) -> str:
        words = [f"tensor parallel {self.tensor}"] if self.tensor > 1 or self.pipeline == 1 else []
        words += [f"pipeline parallel {self.pipeline}"] if self.pipeline > 1 else []
        words += ["expert parallel"] if self.experts else []
        return " × ".join(words)


@dataclass(frozen=True, slots=True)
class Customs:
    """What engines do differently about it."""

    pads_vocabulary: bool = False  # to a multiple of ranks; else a vocabulary that doesn't divide is refused
    uneven_experts: bool = True  # a rank may hold one more than another
    cuts_tower: bool = True  # the vision tower is cut as the layers are; else every rank holds it


def stage_bounds(layers: int, stages: int) -> list[tuple[int, int]]:
    """First layer and end of each pipeline stage; what is left over goes to those before the last."""
    sizes = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        sizes[-back] += 1
    ends = [sum(sizes[: number + 1]) for number in range(stages)]
    return [(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def stage_kinds(shape: Shape, layout: Layout, stage: int) -> Counter[int]:
    """How many layers of each kind a pipeline stage has; a kind is a place in the shape's `layers`."""
    begin, end = stage_bounds(len(shape.order), layout.pipeline)[stage]
    return Counter(shape.order[begin:end])


def stage_weights(shape: Shape, layout: Layout, stage: int, *, drafts: bool = False) -> Iterator[tuple[Weight, int]]:
    """All weights that the ranks of this stage share, and how often they are there."""
    first, last = stage == 0, stage == layout.pipeline - 1
    for kind, count in stage_kinds(shape, layout, stage).items():
        yield from ((weight, count) for weight in shape.layers[kind].weights)
    behind = (*shape.last, *(shape.draft if drafts else ())) if last else ()
    yield from ((weight, 1) for weight in (*(shape.first if first else ()), *behind))


def held_of(shape: Shape, layout: Layout, stage: int, customs: Customs, *, drafts: bool = False) -> dict[str, int]:
    """Bytes on each rank of this stage, by part; head and embedding are there once where they are one matrix."""
    held: Counter[str] = Counter()
    once = shape.tied and layout.pipeline == 1
    for weight, count in stage_weights(shape, layout, stage, drafts=drafts):
        if not (once and weight.part == "head"):
            held[weight.part] += count * share_of(weight, shape.dimensions, layout, customs)
    return dict(held)


def share_of(weight: Weight, sizes: Dimensions, layout: Layout, customs: Customs) -> int:
    """Bytes of this weight on each rank of its stage."""
    tensor = layout.tensor
    if weight.split == "whole" or (weight.part == "vision" and not customs.cuts_tower):
        return weight.bytes
    if weight.split == "heads":
        return -(-weight.bytes // min(tensor, sizes.kv_heads or tensor))
    if weight.split == "experts" and layout.experts and sizes.experts:
        return -(-weight.bytes * -(-sizes.experts // tensor) // sizes.experts)
    if weight.split == "vocabulary" and sizes.vocabulary:
        rows = -(-sizes.vocabulary // VOCABULARY_UNIT) * VOCABULARY_UNIT
        return -(-weight.bytes * rows // sizes.vocabulary // tensor)
    return -(-weight.bytes // tensor)


def read_of(weight: Weight, sizes: Dimensions, layout: Layout, customs: Customs) -> float:
    """Bytes of this weight that a rank reads for one token; of whole experts at least its fair share of the chosen."""
    if weight.split == "experts" and layout.experts and sizes.experts:
        return weight.bytes / sizes.experts * -(-sizes.experts_active // layout.tensor)
    return share_of(weight, sizes, layout, customs) * weight.active
