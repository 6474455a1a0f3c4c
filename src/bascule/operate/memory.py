"""What was before with the same candidate on the same nodes: the changes that helped, and how long its start took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bascule.core.nouns import Candidate, Fate, Node, Setting, Step
from bascule.core.plain import setting_from_plain, to_plain
from bascule.journal import Event, Journal

RUNS = 200  # that are looked back


class Remembered(NamedTuple):
    """Changes that helped, and the run in which they did."""

    run: int
    changes: tuple[Setting, ...]


def what_helped(journal: Journal, candidate: Candidate, nodes: Sequence[Node]) -> Remembered | None:
    """The changes of the newest run in which this candidate served; None when it did without, or never.

    It must be the same in every word: engine, artefact, model, settings, layout, and the hosts of its nodes. An edited
    recipe is another candidate, and what is remembered of the old one is not used.
    """
    wanted = _substance(to_plain(candidate))
    for run in _runs_there(journal, candidate, nodes):
        served = next((event.data["candidate"] for event in journal.events(run, "served")), None)
        if served is None or _substance(served) != wanted:
            continue
        changes = tuple(setting_from_plain(raw) for raw in served["changes"])
        return Remembered(run, changes) if changes else None
    return None


class Took(NamedTuple):
    """How long the ranks of a start needed until their engine served, and the run in which that was."""

    run: int
    seconds: float


def last_start(journal: Journal, candidate: Candidate, nodes: Sequence[Node]) -> Took | None:
    """The newest start of this candidate on the same nodes that came up, from its launch on; None: there was none."""
    wanted = _substance(to_plain(candidate))
    for run in _runs_there(journal, candidate, nodes):
        took, began = None, None
        for event in journal.events(run, "launch", "finding"):
            if event.kind == "launch":
                began = event.at
            elif began and _came_up(event) and _substance(event.data["candidate"]) == wanted:
                took = Took(run, (event.at - began).total_seconds())
        if took:
            return took
    return None


def _came_up(event: Event) -> bool:
    finding = event.data["finding"]
    return bool(finding["step"] == Step.WATCH and finding["fate"] == Fate.OK)


def _runs_there(journal: Journal, candidate: Candidate, nodes: Sequence[Node]) -> Iterator[int]:
    """The newest runs on the hosts of this candidate's nodes, the newest first."""
    hosts = {node.name: node.host for node in nodes if node.name in candidate.nodes}
    for start in journal.starts()[:RUNS]:
        if hosts.items() <= _hosts(start.data).items():
            yield start.run


def _substance(plain: dict[str, Any]) -> dict[str, Any]:
    """All of a candidate but its name and what was changed."""
    return {key: value for key, value in plain.items() if key not in ("name", "changes")}


def _hosts(begun: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["host"] for node in begun["nodes"]}
