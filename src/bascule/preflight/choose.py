"""Chooses the addresses of a start from facts: the fastest link that all nodes share (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from bascule.core.addresses import ROUTED, AddressPlan, Link, PassedOver, Row
from bascule.core.nouns import Evidence, Fate, Finding, Node, Step
from bascule.preflight.hcas import Hcas, hcas_of, ports_behind, rails_of
from bascule.preflight.links import Shared, on_one_machine, routed_link, shared_links
from bascule.preflight.notes import notices_of
from bascule.preflight.offers import Offer, named_offer, offers_of

SOURCE = "interfaces and addresses"


def choose_links(nodes: Sequence[Node], at: datetime, failed: Sequence[Link] = ()) -> AddressPlan | Finding:
    """The address plan for these nodes, head first; `failed` are links that did not stand the proof.

    A finding when a node has not the address that the recipe names, or none that could be told.
    """
    for node in nodes:
        if trouble := _missing(node, at):
            return trouble
    offered, passed = _offers(nodes)
    for node, offers in zip(nodes, offered, strict=True):
        if not offers:
            return _no_address(node, passed, at)
    shared, apart = shared_links(nodes, offered)
    ways = [one for one in _ways(nodes, offered, shared) if one.link not in failed]
    if not ways:
        return _nothing_left(nodes, failed, at)
    return _plan(nodes, ways, shared, (*passed, *apart), failed, at)


def next_plan(plan: AddressPlan, nodes: Sequence[Node], at: datetime) -> AddressPlan | None:
    """The next best plan after this one did not stand the proof; None when there is no other."""
    chosen = choose_links(nodes, at, (*plan.failed, plan.link))
    return chosen if isinstance(chosen, AddressPlan) else None


def with_addresses(nodes: Sequence[Node], plan: AddressPlan) -> tuple[Node, ...]:
    """The nodes as the plan has them: what launches read from them are these addresses and RDMA ports."""
    rows = {row.node: row for row in plan.rows}
    return tuple(replace(node, address=rows[node.name].zmq.ip, hcas=rows[node.name].hcas) for node in nodes)


def without_rail(plan: AddressPlan, rail: Link, nodes: Sequence[Node]) -> AddressPlan:
    """The plan without the RDMA ports behind a rail that did not stand the proof."""
    lost = {told.node: ports_behind(node, told.ip) for node, told in zip(nodes, rail.told, strict=True)}
    rows = [replace(row, hcas=tuple(one for one in row.hcas or () if one not in lost[row.node])) for row in plan.rows]
    return replace(plan, rows=tuple(rows), rails=tuple(one for one in plan.rails if one != rail))


def _offers(nodes: Sequence[Node]) -> tuple[list[list[Offer]], list[PassedOver]]:
    """What each node could tell; one whose address the recipe names could tell that alone."""
    offered, passed = [], []
    for node in nodes:
        offers, refused = offers_of(node)
        named = named_offer(node)
        offered.append([named] if named else offers)
        passed += [] if named else refused
    return offered, passed


def _ways(nodes: Sequence[Node], offered: Sequence[Sequence[Offer]], shared: Sequence[Shared]) -> list[Shared]:
    """What can be chosen, best first. A node that is alone tells the address by which others come to it."""
    routed = routed_link(offered)
    assert routed is not None
    if on_one_machine(nodes):
        return [routed]
    known = any(one.link.told == routed.link.told for one in shared)
    return [*shared, *([] if known else [routed])]


def _plan(
    nodes: Sequence[Node],
    ways: Sequence[Shared],
    shared: Sequence[Shared],
    passed: Sequence[PassedOver],
    failed: Sequence[Link],
    at: datetime,
) -> AddressPlan:
    chosen = ways[0]
    alone = on_one_machine(nodes)
    sound = [one for one in _all_shared(nodes, shared) if one.link not in failed]
    rails = [] if alone else rails_of(chosen, sound)
    hcas = dict.fromkeys(node.name for node in nodes) if alone else hcas_of(nodes, rails, failed)
    plan = AddressPlan(
        chosen.link,
        _rows(chosen.link, hcas),
        _because(nodes, chosen.link, failed),
        tuple(rail.link for rail in rails if rail.link != chosen.link),
        tuple(one.link for one in ways[1:]),
        tuple(failed),
        tuple(passed),
    )
    return replace(plan, notices=tuple(notices_of(plan, nodes, at)))


def _all_shared(nodes: Sequence[Node], shared: Sequence[Shared]) -> Sequence[Shared]:
    """Also those networks that the recipe's addresses leave out: NCCL's data may go there all the same."""
    if all(node.address is None for node in nodes):
        return shared
    free, _ = shared_links(nodes, [offers_of(node)[0] for node in nodes])
    return [*shared, *(one for one in free if one.link not in [named.link for named in shared])]


def _rows(link: Link, hcas: Hcas) -> tuple[Row, ...]:
    head = link.told[0].ip
    return tuple(Row(told.node, head, told, told, told, hcas[told.node]) for told in link.told)


def _because(nodes: Sequence[Node], link: Link, failed: Sequence[Link]) -> str:
    if all(node.address for node in nodes):
        return "the recipe names these addresses"
    if len(nodes) == 1:
        return "it is the address by which others come to this node"
    if on_one_machine(nodes):
        return "the nodes are one machine: they meet at its own address"
    behind = f" that stood the proof, after {', '.join(one.network for one in failed)}" if failed else ""
    if link.network == ROUTED:
        return f"the nodes share no network{behind}: each tells the address of its default route"
    return f"{link} is the best network that all {len(nodes)} nodes share{behind}"


def _missing(node: Node, at: datetime) -> Finding | None:
    if node.address is None or named_offer(node):
        return None
    advice = f"name one of these as `address:` of {node.name}, or leave it out"
    says = f"{node.name} does not have the address {node.address} that the recipe names"
    return Finding(Step.PREFLIGHT, Fate.CLUSTER, "address-missing", says, (_what_it_has(node, at),), advice=advice)


def _no_address(node: Node, passed: Sequence[PassedOver], at: datetime) -> Finding:
    whys = "; ".join(f"{one.interface} {one.ip}: {one.why}" for one in passed if one.node == node.name)
    seen = Evidence(node.name, SOURCE, at, whys or node.facts.unknown.get("addresses", "no address was seen"))
    says = f"{node.name} has no address that its peers could use"
    advice = f"say `address:` for {node.name} in the recipe"
    return Finding(Step.PREFLIGHT, Fate.CLUSTER, "no-address", says, (seen,), advice=advice)


def _nothing_left(nodes: Sequence[Node], failed: Sequence[Link], at: datetime) -> Finding:
    seen = Evidence(nodes[0].name, SOURCE, at, ", ".join(map(str, failed)))
    says = "no link between the nodes stood the proof"
    return Finding(Step.PREFLIGHT, Fate.CLUSTER, "peer-unreachable", says, (seen,))


def _what_it_has(node: Node, at: datetime) -> Evidence:
    has = ", ".join(f"{one.interface} {one.ip}/{one.prefix}" for one in node.facts.addresses)
    return Evidence(node.name, SOURCE, at, f"it has {has}")
