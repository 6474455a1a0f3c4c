"""The networks that all nodes share, best first (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from bascule.core.addresses import ROUTED, Link, PassedOver, Told
from bascule.core.nouns import Node
from bascule.preflight.offers import Network, Offer


@dataclass(frozen=True, slots=True)
class Shared:
    """A link, and what each node has on it."""

    link: Link
    offers: tuple[Offer, ...]


def shared_links(nodes: Sequence[Node], offered: Sequence[Sequence[Offer]]) -> tuple[list[Shared], list[PassedOver]]:
    """Every network on which each node has an address, best first; and why others are none."""
    networks = dict.fromkeys(offer.network for offers in offered for offer in offers)
    shared: dict[tuple[str, ...], Shared] = {}
    passed: list[PassedOver] = []
    for network in sorted(networks, key=lambda one: (one.prefixlen, one)):
        chosen = [_best_in(network, offers) for offers in offered]
        there = [one for one in chosen if one]
        why = _why_not(nodes, chosen)
        if why:
            passed += [
                PassedOver(one.node, one.address.interface, one.ip, why) for one in there if one.network == network
            ]
        else:
            shared.setdefault(tuple(one.ip for one in there), Shared(_link(str(network), there), tuple(there)))
    return sorted(shared.values(), key=_rank), passed


def routed_link(offered: Sequence[Sequence[Offer]]) -> Shared | None:
    """Each node at the address of its default route, or else at its best one: for nodes that share no network."""
    if not all(offered):
        return None
    chosen = [min(offers, key=lambda one: (bool(one.weakness), not one.is_default, one.order)) for offers in offered]
    return Shared(_link(ROUTED, chosen), tuple(chosen))


def on_one_machine(nodes: Sequence[Node]) -> bool:
    """True when all nodes are the same machine with the same network."""
    return all(_same_machine(nodes[0], other) for other in nodes[1:])


def _best_in(network: Network, offers: Sequence[Offer]) -> Offer | None:
    return min((one for one in offers if one.address_in(network)), key=lambda one: one.order, default=None)


def _why_not(nodes: Sequence[Node], chosen: Sequence[Offer | None]) -> str:
    lacking = [node.name for node, offer in zip(nodes, chosen, strict=True) if offer is None]
    if lacking:
        return f"not a network of {_few(lacking)}"
    for (one, mine), (other, theirs) in combinations(zip(nodes, chosen, strict=True), 2):
        assert mine and theirs
        if mine.ip == theirs.ip and not _same_machine(one, other):
            return f"{one.name} and {other.name} have the same address {mine.ip}"
        if not (mine.address_in(theirs.network) and theirs.address_in(mine.network)):
            return f"{mine.ip} of {one.name} and {theirs.ip} of {other.name} are not in each other's network"
    return ""


def _same_machine(one: Node, other: Node) -> bool:
    ids = one.facts.machine_id, other.facts.machine_id
    return ids[0] == ids[1] if all(ids) else one.is_local and other.is_local


def _link(network: str, offers: Sequence[Offer]) -> Link:
    told = tuple(Told(one.node, one.ip, one.address.interface or None) for one in offers)
    speed = min((one.speed_mbit for one in offers if one.speed_mbit), default=None)
    weakness = next((one.weakness for one in offers if one.weakness), "")
    return Link(network, told, all(one.ports for one in offers), speed, weakness)


def _rank(one: Shared) -> tuple[bool, bool, int, tuple[int, bool], Network]:
    """Weak ones last, RDMA first, then speed, kind, beside the default route, and the number of the network."""
    link, worst = one.link, max(offer.order[3:] for offer in one.offers)
    return bool(link.weakness), not link.rdma, -(link.speed_mbit or 0), worst, Network(link.network)


def _few(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} others" if len(names) > most else ""
    return ", ".join(names[:most]) + more
