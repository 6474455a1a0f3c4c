"""From a candidate and the nodes to the exact words of every rank (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bascule.core.layout import Place, Start, host_ids, nodes_of, own_address
from bascule.core.nouns import Candidate, Endpoint, LaunchPlan, Node, RankPlan
from bascule.engines.base import environment
from bascule.engines.catalogue import ENGINES
from bascule.errors import NodeTrouble
from bascule.remote.facts import interface_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the recipe says about the service itself, whatever candidate serves it."""

    service: str
    port: int
    rendezvous_port: int
    served_name: str
    context: int | None


def plan_launch(candidate: Candidate, nodes: Sequence[Node], wanted: Wanted) -> LaunchPlan:
    """The ranks of one start. Raises NodeTrouble when a node has no address to tell its peers."""
    its_nodes = nodes_of(candidate, nodes)
    ids = host_ids(wanted.service, its_nodes)
    start = Start(
        wanted.service,
        candidate,
        tuple(replace(place_of(node), host_id=ids.get(node.name, "")) for node in its_nodes),
        wanted.port,
        wanted.rendezvous_port,
        wanted.served_name,
        wanted.context,
    )
    engine = ENGINES[candidate.engine]
    places = {place.node: place for place in start.places}
    ranks = tuple(_with_own(rank, places[rank.node], candidate) for rank in engine.ranks(start))
    return LaunchPlan(wanted.service, candidate, ranks, _where_flags_say(engine.endpoint(start), start))


def _with_own(rank: RankPlan, place: Place, candidate: Candidate) -> RankPlan:
    """The rank with what follows from its node and its artefact alone, whatever the engine; settings win."""
    own: dict[str, str | None] = {"NCCL_HOSTID": place.host_id} if place.host_id else {}
    if candidate.artefact.python:
        own["PYTHONPATH"] = candidate.artefact.ref
    if candidate.artefact.kind == "venv" and place.gpus is not None:
        own |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, place.gpus))}
    told = environment(own, candidate.in_force, place.node)
    env = {**rank.env, **{name: told[name] for name in own if name in told}}
    return replace(rank, env=env, gpus=place.gpus)


def _where_flags_say(endpoint: Endpoint, start: Start) -> Endpoint:
    """The endpoint, moved by flags of the candidate that move the engine."""
    told = {
        setting.name: setting.value
        for setting in start.candidate.in_force
        if setting.kind == "flag" and setting.value and setting.node in (None, start.head.node)
    }
    host = told.get("--host", "0.0.0.0")
    address = start.head.address if host in ("0.0.0.0", "::") else host
    model = told.get("--served-model-name") or told.get("--alias") or endpoint.model
    return replace(endpoint, url=f"http://{address}:{told.get('--port', start.port)}/v1", model=model)


def place_of(node: Node) -> Place:
    """How a rank on this node is seen by its peers."""
    address = own_address(node)
    if address is None:
        raise NodeTrouble(
            "no-address",
            f"{node.name} has no address that its peers could use",
            seen=", ".join(f"{a.interface} {a.ip}" for a in node.facts.addresses) or "no interface was seen",
            advice=f"say `address:` for {node.name} in the recipe",
        )
    return Place(node.name, address, interface_of(node.facts, address), node.gpus, node.hcas)


def digest(plan: LaunchPlan) -> str:
    """A short name for exactly these command lines; equal digests may adopt each other's ranks."""
    words = [[rank.rank, rank.node, rank.argv, sorted(rank.env.items()), rank.gpus] for rank in plan.ranks]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
