"""What `bascule up` would do, told before anything is done: the same stages over Runners that only tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bascule.core.cost import Cost, Lack
from bascule.core.decide import decide
from bascule.core.nouns import Attempt, Candidate, Finding, Model, Node, Try
from bascule.core.plain import MASK, is_secret, to_plain
from bascule.costs import Costs
from bascule.fits import Fitness
from bascule.journal import Event, Journal
from bascule.launch import start as ranks
from bascule.operate.memory import Took, last_start
from bascule.preflight.addresses import Proven
from bascule.registry.oci import asked_for
from bascule.remote import shell
from bascule.remote.connect import tellers
from bascule.remote.tape import pasteable
from bascule.request import Request
from bascule.stages import Bound
from bascule.up import Known, bind, look_around

REMOTE_CODE = "--trust-remote-code"
MOST_CHANGES = 8  # that are foreseen for one candidate


@dataclass(frozen=True, slots=True)
class Planned:
    """A candidate as it would be tried: what is known of it, what it costs, and the commands of its start."""

    candidate: Candidate  # with the changes that would be made before its start
    finding: Finding  # what decides about it
    tried: bool  # False: refused before any start
    because: str
    fitness: Fitness | None = None
    cost: Cost | None = None
    took: Took | None = None  # its last start on these nodes
    changes: tuple[Finding, ...] = ()
    asks: tuple[str, ...] = ()  # what would not be done without a person's word
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is known, with the events that told it, and each candidate in the order of trying."""

    events: tuple[Event, ...]
    nodes: tuple[Node, ...]
    proven: Proven | None
    model: Model
    candidates: tuple[Planned, ...]

    @property
    def held(self) -> list[dict[str, Any]]:
        """Images that could serve it, and that are not taken without a word: published by people not known here."""
        return [row for event in self.events if event.kind == "discovered" for row in event.data["held"]]

    def plain(self) -> dict[str, Any]:
        """For programs."""
        addresses = to_plain(self.proven)
        notices = [event.data["notice"] for event in self.events if event.kind == "notice"]
        return {
            "nodes": to_plain(self.nodes),
            "addresses": addresses,
            "model": to_plain(self.model),
            "candidates": [_plain(one) for one in self.candidates],
            "held": self.held,
            "notices": [*(addresses["notices"] if addresses else ()), *notices],
        }


async def plan(request: Request, journal: Journal, tell: Callable[[str], None]) -> Plan:
    """Read everything, start nothing; `tell` says what is waited for. Raises what `up` would before its first start."""
    events: list[Event] = []

    def note(kind: str, **data: object) -> None:
        if kind == "asking":
            tell(str(data["says"]))
        else:
            events.append(Event(0, datetime.now(UTC), kind, to_plain(data)))

    recipe = request.recipe
    nodes = [node.model_dump() for node in recipe.nodes]
    note("run-started", service=recipe.service, source=request.source, model=recipe.model, nodes=nodes)
    known = await look_around(request, journal, note)
    stages = bind(known, request, journal, 0, lambda _: None, note)
    attempts = await stages.assess()
    costs = stages.costs()
    try:
        planned = await _all(stages, attempts, costs, journal)
    finally:
        costs.access.close()
    return Plan(tuple(events), known.nodes, _proven(known), known.model, tuple(planned))


async def _all(stages: Bound, attempts: Sequence[Attempt], costs: Costs, journal: Journal) -> list[Planned]:
    """What stands against each is asked one by one, since candidates on the same nodes share the answer."""
    foreseen = [await _foreseen(stages, attempt) for attempt in attempts]
    return list(await asyncio.gather(*(_planned(stages, one, costs, journal) for one in foreseen)))


@dataclass(frozen=True, slots=True)
class _Foreseen:
    attempt: Attempt
    because: str
    changes: tuple[Finding, ...] = ()
    against: Finding | None = None


