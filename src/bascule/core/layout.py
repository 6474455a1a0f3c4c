"""Which node gets which rank, and which address it tells its peers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from bascule.core.nouns import Candidate, Node

API_PORT = 8000
RENDEZVOUS_PORT = 29500


@dataclass(frozen=True, slots=True)
class Place:
    """One node as a rank sees it: its own address, told to its peers, and the interface that carries it."""

    node: str
    address: str
    interface: str | None


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


def nodes_of(candidate: Candidate, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes a candidate runs on, in rank order; all of them unless it names some."""
    if not candidate.nodes:
        return tuple(nodes)
    by_name = {node.name: node for node in nodes}
    return tuple(by_name[name] for name in candidate.nodes)


def _is_usable(ip: str, interface: str) -> bool:
    address = ipaddress.ip_address(ip)
    return not (
        address.is_loopback or address.is_link_local or interface.startswith(("docker", "br-", "veth", "virbr"))
    )
