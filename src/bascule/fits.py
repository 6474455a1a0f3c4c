"""Whether a candidate's layout is one that its engine takes, and whether the model fits in it: known before any start.

Pure, but for the tables that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bascule.core.choose import bound_of
from bascule.core.fit import Engine, Fit, Room, fit
from bascule.core.nouns import Candidate, Evidence, Fate, Finding, Model, Node, Step
from bascule.core.roofline import Bound, Link
from bascule.core.shape import Unshaped
from bascule.discover.hardware import engine_memory, link
from bascule.discover.rooms import rooms_of
from bascule.discover.wishes import Asked, asked_of
from bascule.preflight.addresses import Proven

GIB = 1 << 30
# Sizes here are within 10 % of engines' own lines; a no must stand when that is wrong. Estimated weights are worse.
SLACK, SLACK_OF_ESTIMATE = 1.1, 1.3


@dataclass(frozen=True, slots=True)
class Fitness:
    """A candidate against its nodes; `refused` ends it, `unknown` says why nothing is known."""

    fit: Fit | None = None
    bound: Bound | None = None
    layout: str = ""
    memory: str = ""  # vram, unified or ram
    refused: Finding | None = None
    unknown: str = ""


def fitness(
    candidate: Candidate,
    model: Model,
    nodes: Sequence[Node],
    context: int | None,
    proven: Proven | None,
    release: str = "",
) -> Fitness:
    """How the model fits these nodes in the candidate's layout; `context` in tokens, None leaves it to the engine.

    `release` is the engine's, which decides how it divides its memory; empty takes the newest that is known.
    """
    asked = asked_of(replace(candidate, nodes=tuple(node.name for node in nodes)), context)
    engine = engine_memory(candidate.engine, release)
    if asked is None or engine is None:
        return Fitness(unknown=f"nobody has looked at how {candidate.engine} uses memory")
    if model.shape is None or isinstance(model.shape, Unshaped):
        return Fitness(unknown=model.shape.says if model.shape else "no config.json was read")
    if asked.beyond:
        return Fitness(unknown=f"what {_told(candidate, asked.beyond[0])} does to memory is not known here")
    engine = replace(engine, customs=replace(engine.customs, cuts_tower=engine.customs.cuts_tower and asked.cuts_tower))
    # What is free now is left out: this service may run there already, to be adopted.
    rooms = [replace(room, free=None) for room in rooms_of(nodes)]
    found = fit(model.shape, asked.layout, rooms, engine, asked.wish)
    if asked.memory and found.legal:
        return Fitness(unknown=f"what {_told(candidate, asked.memory[0])} does to memory is not known here")
    return Fitness(
        found,
        _bound(model, asked, rooms, engine, between(nodes, proven)) if found.legal else None,
        str(asked.layout),
        rooms[0].kind,
        refusal(candidate, model, found, nodes[0].name, datetime.now(UTC)),
        found.unknown,
    )


def refusal(candidate: Candidate, model: Model, found: Fit, node: str, at: datetime) -> Finding | None:
    """The finding that ends the candidate: its engine would refuse the layout, or weights alone are too large."""
    if found.refusals:
        first = found.refusals[0]
        seen = Evidence(node, f"{model.path}/config.json", at, "; ".join(one.says for one in found.refusals))
        says = f"{candidate.engine} would refuse {found.layout}: {first.says}"
        return _no(first.code, says, seen, first.remedy)
    slack = SLACK if model.bytes_exact else SLACK_OF_ESTIMATE
    for one in found.nodes:
        if one.total is not None and one.weights + one.overhead > one.total * slack:
            need, there = one.weights + one.overhead, one.total
            seen = Evidence(one.node, "weights and memory", at, f"{one.weights} + {one.overhead} of {there} bytes")
            says = f"{found.layout} needs {need / GIB:.1f} GiB of the {there / GIB:.1f} GiB on {one.node}"
            return _no("does-not-fit", says, seen, "take more nodes or GPUs, or a model in fewer bits: bascule fit")
    return None


def between(nodes: Sequence[Node], proven: Proven | None) -> Link | None:
    """The link of the nodes: of its kind, and not better than what was measured; None: nothing is known."""
    if len(nodes) < 2:
        return None
    if all(node.hcas for node in nodes):
        return link("rdma")
    best = link("sockets")
    pairs = proven.pairs if proven else ()
    trips = [pair.round_trip_s for pair in pairs if pair.round_trip_s is not None]
    rates = [pair.rate for pair in pairs if pair.rate is not None]
    if best is None or not trips or not rates:
        return best
    return Link(best.kind, max(best.latency_s, *trips), min(best.rate, *rates))


def _bound(model: Model, asked: Asked, rooms: Sequence[Room], engine: Engine, over: Link | None) -> Bound | None:
    if model.shape is None or isinstance(model.shape, Unshaped):
        return None
    return bound_of(model.shape, asked.layout, rooms, engine, asked.wish, over)


def _told(candidate: Candidate, flag: str) -> str:
    """A flag with its value, as the recipe has it."""
    return next(str(one) for one in reversed(candidate.in_force) if one.name == flag)


def _no(code: str, says: str, seen: Evidence, advice: str) -> Finding:
    return Finding(Step.PREFLIGHT, Fate.HOPELESS, code, says, (seen,), advice=advice, scope="candidate")
