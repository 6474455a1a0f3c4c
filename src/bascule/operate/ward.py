"""A service that serves, as `bascule watch` needs to know it: found on its nodes, and told by the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from bascule.core.layout import own_address
from bascule.core.nouns import Endpoint, Node, RankPlan, RankState
from bascule.engines.base import Lore
from bascule.engines.catalogue import ENGINES
from bascule.errors import BasculeError, RecipeError
from bascule.journal import Event, Journal
from bascule.launch import start as ranks
from bascule.launch.venv import rank_name
from bascule.operate.services import Service, reach, was_served
from bascule.remote.connect import Runners


class NotServing(BasculeError):
    """There is nothing to watch."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class Ward:
    """One start of a service: what was started where, and how its nodes are reached."""

    service: str
    run: int  # in whose journal trouble is noted: the newest one of the service
    generation: str
    lore: Lore
    kind: Literal["venv", "image"]
    endpoint: Endpoint
    ranks: Mapping[str, RankPlan]  # by the names under which they are found, in rank order
    nodes: dict[str, Node]  # a node that doesn't answer has no facts yet
    runners: Runners


async def find_ward(journal: Journal, service: Service) -> Ward:
    """The newest start of a service. Raises NodeUnreachable when no node answers, NotServing, RecipeError."""
    there, runners, unreachable = await reach(service.nodes)
    if not there:
        raise unreachable[0]
    found = await ranks.find(there, runners, service.name)
    current = _current(journal, service, found, lost=bool(unreachable))
    events = journal.events(int(current.generation.partition(".")[0]))
    launch, candidate = _launch(events, current)
    nodes = _nodes(events[0].data["nodes"], there, service.nodes)
    plans = [_plan(raw) for raw in launch["ranks"]]
    return Ward(
        service.name,
        service.run,
        current.generation,
        ENGINES[candidate["engine"]].lore,
        candidate["artefact"]["kind"],
        Endpoint(**{key: launch["endpoint"][key] for key in ("url", "model", "health")}),
        {rank_name(service.name, current.generation, plan.rank): plan for plan in plans},
        {name: node for name, node in nodes.items() if name in {plan.node for plan in plans}},
        {name: runners[_at(service.nodes, node).name] for name, node in nodes.items()},
    )


def _current(journal: Journal, service: Service, found: Sequence[RankState], *, lost: bool) -> RankState:
    """The newest start that runs, or else that has ended here after it served."""
    alive = [state for state in found if state.alive]
    current = max(alive or found, key=lambda state: state.started_at or 0, default=None)
    if current is None:
        says = f"{service.name} is not running: its nodes have no rank of it" + (" where they answer" if lost else "")
        raise NotServing("not-serving", says, advice="`bascule up RECIPE` starts it")
    if not was_served(journal, service, current):
        says = f"{service.name} does not serve: its ranks were started, and it has not answered yet"
        raise NotServing("not-serving", says, advice="`bascule logs -f` shows what they do")
    return current


def _launch(events: Sequence[Event], current: RankState) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was started under this generation, and the candidate that it was."""
    candidate: dict[str, Any] = {}
    for event in events:
        if event.kind == "try":
            candidate = event.data["candidate"]
        if event.kind == "launch" and event.data["generation"] == current.generation and candidate:
            return event.data, candidate
    run = current.generation.partition(".")[0]
    raise RecipeError("no-run", f"run {run}, which started {current.service}, is not in the journal")


def _nodes(told: Sequence[Mapping[str, Any]], there: Sequence[Node], known: Sequence[Node]) -> dict[str, Node]:
    """The nodes as that run had them; a later one may have named them otherwise, and two may be one machine."""
    places = {(node.host, node.run_dir): node for node in (*known, *there)}
    found = [(raw, places.get((raw["host"], raw["run_dir"]))) for raw in told]
    return {raw["name"]: _addressed(_as_told(node, raw)) for raw, node in found if node}


def _as_told(node: Node, raw: Mapping[str, Any]) -> Node:
    gpus = raw.get("gpus")  # runs of older bascules don't have them
    return replace(node, name=raw["name"], address=raw["address"], gpus=None if gpus is None else tuple(gpus))


def _addressed(node: Node) -> Node:
    """A node that doesn't answer tells no address of its own; how it is reached stands in."""
    return node if own_address(node) else replace(node, address=node.host.rpartition("@")[2])


def _at(known: Sequence[Node], node: Node) -> Node:
    return next(one for one in known if (one.host, one.run_dir) == (node.host, node.run_dir))


def _plan(raw: Mapping[str, Any]) -> RankPlan:
    return RankPlan(raw["rank"], raw["node"], tuple(raw["argv"]), raw["env"])
