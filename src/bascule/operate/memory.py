"""What helped before: the changes with which the same candidate came to serve on the same nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bascule.core.nouns import Candidate, Node, Setting
from bascule.core.plain import setting_from_plain, to_plain
from bascule.journal import Journal

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
    hosts = {node.name: node.host for node in nodes if node.name in candidate.nodes}
    for start in journal.starts()[:RUNS]:
        events = journal.events(start.run)
        served = next((event.data["candidate"] for event in events if event.kind == "served"), None)
        if served is None or _substance(served) != wanted or not hosts.items() <= _hosts(start.data).items():
            continue
        changes = tuple(setting_from_plain(raw) for raw in served["changes"])
        return Remembered(start.run, changes) if changes else None
    return None


def _substance(plain: dict[str, Any]) -> dict[str, Any]:
    """All of a candidate but its name and what was changed."""
    return {key: value for key, value in plain.items() if key not in ("name", "changes")}


def _hosts(begun: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["host"] for node in begun["nodes"]}
