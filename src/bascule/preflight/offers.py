"""Which addresses of a node may be told to its peers, and why the others may not (pure)."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from bascule.core.addresses import PassedOver
from bascule.core.machine import Address, Interface, RdmaPort
from bascule.core.nouns import Node

Network = ipaddress.IPv4Network
# How much an interface is meant to connect machines; unknown ones stand in the middle.
_ORDER = {"ethernet": 0, "infiniband": 0, "other": 1, "virtual": 2, "bridge": 3}


@dataclass(frozen=True, slots=True)
class Offer:
    """An address that a node could tell, with what stands behind it."""

    node: str
    address: Address
    interface: Interface | None  # None: nothing is known of it but its name
    ports: tuple[RdmaPort, ...]  # active RDMA ports behind it
    weakness: str  # why it is taken only where there is nothing better
    is_default: bool  # the default route goes through it

    @property
    def ip(self) -> str:
        """The address itself."""
        return self.address.ip

    @property
    def network(self) -> Network:
        """The network that its prefix says."""
        return ipaddress.IPv4Network(f"{self.address.ip}/{self.address.prefix}", strict=False)

    def address_in(self, network: Network) -> bool:
        """True when its address is one of this network."""
        return ipaddress.IPv4Address(self.address.ip) in network

    @property
    def speed_mbit(self) -> int | None:
        """Of the interface, or of the RDMA port where that says more."""
        told = [self.interface.speed_mbit] if self.interface and self.interface.speed_mbit else []
        told += [int(port.rate_gbit * 1000) for port in self.ports if port.rate_gbit]
        return max(told, default=None)

    @property
    def order(self) -> tuple[bool, bool, int, int, bool]:
        """Better ones sort first; equal ones stay as the node lists them."""
        kind = _ORDER.get(self.interface.kind, 1) if self.interface else 1
        return bool(self.weakness), not self.ports, -(self.speed_mbit or 0), kind, self.is_default


@dataclass(frozen=True, slots=True)
class _Rule:
    what: str
    weakness: str = ""
    pattern: str = ""


def offers_of(node: Node) -> tuple[list[Offer], list[PassedOver]]:
    """All that the node could tell, in the order of its interfaces, and what it could not."""
    offered, passed = [], []
    for address in node.facts.addresses:
        why, weakness = _judge(address, node)
        if why:
            passed.append(PassedOver(node.name, address.interface, address.ip, why))
        else:
            offered.append(_offer(node, address, weakness))
    return offered, passed


def named_offer(node: Node) -> Offer | None:
    """The address that the recipe gives the node, whatever it is; None when the node is known not to have it."""
    if node.address is None:
        return None
    own = next((one for one in node.facts.addresses if one.ip == node.address), None) or _of_loopback(node)
    if own is None and node.facts.addresses:
        return None
    address = own or Address("", node.address, 32)  # its addresses could not be read: it is taken at its word
    return _offer(node, address, "")


def _of_loopback(node: Node) -> Address | None:
    """All of 127.0.0.0/8 is there where 127.0.0.1 is: two nodes of one machine can tell two of its addresses."""
    if node.address is None or not ipaddress.ip_address(node.address).is_loopback:
        return None
    known = (one for one in node.facts.addresses if ipaddress.ip_address(one.ip).is_loopback)
    return next((replace(one, ip=node.address) for one in known), None)


def interface_named(node: Node, name: str) -> Interface | None:
    """What is known of an interface."""
    return next((one for one in node.facts.interfaces or () if one.name == name), None)


def _offer(node: Node, address: Address, weakness: str) -> Offer:
    ports = tuple(port for port in node.facts.rdma or () if port.active and _stands_behind(port, address))
    default = node.facts.default_interface == address.interface
    return Offer(node.name, address, interface_named(node, address.interface), ports, weakness, default)


def _stands_behind(port: RdmaPort, address: Address) -> bool:
    """By its netdev, or by the address in its GID table: a VLAN on it has a netdev of its own."""
    return port.interface == address.interface or any(gid.ip == address.ip for gid in port.gids)


def _judge(address: Address, node: Node) -> tuple[str, str]:
    """Why the address can't be told, or "" and why only where nothing better is."""
    ip = ipaddress.ip_address(address.ip)
    interface = interface_named(node, address.interface)
    rule = _rule_for(address.interface, interface)
    if ip.is_loopback or ip.is_unspecified:
        return "loopback", ""
    if interface and not interface.up:
        return "its interface has no carrier", ""
    if rule and not rule.weakness:
        return rule.what, ""
    if ip.is_link_local:
        return "a link-local address", ""
    return "", rule.weakness if rule else ""


def _rule_for(name: str, interface: Interface | None) -> _Rule | None:
    names, kinds = _rules()
    if interface and interface.kind in kinds:
        return kinds[interface.kind]
    return next((rule for rule in names if re.fullmatch(rule.pattern, name)), None)


@cache
def _rules() -> tuple[Sequence[_Rule], Mapping[str, _Rule]]:
    raw = tomllib.loads(resources.files("bascule.preflight").joinpath("interfaces.toml").read_text())
    return [_Rule(**row) for row in raw["names"]], {kind: _Rule(**row) for kind, row in raw["kinds"].items()}
