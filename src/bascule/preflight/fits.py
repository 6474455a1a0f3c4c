"""A candidate's layout against the memory of its nodes, as a finding (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bascule.core.fit import Engine, Fit, NodeFit, Room, Wish, fit
from bascule.core.nouns import Evidence, Fate, Finding, Step
from bascule.core.parallel import Layout
from bascule.core.shape import Shape, Unshaped

MARGIN = 0.1  # share of the memory by which an estimate may be wrong; within it nothing is refused
_GIB = 1 << 30


def layout_fits(
    shape: Shape | Unshaped | None, layout: Layout, rooms: Sequence[Room], engine: Engine, wish: Wish, at: datetime
) -> Finding:
    """OK, HOPELESS for this layout, or UNKNOWN; `rooms`: one for each node of the layout, in rank order."""
    if not isinstance(shape, Shape):
        says = shape.says if shape else "its config.json was not read"
        seen = Evidence(
            rooms[0].node, "config.json", at, f"{shape.key}: {shape.seen or 'not there'}" if shape else says
        )
        return Finding(Step.PREFLIGHT, Fate.UNKNOWN, "shape-unknown", f"whether the model fits: {says}", (seen,))
    found = fit(shape, layout, rooms, engine, wish)
    if found.refusals:
        return _refused(found, rooms[0].node, at)
    if found.fits is None:
        return _unread(found, at)
    return _fits(found, at) if found.fits else _too_large(found, at)


def _refused(found: Fit, node: str, at: datetime) -> Finding:
    first = found.refusals[0]
    seen = tuple(Evidence(node, "config.json", at, refusal.says) for refusal in found.refusals)
    return Finding(
        Step.PREFLIGHT,
        Fate.HOPELESS,
        code=first.code,
        says=f"{found.layout}: {first.says}",
        evidence=seen,
        advice=first.remedy,
        scope="candidate",
    )


def _unread(found: Fit, at: datetime) -> Finding:
    seen = tuple(Evidence(node.node, "facts of the node", at, node.unknown or _sum(node)) for node in found.nodes)
    return Finding(
        Step.PREFLIGHT, Fate.UNKNOWN, "memory-unread", f"whether the model fits is not known: {found.unknown}", seen
    )


def _fits(found: Fit, at: datetime) -> Finding:
    says = f"{found.layout}: {_sum(_tightest(found))}, context up to {found.context}"
    return Finding(Step.PREFLIGHT, Fate.OK, "fits", says, _seen(found, at))


def _too_large(found: Fit, at: datetime) -> Finding:
    """A no only where it is clear: an estimate that is a little too large may still be wrong."""
    node = _tightest(found)
    over = node.weights + node.overhead + node.cache - (node.room or 0)
    clear = over > MARGIN * (node.total or 0)
    says = f"{found.layout} on {node.node}: {_sum(node)}"
    advice = "more nodes or GPUs, a smaller context, or a model of fewer bits a weight; `bascule fit` shows all layouts"
    if clear:
        return Finding(
            Step.PREFLIGHT, Fate.HOPELESS, "memory-too-small", says, _seen(found, at), advice=advice, scope="candidate"
        )
    return Finding(Step.PREFLIGHT, Fate.UNKNOWN, "memory-tight", says, _seen(found, at), advice=advice)


def _tightest(found: Fit) -> NodeFit:
    return max(found.nodes, key=lambda node: node.weights + node.overhead + node.cache - (node.room or 0))


def _seen(found: Fit, at: datetime) -> tuple[Evidence, ...]:
    return tuple(Evidence(node.node, "shapes of the model, memory of the node", at, _sum(node)) for node in found.nodes)


def _sum(node: NodeFit) -> str:
    parts = [("weights", node.weights), ("overhead", node.overhead), ("cache", node.cache)]
    words = " + ".join(f"{size / _GIB:.1f} {name}" for name, size in parts if size)
    return f"{words} of {'?' if node.room is None else f'{node.room / _GIB:.1f}'} GiB"
