"""What a person should know of an address plan before anything is proven: twins, Wi-Fi, faster links (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import combinations

from bascule.core.addresses import AddressPlan, Told
from bascule.core.machine import RdmaPort
from bascule.core.notices import Notice
from bascule.core.nouns import Evidence, Node
from bascule.preflight.hcas import name_of
from bascule.preflight.links import on_one_machine
from bascule.preflight.offers import Offer, interface_named, offers_of

_LOOKED_AT = "interfaces and addresses"
_VIRTUAL = ("virtual", "bridge")


def notices_of(plan: AddressPlan, nodes: Sequence[Node], at: datetime) -> Iterator[Notice]:
    """All notices about a plan that was just chosen; nodes are in the order of its rows."""
    for node, told in zip(nodes, plan.link.told, strict=True):
        yield from _twins(node, at)
        if told.interface is None:
            yield _interface_unknown(told, node, at)
    if plan.link.weakness:
        yield _weak(plan, at)
    if not on_one_machine(nodes):
        yield from _mtu(plan, nodes, at)
        yield from _faster(plan, nodes, at)
        yield from (one for node in nodes if (one := _unused_ports(plan, node, at)))


def _twins(node: Node, at: datetime) -> Iterator[Notice]:
    """Two interfaces of a node in one network: an answer may leave by the other one, as its route says."""
    for one, other in combinations(offers_of(node)[0], 2):
        if one.network != other.network or one.address.interface == other.address.interface:
            continue
        if _is_virtual(one) or _is_virtual(other):
            continue
        both = f"{_named(one)} and {_named(other)}"
        says = f"{both} of {node.name} are in one network, {one.network}: packets to the one may go by the other"
        advice = f"give {other.address.interface} a network of its own, on every node alike"
        yield Notice(node.name, "twins-one-subnet", says, (_seen(node.name, at, both),), advice=advice)


def _interface_unknown(told: Told, node: Node, at: datetime) -> Notice:
    why = node.facts.unknown.get("addresses", "none of those that were read has this address")
    says = f"which interface of {told.node} carries {told.ip} is not known: Gloo and NCCL choose one by themselves"
    return Notice(told.node, "interface-unknown", says, (_seen(told.node, at, why),), weight="unknown")


def _weak(plan: AddressPlan, at: datetime) -> Notice:
    told = ", ".join(f"{one.node} {one.interface} {one.ip}" for one in plan.link.told)
    says = f"the nodes have nothing better in common than {plan.link.weakness}"
    advice = "give all nodes an address on a cable between them, or say `address:` for each"
    return Notice("", "weak-link", says, (_seen(plan.link.told[0].node, at, told),), advice=advice)


def _mtu(plan: AddressPlan, nodes: Sequence[Node], at: datetime) -> Iterator[Notice]:
    sizes = {node.name: _mtu_of(node, told) for node, told in zip(nodes, plan.link.told, strict=True)}
    known = {name: size for name, size in sizes.items() if size}
    if len(set(known.values())) > 1:
        told = ", ".join(f"{name} {size}" for name, size in known.items())
        says = f"the MTU of {plan.link.network} is not the same on all nodes: {told}"
        advice = "set the same MTU on every node, and on the switch between them"
        yield Notice("", "mtu-differs", says, (_seen(next(iter(known)), at, told),), advice=advice)


def _faster(plan: AddressPlan, nodes: Sequence[Node], at: datetime) -> Iterator[Notice]:
    """Addresses on faster links that the plan leaves aside, where it goes without RDMA."""
    if plan.link.rdma or any(row.hcas for row in plan.rows) or not plan.link.speed_mbit:
        return
    for node in nodes:
        for offer in offers_of(node)[0]:
            speed, why = offer.speed_mbit or 0, _why(plan, offer)
            if why and not offer.ports and speed > plan.link.speed_mbit:
                says = f"{_named(offer)} of {node.name} is faster than what was chosen, {speed / 1000:g} Gbit/s: {why}"
                yield Notice(node.name, "faster-link-unused", says, (_seen(node.name, at, why),))


def _unused_ports(plan: AddressPlan, node: Node, at: datetime) -> Notice | None:
    """Active RDMA ports, at least as fast as the link, that NCCL is not given."""
    hcas = next(row.hcas for row in plan.rows if row.node == node.name)
    unused = [port for port in _fast_ports(plan, node) if name_of(port) not in (hcas or ())]
    if not unused:
        return None
    told = "; ".join(f"{name_of(port)} ({port.interface or '?'}): {_why_unused(plan, node, port)}" for port in unused)
    what = "are not in the plan" if hcas is not None else "lead to no network of all nodes, NCCL is left to choose"
    advice = "give each interface an address in a network of its own, the same on every node"
    says = f"active RDMA ports of {node.name} {what}: {told}"
    return Notice(node.name, "rdma-port-unused", says, (_seen(node.name, at, told),), advice=advice)


def _fast_ports(plan: AddressPlan, node: Node) -> list[RdmaPort]:
    floor = plan.link.speed_mbit or 0
    ports = [port for port in node.facts.rdma or () if port.active]
    return [port for port in ports if port.rate_gbit is None or port.rate_gbit * 1000 >= floor]


def _why_unused(plan: AddressPlan, node: Node, port: RdmaPort) -> str:
    offers = [one for one in offers_of(node)[0] if port in one.ports]
    refused = [one for one in offers_of(node)[1] if one.interface == port.interface]
    if offers:
        return _why(plan, offers[0]) or f"{offers[0].network} was not chosen"
    return f"{refused[0].ip} is {refused[0].why}" if refused else "no address"


def _why(plan: AddressPlan, offer: Offer) -> str:
    """Why an address is not in the plan; "" when it is."""
    told = [one.ip for link in (plan.link, *plan.rails) for one in link.told if one.node == offer.node]
    if offer.ip in told:
        return ""
    if any(str(offer.network) == link.network for link in (plan.link, *plan.rails)):
        return f"{offer.network} is reached by another address of this node"
    if any(str(offer.network) == link.network for link in plan.failed):
        return f"{offer.network} did not stand the proof"
    whys = [one.why for one in plan.passed_over if (one.node, one.ip) == (offer.node, offer.ip)]
    return whys[0] if whys else ""


def _mtu_of(node: Node, told: Told) -> int | None:
    interface = interface_named(node, told.interface) if told.interface else None
    return interface.mtu if interface else None


def _is_virtual(offer: Offer) -> bool:
    return offer.interface is not None and offer.interface.kind in _VIRTUAL


def _named(offer: Offer) -> str:
    return f"{offer.ip} ({offer.address.interface})"


def _seen(node: str, at: datetime, excerpt: str) -> Evidence:
    return Evidence(node, _LOOKED_AT, at, excerpt)
