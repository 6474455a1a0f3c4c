"""How fast a model can answer one request at best: bytes read a token over memory bandwidth, and exchanges of ranks.

A bound, not a forecast: every byte is read once at full bandwidth, and every exchange takes its best time.
"""

from __future__ import annotations

from dataclasses import dataclass

from bascule.core.parallel import Customs, Layout, read_of, stage_kinds, stage_weights
from bascule.core.shape import Layer, Shape


@dataclass(frozen=True, slots=True)
class Link:
    """How ranks exchange: the time of one small all-reduce in seconds, and bytes a second of large ones."""

    kind: str  # NVLink, PCIe, RDMA, sockets, or measured
    latency_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class Bound:
    """The most tokens a second for one request, and what they cost; None: not known, `unknown` says why."""

    tok_s: float | None
    bytes_per_token: float  # that one rank of each stage reads, all stages together
    memory_s: float | None  # seconds a token for these
    exchanges: int  # all-reduces and gathers a token
    exchange_s: float | None  # seconds a token for these, and for hops from stage to stage
    unknown: str = ""

    @property
    def lost(self) -> float | None:
        """Share of the time of a token that goes to exchanges."""
        if self.memory_s is None or self.exchange_s is None:
            return None
        return self.exchange_s / (self.memory_s + self.exchange_s)


@dataclass(frozen=True, slots=True)
class Speed:
    """What a bound is made of besides the model: bytes a second of a GPU's memory, and the link between ranks."""

    bandwidth: float | None
    link: Link | None  # between ranks that share a layer
    hop: Link | None = None  # from stage to stage; None: the same


def bound(
    shape: Shape, layout: Layout, speed: Speed, customs: Customs, context: int = 0, number: int | None = None
) -> Bound:
    """The bound behind `context` tokens; `number`: bytes of one number in the cache, None as the model's."""
    number = number or shape.number
    size = sum(_stage_bytes(shape, layout, stage, customs, context, number) for stage in range(layout.pipeline))
    count = exchanges(shape, layout)
    memory_s = size / speed.bandwidth if speed.bandwidth else None
    spent_s = _spent(shape, layout, count, speed)
    unknown = _unknown(speed, memory_s, spent_s)
    total = None if memory_s is None or spent_s is None else memory_s + spent_s
    return Bound(1 / total if total else None, size, memory_s, count, spent_s, unknown)


def exchanges(shape: Shape, layout: Layout) -> int:
    """Collectives of one token: behind each attention and each feed-forward block, the embedding, and the logits."""
    if layout.tensor == 1:
        return 0
    return sum(_in(shape.layers[kind]) for kind in shape.order) + 2


def _in(layer: Layer) -> int:
    parts = {weight.part for weight in layer.weights if weight.bytes}
    return bool(parts & {"attention", "recurrent"}) + bool(parts & {"dense", "experts", "shared"})


def _stage_bytes(shape: Shape, layout: Layout, stage: int, customs: Customs, context: int, number: int) -> float:
    """Weights, the keys and values of all tokens before, and states, which are read and written."""
    size = sum(
        count * read_of(weight, shape.dimensions, layout, customs)
        for weight, count in stage_weights(shape, layout, stage)
    )
    for mixer, count in shape.mixers(stage_kinds(shape, layout, stage)).items():
        tokens = min(context, mixer.window) if mixer.window else context
        size += count * mixer.token_bytes(layout.tensor, number) * tokens
        size += count * 2 * mixer.state.rank_bytes(layout.tensor) if mixer.state else 0
    return size


def _spent(shape: Shape, layout: Layout, count: int, speed: Speed) -> float | None:
    """Seconds a token for exchanges; a ring moves 2 (n - 1) / n of a vector."""
    link, hop = speed.link, speed.hop or speed.link
    if (layout.tensor > 1 and link is None) or (layout.pipeline > 1 and hop is None):
        return None
    vector = shape.dimensions.hidden * shape.number
    spent = 0.0
    if link and layout.tensor > 1:
        ring = 2 * (layout.tensor - 1) / layout.tensor * vector
        spent += count * (link.latency_s + ring / link.rate) + shape.dimensions.vocabulary * shape.number / link.rate
    if hop and layout.pipeline > 1:
        spent += (layout.pipeline - 1) * (hop.latency_s + vector / hop.rate)
    return spent


def _unknown(speed: Speed, memory_s: float | None, spent_s: float | None) -> str:
    if memory_s is None:
        return "the bandwidth of its memory is not known"
    return "" if spent_s is not None else "the link between the ranks is not known"