async def _foreseen(stages: Bound, attempt: Attempt) -> _Foreseen:
    """The changes that the preflight would make, and what it would refuse the candidate for."""
    candidate, changes = attempt.candidate, list[Finding]()
    verdict = decide([candidate], [attempt], budget=stages.budget)
    if not isinstance(verdict, Try):
        return _Foreseen(attempt, attempt.finding.says, against=attempt.finding)
    while (found := await stages.hindrance(candidate)) and found.change and len(changes) < MOST_CHANGES:
        candidate = candidate.changed(found.change)
        changes.append(found)
    return _Foreseen(Attempt(candidate, attempt.finding), verdict.because, tuple(changes), found)


async def _planned(stages: Bound, seen: _Foreseen, costs: Costs, journal: Journal) -> Planned:
    candidate, against = seen.attempt.candidate, seen.against
    fitness = stages.fits.get(candidate.name)
    if against:
        return Planned(candidate, against, False, against.says, fitness, changes=seen.changes)
    cost = await costs.of(candidate, stages.nodes_of(candidate))
    took = last_start(journal, candidate, list(stages.nodes.values()))
    if cost.refused:
        return Planned(candidate, cost.refused, False, cost.refused.says, fitness, cost, took, seen.changes)
    asks = tuple(_asks(candidate, stages.model))
    commands = (*_copies(candidate, cost, stages.nodes), *await _start(stages, candidate))
    finding = seen.attempt.finding
    return Planned(candidate, finding, True, seen.because, fitness, cost, took, seen.changes, asks, commands)


def _asks(candidate: Candidate, model: Model) -> list[str]:
    """Python that a model brings is run only when a person says so."""
    given = any(one.name == REMOTE_CODE and one.value is not None for one in candidate.in_force)
    if not model.remote_code or given:
        return []
    return [f"{REMOTE_CODE}: the model brings Python of its own ({', '.join(model.remote_code)}), which is not run"]


def _copies(candidate: Candidate, cost: Cost, nodes: Mapping[str, Node]) -> list[str]:
    """The pull and the copies, each by the command that does it by hand."""
    told = [_pull(candidate, nodes[one.node]) for one in cost.lacks if one.registry]
    ways = dict.fromkeys((one.what, one.source) for one in cost.lacks if not one.registry)
    return [*told, *(_copy(candidate, way, cost.lacks, nodes) for way in ways)]


def _pull(candidate: Candidate, node: Node) -> str:
    docker = node.facts.docker
    return pasteable(
        node, (*(docker.command if docker else ("docker",)), "pull", asked_for(candidate.artefact.ref)), ""
    )


def _copy(candidate: Candidate, way: tuple[str, str], lacks: Sequence[Lack], nodes: Mapping[str, Node]) -> str:
    what, source = way
    targets = [one.node for one in lacks if (one.what, one.source) == way and not one.registry]
    noun, name = ("image", candidate.artefact.ref) if what == "image" else ("weights", candidate.model)
    to = [word for target in targets for word in ("--to", nodes[target].host)]
    return shell.line(("bascule", "copy", noun, name, "--from", nodes[source].host, *to))


async def _start(stages: Bound, candidate: Candidate) -> list[str]:
    told: list[str] = []
    telling = tellers(stages.nodes.values(), told.append)
    await ranks.start(stages.plan_of(candidate), "plan", stages.nodes, telling)
    return [_masked(text, candidate) for text in told]


def _masked(command: str, candidate: Candidate) -> str:
    """The command without the values of secret settings."""
    for setting in candidate.in_force:
        if setting.value and is_secret(setting.name):
            command = command.replace(setting.value, MASK)
    return command


def _proven(known: Known) -> Proven | None:
    return next(iter(known.proven.values()), None)


def _plain(one: Planned) -> dict[str, Any]:
    cost = one.cost
    return {
        "candidate": to_plain(one.candidate),
        "verdict": "try" if one.tried else "no",
        "because": one.because,
        "finding": to_plain(one.finding),
        "changes": to_plain(one.changes),
        "fit": to_plain(one.fitness.fit) if one.fitness else None,
        "unknown": one.fitness.unknown if one.fitness else "",  # why nothing is known of its fit
        "bound": to_plain(one.fitness.bound) if one.fitness else None,
        "cost": {**to_plain(cost), "bytes": cost.bytes, "seconds": cost.seconds} if cost else None,
        "last_start": to_plain(one.took._asdict()) if one.took else None,
        "asks": list(one.asks),
        "commands": list(one.commands),
    }
