"""Which RDMA ports NCCL may use on each node, so that every one of them leads to the peers (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bascule.core.addresses import Link
from bascule.core.machine import RdmaPort
from bascule.core.nouns import Node
from bascule.preflight.links import Shared
from bascule.preflight.offers import offers_of

INFINIBAND = "InfiniBand"
Hcas = Mapping[str, tuple[str, ...] | None]


def hcas_of(nodes: Sequence[Node], rails: Sequence[Shared], failed: Sequence[Link]) -> Hcas:
    """By node, DEVICE:PORT of its ports; None leaves it to NCCL, () means that none leads to the peers.

    RoCE ports lead there by the networks of their addresses: the rails. InfiniBand ports need no address. () is said
    where only some nodes have ports, or a link with RDMA did not stand the proof. That no network is shared proves
    nothing, since RoCE can be routed.
    """
    if any(node.facts.rdma is None for node in nodes):
        return _all(nodes, None)
    if rails and not _is_infiniband(rails[0]):
        return {node.name: _behind(rails, at) for at, node in enumerate(nodes)}
    able = [any(port.active for port in node.facts.rdma or ()) for node in nodes]
    if any(able) and not rails and (not all(able) or any(link.rdma for link in failed)):
        return _all(nodes, ())
    fabric = {node.name: _fastest(node) for node in nodes}
    return fabric if all(fabric.values()) else _all(nodes, None)


def rails_of(chosen: Shared, shared: Sequence[Shared]) -> list[Shared]:
    """The links whose RDMA ports work together: the chosen one first, and others of its speed.

    Of InfiniBand only one: its ports are one fabric, whatever their addresses.
    """
    able = [one for one in shared if one.link.rdma]
    if not able:
        return []
    first = chosen if chosen.link.rdma else able[0]
    alike = [one for one in able if one is not first and _is_like(one, first)]
    return [first] if _is_infiniband(first) else [first, *alike]


def ports_behind(node: Node, ip: str) -> tuple[str, ...]:
    """The ports behind one of its addresses."""
    return tuple(name_of(port) for offer in offers_of(node)[0] if offer.ip == ip for port in offer.ports)


def name_of(port: RdmaPort) -> str:
    """As NCCL_IB_HCA has it."""
    return f"{port.device}:{port.port}"


def _is_like(one: Shared, other: Shared) -> bool:
    return one.link.speed_mbit == other.link.speed_mbit and _is_infiniband(one) == _is_infiniband(other)


def _is_infiniband(one: Shared) -> bool:
    return all(port.layer == INFINIBAND for offer in one.offers for port in offer.ports)


def _behind(rails: Sequence[Shared], at: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(port) for rail in rails for port in rail.offers[at].ports))


def _fastest(node: Node) -> tuple[str, ...]:
    """The active InfiniBand ports of the highest rate: a slower fabric beside them is one for storage."""
    ports = [port for port in node.facts.rdma or () if port.active and port.layer == INFINIBAND]
    top = max((port.rate_gbit or 0 for port in ports), default=0)
    return tuple(name_of(port) for port in ports if (port.rate_gbit or 0) == top)


def _all(nodes: Sequence[Node], what: tuple[str, ...] | None) -> dict[str, tuple[str, ...] | None]:
    return {node.name: what for node in nodes}
