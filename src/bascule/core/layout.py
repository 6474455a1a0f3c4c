"""Which node gets which rank, and which address it tells its peers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bascule.core.nouns import Candidate, Node

API_PORT = 8000
RENDEZVOUS_PORT = 29500


@dataclass(frozen=True, slots=True)
class Place:
    """One node as a rank sees it: its own address, told to its peers, and the interface that carries it."""

    node: str
    address: str
    interface: str | None
    gpus: tuple[int, ...] | None = None  # indexes of those it may use; None = all of the machine
    hcas: tuple[str, ...] | None = None  # RDMA ports for NCCL, DEVICE:PORT; None: left to NCCL; (): it must use sockets
    host_id: str = ""  # what NCCL is to take for its host, where another node of the start is on the same machine


@dataclass(frozen=True, slots=True)
class Start:
    """All that an engine needs to know to write its command lines; places are in rank order."""

    service: str
    candidate: Candidate
    places: tuple[Place, ...]
    port: int
    rendezvous_port: int
    served_name: str
    context: int | None  # tokens; None leaves it to the engine

    @property
    def head(self) -> Place:
        """Where rank 0 runs and the service answers."""
        return self.places[0]


def own_address(node: Node) -> str | None:
    """The address the node tells its peers: the one it was given, else its first that is no loopback.

    It is only chosen here; that the peers reach it is for preflight to show.
    """
    if node.address:
        return node.address
    usable = [address.ip for address in node.facts.addresses if _is_usable(address.ip, address.interface)]
    return usable[0] if usable else None


def host_ids(service: str, nodes: Sequence[Node]) -> dict[str, str]:
    """By node, a name of its own for each node that shares a machine with another one of them.

    NCCL takes two ranks for neighbours when host name and boot id are the same (NCCL 2.28, getHostHash): it refuses
    two on one GPU, and shares memory that nodes in containers don't share. NCCL_HOSTID stands in for both.
    """
    machines = [_machine_of(node) for node in nodes]
    return {
        node.name: f"{service}-{node.name}"
        for node, machine in zip(nodes, machines, strict=True)
        if machine and machines.count(machine) > 1
    }


def nodes_of(candidate: Candidate, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes a candidate runs on, in rank order; all of them unless it names some."""
    if not candidate.nodes:
        return tuple(nodes)
    by_name = {node.name: node for node in nodes}
    return tuple(by_name[name] for name in candidate.nodes)


def with_own_gpus(node: Node) -> Node:
    """The node as the recipe gives it: GPUs of the machine that it doesn't name are not there for it."""
    if node.gpus is None or node.facts.gpus is None:
        return node
    own = tuple(gpu for gpu in node.facts.gpus if gpu.index in node.gpus)
    uuids = {gpu.uuid for gpu in own}
    processes = node.facts.gpu_processes and tuple(one for one in node.facts.gpu_processes if one.gpu_uuid in uuids)
    return replace(node, facts=replace(node.facts, gpus=own, gpu_processes=processes))


def _machine_of(node: Node) -> str:
    """The id of its boot, the first word of its machine_id (the network namespace follows); "" when it isn't known."""
    words = (node.facts.machine_id or "").split()
    return words[0] if words else ("local" if node.is_local else "")


def _is_usable(ip: str, interface: str) -> bool:
    address = ipaddress.ip_address(ip)
    return not (
        address.is_loopback or address.is_link_local or interface.startswith(("docker", "br-", "veth", "virbr"))
    )
