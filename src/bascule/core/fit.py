"""Whether a model fits on nodes in a layout, with which context, for how many sequences, at which utilisation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bascule.core.cache import Cache, CacheRules, cache_of, largest_context
from bascule.core.legal import Refusal, refusals
from bascule.core.parallel import Customs, Layout, held_of, stage_kinds
from bascule.core.roofline import Link
from bascule.core.shape import Shape

USEFUL = 2048  # tokens; with less context than this, or than the model was made for, nothing is served
# vram: a GPU with its own; unified: one memory for GPU, processes and page cache (GB10); ram: no GPU at all.
Kind = Literal["vram", "unified", "ram"]


@dataclass(frozen=True, slots=True)
class Room:
    """The memory that each GPU of a node has for one rank; None: it could not be read, `unknown` says why."""

    node: str
    gpus: int
    total: int | None  # bytes, as the engine sees them
    free: int | None = None  # bytes; page cache that can be had back counts as free
    kind: Kind = "vram"
    device: str = ""  # the GPU's name
    unknown: str = ""
    bandwidth: float | None = None  # bytes a second
    inside: Link | None = None  # between GPUs of this node
    sharers: int = 1  # nodes that use this very memory: several nodes of one machine


@dataclass(frozen=True, slots=True)
class Step:
    """What an engine chooses for GPUs from so many bytes on: tokens of one step, and sequences at once."""

    memory: int
    tokens: int
    sequences: int
    unless: str = ""  # not for GPUs with this in their name


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine uses memory besides weights and sequences; sizes in bytes of one rank."""

    name: str
    cache: CacheRules
    customs: Customs
    context: Mapping[str, int]  # of the driver's context and libraries, by kind of memory
    group: int  # buffers of collectives, where there are several ranks
    graphs: int
    usual: Mapping[str, float]  # share of a memory that is taken without asking, by its kind
    most: Mapping[str, float]  # and the most that is sensible
    steps: tuple[Step, ...]
    outside: bool = False  # activations and graphs lie outside of that share (SGLang's static memory)
    cpu_block: int = 16  # tokens of a block of the cache where there is no GPU
    cells: Mapping[str, int] = field(default_factory=dict)  # bytes of a number of states, where the model says nothing


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for; None leaves it to what fits."""

    context: int | None = None  # tokens of one sequence
    sequences: int | None = None  # at once
    number: int | None = None  # bytes of one number in the cache; None: as the model's
    utilisation: float | None = None
    drafts: bool = False  # also the layers that predict more tokens
    cache_bytes: int | None = None  # for sequences on each rank, whatever the utilisation would leave

    @property
    def count(self) -> int:
        """Sequences that have to fit."""
        return self.sequences or 1


@dataclass(frozen=True, slots=True)
class NodeFit:
    """The rank of a node that needs most: bytes of each kind, and what there is."""

    node: str
    weights: int
    overhead: int  # context, collectives, activations, graphs
    cache: int  # for what is asked for, or for the largest context that fits
    room: int | None  # the most that the engine may take
    total: int | None
    fits: bool | None  # None: not known, `unknown` says why
    unknown: str = ""
    parts: Mapping[str, int] = field(default_factory=dict)  # weights by part


@dataclass(frozen=True, slots=True)
class Fit:
    """A layout on these nodes. None: not known."""

    layout: Layout
    refusals: tuple[Refusal, ...] = ()
    nodes: tuple[NodeFit, ...] = ()
    fits: bool | None = None
    context: int | None = None  # the longest sequence, up to what the model was made for
    sequences: int | None = None  # of the context that is asked for, else of the longest
    tokens: int | None = None  # the size of the cache, as the engine will print it
    utilisation: float | None = None

    @property
    def legal(self) -> bool:
        """The engine would not refuse it."""
        return not self.refusals

    @property
    def unknown(self) -> str:
        """Why it is not known whether it fits."""
        return next((node.unknown for node in self.nodes if node.unknown), "")


@dataclass(frozen=True, slots=True)
class _Seat:
    """Ranks of one stage on one node, which are all alike."""

    room: Room
    parts: Mapping[str, int]
    inside: int  # overhead that the utilisation has to cover
    beside: int  # overhead that it leaves free
    cache: Cache

    @property
    def weights(self) -> int:
        return sum(self.parts.values())


def fit(shape: Shape, layout: Layout, rooms: Sequence[Room], engine: Engine, wish: Wish) -> Fit:
    """The fit of a model in this layout on the first nodes of `rooms`, one for each of its nodes."""
    refused = (*refusals(shape, layout, engine.customs), *_too_long(shape, wish))
    if refused:
        return Fit(layout, refused)
    seats = list(_seats(as_kept(shape, rooms[0], engine), layout, rooms, engine, wish))
    unread = [seat.room for seat in seats if seat.room.total is None]
    if unread:
        return Fit(layout, nodes=tuple(_node(seat, None, 0, None) for seat in _one_a_node(seats, 0)))
    aim = wish.context or shape.context or USEFUL
    share = _share(seats, engine, wish, aim)
    context = min(largest_context(seat.cache, _left(seat, share, wish), shape.context or aim) for seat in seats)
    wanted = wish.context or min(aim, max(context, 1))
    enough = context >= (wish.context or min(USEFUL, aim))
    sequences = min(seat.cache.sequences(_left(seat, share, wish), wanted) for seat in seats) if enough else 0
    fits = enough and sequences >= wish.count and all(_said_is_there(seat, wish) for seat in seats)
    return Fit(
        layout,
        (),
        tuple(
            _node(seat, share, seat.cache.needs(wanted, wish.count), _holds(seat, engine, wish, wanted))
            for seat in _one_a_node(seats, wanted)
        ),
        fits,
        context,
        sequences,
        min(seat.cache.tokens(_left(seat, share, wish), wanted) for seat in seats),
        share,
    )


def as_kept(shape: Shape, room: Room, engine: Engine) -> Shape:
    """The shape with states as this engine keeps them there."""
    size = engine.cells.get(room.kind)
    return shape.with_cells(size) if size else shape


def activations(shape: Shape, layout: Layout, step: Step) -> int:
    """Bytes at the peak of a step: the residual stream and the widest block of a layer, or else the logits.

    Within 0.1 GiB of a recorded start of a model with 256 experts; a model of another kind may take twice as much.
    Logits are there as the model gives them, as 32-bit numbers, and once more for the choice of a token.
    """
    sizes, tensor = shape.dimensions, layout.tensor
    dense = 3 * max(sizes.dense_width, sizes.shared_width) // tensor
    width = sizes.expert_width if layout.experts else sizes.expert_width // tensor
    routed = sizes.experts_active * (max(sizes.hidden, 2 * width) + width)
    hidden = step.tokens * shape.number * (4 * sizes.hidden + max(dense, routed))
    return max(hidden, step.sequences * sizes.vocabulary * (shape.number + 8))


def step_of(room: Room, engine: Engine, wish: Wish) -> Step:
    """How many tokens and sequences the engine will take at once on such a GPU."""
    memory = room.total or 0
    found = next(
        step for step in engine.steps if memory >= step.memory and not (step.unless and step.unless in room.device)
    )
    return replace(found, sequences=wish.sequences or found.sequences)


def _too_long(shape: Shape, wish: Wish) -> Iterator[Refusal]:
    if wish.context and shape.context and wish.context > shape.context:
        yield Refusal(
            "context-too-long",
            f"a context of {wish.context} tokens is longer than the {shape.context} that the model was made for",
            f"ask for {shape.context} at most",
        )


def _seats(shape: Shape, layout: Layout, rooms: Sequence[Room], engine: Engine, wish: Wish) -> Iterator[_Seat]:
    """One for each stage on each node that has ranks of it."""
    places = dict.fromkeys((rank // layout.on_each, rank // layout.tensor) for rank in range(layout.ranks))
    everywhere = shape.mixers({kind: shape.order.count(kind) for kind in range(len(shape.layers))})
    number = wish.number or shape.number
    for node, stage in places:
        room = rooms[node]
        step = step_of(room, engine, wish)
        moving = activations(shape, layout, step) + (engine.graphs if room.kind != "ram" else 0)
        fixed = engine.context[room.kind] + (engine.group if layout.ranks > 1 and room.kind != "ram" else 0)
        own = shape.mixers(stage_kinds(shape, layout, stage))
        rules = replace(engine.cache, block=engine.cpu_block) if room.kind == "ram" else engine.cache
        cache = cache_of(everywhere, own, layout.tensor, number, step.tokens, rules)
        parts = held_of(shape, layout, stage, engine.customs, drafts=wish.drafts)
        yield _Seat(room, parts, fixed + (0 if engine.outside else moving), moving if engine.outside else 0, cache)


def _limit(seat: _Seat, engine: Engine, wish: Wish) -> float:
    """The largest share of the memory that can be given to the engine, in whole hundredths."""
    total = seat.room.total or 1
    if wish.utilisation is not None:
        return wish.utilisation
    most = min(engine.most[seat.room.kind], 1 - seat.beside / total) / seat.room.sharers
    if seat.room.free is not None:
        most = min(most, seat.room.free / total / seat.room.sharers)
    return max(math.floor(most * 100 + 1e-9) / 100, 0.0)


def _share(seats: Sequence[_Seat], engine: Engine, wish: Wish, aim: int) -> float:
    """The utilisation for all ranks: the usual one, more where only that holds what is asked for."""
    limit = min(_limit(seat, engine, wish) for seat in seats)
    usual = min(limit, *(engine.usual[seat.room.kind] / seat.room.sharers for seat in seats))
    if wish.utilisation is not None:
        return wish.utilisation
    needed = max(
        math.ceil(100 * (seat.weights + seat.inside + seat.cache.needs(aim, wish.count)) / (seat.room.total or 1)) / 100
        for seat in seats
    )
    return min(max(usual, needed), limit)


def _left(seat: _Seat, share: float, wish: Wish) -> int:
    """Bytes that the engine has for sequences."""
    if wish.cache_bytes is not None:
        return wish.cache_bytes
    return int(share * (seat.room.total or 0)) - seat.weights - seat.inside


def _holds(seat: _Seat, engine: Engine, wish: Wish, wanted: int) -> bool:
    left = _left(seat, _limit(seat, engine, wish), wish)
    return left >= seat.cache.needs(wanted, wish.count) and _said_is_there(seat, wish)


def _said_is_there(seat: _Seat, wish: Wish) -> bool:
    """A room for sequences that is said has to be there beside the weights; one that is measured is."""
    taken = (seat.weights + seat.inside + seat.beside + (wish.cache_bytes or 0)) * seat.room.sharers
    return wish.cache_bytes is None or taken <= (seat.room.total or 0)


def _one_a_node(seats: Sequence[_Seat], wanted: int) -> list[_Seat]:
    """Of each node the seat that needs most."""
    found: dict[str, _Seat] = {}
    for seat in seats:
        before = found.get(seat.room.node)
        if before is None or _needs(seat, wanted) > _needs(before, wanted):
            found[seat.room.node] = seat
    return list(found.values())


def _needs(seat: _Seat, wanted: int) -> int:
    return seat.weights + seat.inside + seat.cache.needs(wanted, 1)


def _node(seat: _Seat, share: float | None, cache: int, fits: bool | None) -> NodeFit:
    total = seat.room.total
    room = None if share is None or total is None else int(share * total)
    return NodeFit(
        seat.room.node, seat.weights, seat.inside + seat.beside, cache, room, total, fits, seat.room.unknown, seat.parts
    )
