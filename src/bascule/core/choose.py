"""All layouts of a model over some nodes, the fastest that fits first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bascule.core.fit import Engine, Fit, Room, Wish, as_kept, fit
from bascule.core.parallel import Layout
from bascule.core.roofline import Bound, Link, Speed, bound
from bascule.core.shape import Shape


@dataclass(frozen=True, slots=True)
class Choice:
    """A layout, whether it fits, and how fast it can be at best; an illegal one has no speed."""

    fit: Fit
    bound: Bound | None = None


def choices(shape: Shape, rooms: Sequence[Room], engine: Engine, wish: Wish, between: Link | None) -> list[Choice]:
    """Every layout over the first nodes of `rooms`; `between`: the link of nodes, None when nobody knows it.

    What fits comes first, by its bound at the context that is asked for; then what is not known; then what is too
    large; then what the engine would refuse.
    """
    found = [
        Choice(one, bound_of(shape, one.layout, rooms, engine, wish, between) if one.legal else None)
        for one in (
            fit(shape, layout, rooms, engine, wish) for layout in layouts(rooms, bool(shape.dimensions.experts))
        )
    ]
    return sorted(found, key=_order)


def layouts(rooms: Sequence[Room], experts: bool) -> Iterator[Layout]:
    """All ways to cut a model over the first nodes of these: one node or several, with all or some of its GPUs."""
    for nodes in range(1, len(rooms) + 1):
        least = min(room.gpus for room in rooms[:nodes])
        for each in [each for each in range(1, least + 1) if least % each == 0] if nodes == 1 else [least]:
            ranks = nodes * each
            for tensor in (size for size in range(1, ranks + 1) if ranks % size == 0):
                yield Layout(tensor, ranks // tensor, nodes)
                if experts and tensor > 1:
                    yield Layout(tensor, ranks // tensor, nodes, experts=True)


def bound_of(
    shape: Shape, layout: Layout, rooms: Sequence[Room], engine: Engine, wish: Wish, between: Link | None
) -> Bound:
    """The bound of a layout on these nodes; the slowest memory and the slowest link count."""
    used = rooms[: layout.nodes]
    known = [room.bandwidth for room in used if room.bandwidth is not None]
    inside = [room.inside for room in used if room.inside is not None]
    slowest = max(inside, key=lambda one: one.latency_s, default=None) if len(inside) == len(used) else None
    link = between if layout.crosses else slowest
    speed = Speed(min(known) if len(known) == len(used) else None, link, between if layout.nodes > 1 else slowest)
    kept = as_kept(shape, rooms[0], engine)
    return bound(kept, layout, speed, engine.customs, wish.context or 0, wish.number)


def _order(choice: Choice) -> tuple[int, float, int, int, bool]:
    one, speed = choice.fit, choice.bound.tok_s if choice.bound else None
    rank = 3 if not one.legal else {True: 0, None: 1, False: 2}[one.fits]
    read = choice.bound.bytes_per_token if choice.bound else 0.0
    return rank, -speed if speed else read, one.layout.nodes, one.layout.pipeline, one.layout.experts
