"""Interfaces, addresses and RDMA ports that a candidate's variables name, and that a node does not have (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from bascule.core.layout import own_address
from bascule.core.nouns import Candidate, Evidence, Fate, Finding, Node, Setting, Step
from bascule.remote.facts import interface_of

HOST_IPS = ("VLLM_HOST_IP", "SGLANG_HOST_IP", "HOST_IP")


def names_are_there(candidate: Candidate, nodes: Sequence[Node], at: datetime) -> Finding | None:
    """Each node has what the candidate's variables name; nothing is said of a node whose facts could not be read.

    The cure is one change: what the variable should be on that node.
    """
    for node in nodes:
        env = _env(candidate, node)
        for check in (_gloo, _nccl, _host_ips, _hcas):
            for finding in check(node, env, at):
                return finding
    return None


def matches(value: str, names: Sequence[str]) -> list[str]:
    """The names that NCCL takes by a list such as `mlx5_0:1,mlx5_1`, `=eth0` or `^docker`: prefixes, or whole names
    behind `=`; all others behind `^` (NCCL's user guide, NCCL_SOCKET_IFNAME and NCCL_IB_HCA)."""
    rest = value.removeprefix("^")
    exact = rest.startswith("=")
    wanted = [word for word in rest.removeprefix("=").split(",") if word]
    if not wanted:
        return list(names)
    told = [name for name in names if any(_is_meant(name, word, exact) for word in wanted)]
    return [name for name in names if name not in told] if value.startswith("^") else told


def _is_meant(name: str, word: str, exact: bool) -> bool:
    device, _, port = name.partition(":")
    wanted, _, wanted_port = word.partition(":")
    return (device == wanted if exact else device.startswith(wanted)) and wanted_port in ("", port)


def _env(candidate: Candidate, node: Node) -> Mapping[str, str]:
    told = {one.name: one.value for one in candidate.in_force if one.kind == "env" and one.node in (None, node.name)}
    return {name: value for name, value in told.items() if value}


def _gloo(node: Node, env: Mapping[str, str], at: datetime) -> Iterator[Finding]:
    """Whole names, and each must have an address."""
    value, there = env.get("GLOO_SOCKET_IFNAME", ""), _interfaces(node)
    for name in value.split(",") if value and there else ():
        if name not in there:
            yield _interface_missing(node, "GLOO_SOCKET_IFNAME", value, name, at)


def _nccl(node: Node, env: Mapping[str, str], at: datetime) -> Iterator[Finding]:
    value, there = env.get("NCCL_SOCKET_IFNAME", ""), _interfaces(node)
    if value and there and not matches(value, there):
        yield _interface_missing(node, "NCCL_SOCKET_IFNAME", value, value, at)


def _host_ips(node: Node, env: Mapping[str, str], at: datetime) -> Iterator[Finding]:
    there = [one.ip for one in node.facts.addresses]
    for name in HOST_IPS:
        if there and name in env and env[name] not in (*there, node.address):
            says = f"{node.name} does not have the address {env[name]}, which {name} names"
            change = Setting("env", name, own_address(node), node.name)
            yield Finding(Step.PREFLIGHT, Fate.ADJUST, "address-missing", says, (_evidence(node, at),), change)


def _hcas(node: Node, env: Mapping[str, str], at: datetime) -> Iterator[Finding]:
    value, ports = env.get("NCCL_IB_HCA", ""), node.facts.rdma
    there = [f"{port.device}:{port.port}" for port in ports or () if port.active]
    if value and ports is not None and not matches(value, there):
        says = f"{node.name} has no active RDMA port {value}, which NCCL_IB_HCA names"
        seen = Evidence(node.name, "/sys/class/infiniband", at, f"active: {', '.join(there) or 'none'}")
        ours = f"={','.join(node.hcas)}" if node.hcas else None
        change = Setting("env", "NCCL_IB_HCA", ours, node.name)
        yield Finding(Step.PREFLIGHT, Fate.ADJUST, "rdma-port-missing", says, (seen,), change)


def _interface_missing(node: Node, variable: str, value: str, name: str, at: datetime) -> Finding:
    says = f"{node.name} has no interface {name} with an address, which {variable} names"
    own = own_address(node)
    right = interface_of(node.facts, own) if own else None
    exact = f"={right}" if right and variable == "NCCL_SOCKET_IFNAME" else right
    change = Setting("env", variable, exact, node.name)
    return Finding(Step.PREFLIGHT, Fate.ADJUST, "interface-missing", says, (_evidence(node, at),), change)


def _interfaces(node: Node) -> list[str]:
    return list(dict.fromkeys(one.interface for one in node.facts.addresses))


def _evidence(node: Node, at: datetime) -> Evidence:
    has = ", ".join(f"{one.interface} {one.ip}" for one in node.facts.addresses)
    return Evidence(node.name, "interfaces and addresses", at, f"it has {has}")
