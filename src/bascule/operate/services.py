"""The services this controller knows: what runs of them on the nodes now, and how to end it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bascule.core.layout import with_own_gpus
from bascule.core.nouns import Node, RankState
from bascule.errors import BasculeError, NodeTrouble, NodeUnreachable, RecipeError
from bascule.journal import Event, Journal
from bascule.launch import start as ranks
from bascule.remote.connect import Runners, connect
from bascule.remote.facts import read_facts


@dataclass(frozen=True, slots=True)
class Service:
    """What the journal remembers of a service: its newest run, and every node it may have touched."""

    name: str
    run: int
    since: datetime
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What a service is right now; ranks come from the nodes, the rest from the journal."""

    service: str
    run: int
    state: str  # serving, starting, broken, stopped, unknown
    url: str | None
    model: str | None
    candidate: str | None
    artefact: str | None
    since: str | None
    ranks: tuple[RankState, ...]
    unreachable: tuple[str, ...]


def known(journal: Journal) -> list[Service]:
    """All services in the journal, newest first."""
    names = dict.fromkeys(str(event.data["service"]) for event in journal.starts())
    return [_service(journal, name) for name in names]


def named(journal: Journal, name: str | None) -> Service:
    """One service: by its name, or the newest. Raises RecipeError when there is none."""
    services = known(journal)
    for service in services:
        if name in (None, service.name):
            return service
    there = ", ".join(service.name for service in services) or "none yet"
    raise RecipeError("no-service", f"no service {name or ''}".rstrip(), seen=f"known services: {there}")


async def status(journal: Journal, service: Service) -> ServiceStatus:
    """Look at every node of a service."""
    found, unreachable = await look(service)
    alive = [state for state in found if state.alive]
    current = max(alive or found, key=lambda state: state.started_at or 0, default=None)
    shown = tuple(state for state in found if current and state.generation == current.generation)
    label = current.label if current else {}
    wanted = int(label.get("ranks", 0))
    served = current is not None and was_served(journal, service, current)
    return ServiceStatus(
        service.name,
        service.run,
        _state(shown, wanted, served, unreachable),
        label.get("url"),
        label.get("model"),
        label.get("candidate"),
        label.get("artefact"),
        label.get("started_at"),
        shown,
        tuple(unreachable),
    )


async def status_of_all(journal: Journal, services: Sequence[Service]) -> list[ServiceStatus]:
    """Look at several services at once."""
    return list(await asyncio.gather(*(status(journal, service) for service in services)))


async def look(service: Service) -> tuple[list[RankState], list[str]]:
    """All ranks of a service that its nodes show, and the names of nodes that don't answer."""
    found: list[RankState] = []
    nodes, runners, unreachable = await reach(service.nodes)
    for state in await ranks.find(nodes, runners, service.name):
        if state not in found:
            found.append(state)
    return found, [error.says for error in unreachable]


async def reach(nodes: Sequence[Node]) -> tuple[list[Node], Runners, list[BasculeError]]:
    """The nodes that answer, with facts, their Runners, and the errors of the others."""
    runners = connect(nodes)
    results = await asyncio.gather(*(read_facts(runners[n.name], n) for n in nodes), return_exceptions=True)
    there = [with_own_gpus(result) for result in results if isinstance(result, Node)]
    failed = [result for result in results if isinstance(result, NodeUnreachable | NodeTrouble)]
    for result in results:
        if isinstance(result, BaseException) and result not in failed:
            raise result
    return there, runners, list(failed)


async def down(journal: Journal, service: Service) -> list[RankState]:
    """End every rank of a service on all its nodes and remove the run folders. Raises NodeUnreachable at the end."""
    nodes, runners, unreachable = await reach(service.nodes)
    stopped = await ranks.stop(nodes, runners, service.name)
    await ranks.clear(nodes, runners, service.name)
    journal.record(service.run, "down", ranks=stopped, unreachable=[error.says for error in unreachable])
    if unreachable:
        raise unreachable[0]
    return stopped


def _service(journal: Journal, name: str) -> Service:
    """Nodes of all runs since the service was last taken down entirely; the newest run's spelling wins."""
    nodes: dict[tuple[str, str | None], Node] = {}
    newest: Event | None = None
    for event in journal.starts():
        if event.data["service"] != name:
            continue
        newest = newest or event
        for raw in event.data["nodes"]:
            gpus = raw.get("gpus")  # runs of older bascules don't have them
            own = None if gpus is None else tuple(gpus)
            node = Node(raw["name"], raw["host"], raw["address"], raw["run_dir"], gpus=own)
            nodes.setdefault((node.host, node.run_dir), node)
        if any(e.kind == "down" and not e.data["unreachable"] for e in journal.events(event.run)):
            break
    assert newest is not None
    return Service(name, newest.run, newest.at, _distinct(list(nodes.values())))


def _distinct(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Two machines of two runs may have had one name; Runners are kept by name."""
    seen: dict[str, int] = {}
    distinct = []
    for node in nodes:
        seen[node.name] = seen.get(node.name, 0) + 1
        name = node.name if seen[node.name] == 1 else f"{node.name}~{seen[node.name]}"
        distinct.append(replace(node, name=name))
    return tuple(distinct)


def was_served(journal: Journal, service: Service, current: RankState) -> bool:
    """True when the newest word about these ranks, since they were started, is that they serve."""
    first = int(current.generation.partition(".")[0])
    for run in range(service.run, first - 1, -1):
        for event in reversed(journal.events(run)):
            if event.kind in ("served", "down", "gave-up") and _is_about(journal, run, service):
                return event.kind == "served"
    return False


def _is_about(journal: Journal, run: int, service: Service) -> bool:
    return bool(journal.events(run)[0].data.get("service") == service.name)


def _state(found: Sequence[RankState], wanted: int, served: bool, unreachable: Sequence[str]) -> str:
    alive = sum(state.alive and state.pid is not None for state in found)  # what a rank left behind doesn't serve
    if unreachable and (alive < wanted or not found):
        return "unknown"
    if not alive:
        return "broken" if found and served else "stopped"
    if alive < wanted:
        return "broken"
    return "serving" if served else "starting"
