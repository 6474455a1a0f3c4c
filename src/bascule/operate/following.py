"""How ranks are looked at on their nodes: by `up` while they start, and by `watch` while they serve."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Literal

from bascule.core.nouns import Glimpse, Node, RankPlan
from bascule.errors import NodeUnreachable
from bascule.launch.plan import place_of
from bascule.launch.runtime import RUNTIMES
from bascule.remote.connect import Runners
from bascule.remote.facts import read_facts
from bascule.watch.budgets import Facts
from bascule.watch.follow import Look
from bascule.watch.ledger import cache_folders
from bascule.watch.sampler import Watched
from bascule.watch.sockets import Seat
from bascule.watch.vigil import Vigil


def looker(runners: Runners, nodes: MutableMapping[str, Node], kind: str) -> Look:
    """Looks at ranks of a kind of artefact; the facts of a node that didn't answer before are read first."""

    async def look_at(name: str, cursors: Mapping[str, str]) -> list[Glimpse]:
        if nodes[name].facts.run_dir is None:
            nodes[name] = await read_facts(runners[name], nodes[name])
        if nodes[name].facts.run_dir is None:  # it was too busy to tell: asked again at the next look
            why = nodes[name].facts.unknown.get("run_dir", "")
            raise NodeUnreachable("node-unreachable", f"{name} does not tell where its run folder is", seen=why)
        return await RUNTIMES[kind].observe(runners[name], nodes[name], cursors)

    return look_at


def vigil_over(
    ranks: Mapping[str, RankPlan],
    nodes: Mapping[str, Node],
    runners: Runners,
    kind: Literal["venv", "image"],
    folder: Path | None = None,
    facts: Facts = Facts(),  # noqa: B008
) -> Vigil:
    """What moves on the nodes of these ranks, beside their logs; ranks by the names under which they are found."""
    return Vigil(_watched(ranks, nodes, kind), _seats(ranks, nodes), nodes, runners, folder, facts=facts)


def _watched(
    ranks: Mapping[str, RankPlan], nodes: Mapping[str, Node], kind: Literal["venv", "image"]
) -> Sequence[Watched]:
    return [
        Watched(rank.rank, rank.node, name, kind, place_of(nodes[rank.node]).interface, cache_folders(rank.env))
        for name, rank in ranks.items()
    ]


def _seats(ranks: Mapping[str, RankPlan], nodes: Mapping[str, Node]) -> Sequence[Seat]:
    of = [(rank.rank, nodes[rank.node]) for rank in ranks.values()]
    return [Seat(rank, node.name, place_of(node).address, node.facts.addresses) for rank, node in of]
