"""What of a model decides where it fits: its layers, what they weigh and what they remember; frozen data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

# Who holds a weight in a pipeline stage: every rank all of it, each its share, each its share as far as there are KV
# heads, each its share of the vocabulary, or each some of the routed experts.
Split = Literal["whole", "tensor", "heads", "vocabulary", "experts"]
# full keeps every token, sliding and chunked those of a window, latent one compressed vector a token (DeepSeek's MLA),
# recurrent a state of fixed size, none nothing.
Memory = Literal["full", "sliding", "chunked", "latent", "recurrent", "none"]


@dataclass(frozen=True, slots=True)
class State:
    """What a recurrent layer keeps of a sequence, however long it is: a convolution's window and a matrix a head."""

    heads: int
    cells: int  # numbers in the matrix of one head
    channels: int  # of the convolution, those that belong to heads
    groups: int  # heads of keys, or groups of Mamba
    group_channels: int  # of the convolution, for each group
    taps: int  # tokens that the convolution looks back
    conv_bytes: int  # of one number in the convolution's window
    cell_bytes: int | None  # of one number in the matrices; None: the model doesn't say, and the engine decides
    mamba: bool = False  # Mamba-2: groups are repeated where there are more ranks than groups, else they must divide

    def rank_bytes(self, tensor: int) -> int:
        """Bytes of one sequence in one layer on each of `tensor` ranks."""
        groups = self.groups if not self.mamba or self.groups % tensor == 0 else max(tensor, self.groups)
        channels = -(-(self.channels + groups * self.group_channels) // tensor)
        cells = -(-self.heads // tensor) * self.cells
        return channels * self.taps * self.conv_bytes + cells * (self.cell_bytes or self.conv_bytes)


@dataclass(frozen=True, slots=True)
class Mixer:
    """How a layer looks back at earlier tokens, and what it keeps for that."""

    memory: Memory
    kv_heads: int = 0
    width: int = 0  # numbers that one token leaves for each KV head, keys and values; of latent ones, in all
    window: int = 0  # tokens; of sliding and chunked ones
    beside: int = 0  # bytes that one token leaves besides, on every rank: the index of sparse attention
    state: State | None = None

    def token_bytes(self, tensor: int, number: int) -> int:
        """Bytes of one token in this layer on each of `tensor` ranks, where one number of the cache takes `number`.

        Latent vectors are on every rank, and so is a KV head when there are fewer of them than ranks.
        """
        heads = 1 if self.memory == "latent" else -(-self.kv_heads // tensor)
        return heads * self.width * number + self.beside

    def with_cells(self, size: int) -> Mixer:
        """The same where numbers of a state take so many bytes, unless the model says how many."""
        if self.state is None or self.state.cell_bytes is not None:
            return self
        return replace(self, state=replace(self.state, cell_bytes=size))


@dataclass(frozen=True, slots=True)
class Weight:
    """Weights of one part: bytes, who holds them, and which share of them one token reads."""

    part: str  # embedding, head, attention, recurrent, dense, experts, shared, router, norms, vision, draft, other
    bytes: int
    split: Split
    active: float = 1.0  # routed experts: those chosen of all; an embedding: next to nothing


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the language model."""

    mixer: Mixer
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a matrix that tensor parallelism cuts and whose weights are quantized in blocks."""

    matrix: str  # as the engine names it
    size: int
    block: int
    of_experts: bool = False  # left whole by expert parallelism
    always: bool = False  # checked on one rank too: matrices that engines join
    least: int = 1  # the smallest share: a KV head is not cut but repeated


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The counts that a layout has to divide; 0 = the model has none."""

    heads: int = 0
    kv_heads: int = 0  # 0: every head is one, or latent attention
    state_heads: int = 0
    state_groups: int = 0
    experts: int = 0
    experts_active: int = 0  # of a token
    expert_width: int = 0
    dense_width: int = 0
    shared_width: int = 0
    vision_heads: int = 0
    hidden: int = 0
    vocabulary: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as memory and bandwidth see it; layers that are alike stand in `layers` once."""

    dimensions: Dimensions
    layers: tuple[Layer, ...]
    order: tuple[int, ...]  # layer number -> its place in `layers`
    first: tuple[Weight, ...]  # before the first layer: the embedding, the vision tower
    last: tuple[Weight, ...]  # behind the last layer: the head
    draft: tuple[Weight, ...] = ()  # layers that predict more tokens; loaded only when they are asked for
    sides: tuple[Side, ...] = ()
    number: int = 2  # bytes of one number of its activations, and of a KV cache of which nothing else is said
    context: int | None = None  # the most tokens that it was made for; None: its configuration doesn't say
    tied: bool = False  # head and embedding are one matrix
    exact: bool = False  # bytes were counted in the weights' headers

    @property
    def recurrent(self) -> bool:
        """Some layers keep a state instead of tokens."""
        return any(layer.mixer.state for layer in self.layers)

    def with_cells(self, size: int) -> Shape:
        """The same where an engine takes so many bytes for a number of those states of which the model says nothing."""
        return replace(self, layers=tuple(replace(layer, mixer=layer.mixer.with_cells(size)) for layer in self.layers))

    def mixers(self, kinds: Mapping[int, int]) -> Counter[Mixer]:
        """How layers of these kinds, so many of each, remember."""
        found: Counter[Mixer] = Counter()
        for kind, count in kinds.items():
            found[self.layers[kind].mixer] += count
        return found


@dataclass(frozen=True, slots=True)
class Unshaped:
    """Why a configuration doesn't tell the shape of its model."""

    key: str
    says: str
    seen: str = ""  # what stands there, shortened
    absurd: bool = False  # the value can't be meant; else the kind of model is not known here
