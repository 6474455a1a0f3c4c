"""The plan as a candidate's own variables change it: what its engine will really tell (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bascule.core.addresses import AddressPlan, Row, Told
from bascule.core.nouns import Node
from bascule.preflight.named import HOST_IPS, matches

Environments = Mapping[str, Mapping[str, str]]  # by node: the variables of its rank


def retold(plan: AddressPlan, nodes: Sequence[Node], envs: Environments) -> AddressPlan:
    """The plan with the addresses that these variables make Gloo, NCCL and the engine's queues tell.

    A name that a node does not have changes nothing here: names_are_there() tells it.
    """
    by_name = {node.name: node for node in nodes}
    return replace(plan, rows=tuple(_row(row, by_name[row.node], envs.get(row.node, {})) for row in plan.rows))


def _row(row: Row, node: Node, env: Mapping[str, str]) -> Row:
    gloo = _on(node, env.get("GLOO_SOCKET_IFNAME", "").split(","))
    nccl = _on(node, matches(env["NCCL_SOCKET_IFNAME"], _interfaces(node)) if env.get("NCCL_SOCKET_IFNAME") else ())
    zmq = [_told(node, env[name]) for name in HOST_IPS if env.get(name)]
    return replace(row, gloo=gloo or row.gloo, nccl=nccl or row.nccl, zmq=next(filter(None, zmq), row.zmq))


def _on(node: Node, interfaces: Sequence[str]) -> Told | None:
    """The first address on the first of these interfaces that has one."""
    for name in interfaces:
        for one in node.facts.addresses:
            if one.interface == name:
                return Told(node.name, one.ip, name)
    return None


def _told(node: Node, ip: str) -> Told | None:
    return next((Told(node.name, ip, one.interface) for one in node.facts.addresses if one.ip == ip), None)


def _interfaces(node: Node) -> list[str]:
    return list(dict.fromkeys(one.interface for one in node.facts.addresses))
