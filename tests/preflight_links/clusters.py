"""Clusters made by hand: two Sparks, servers with InfiniBand, plain machines."""

from __future__ import annotations

from datetime import UTC, datetime

from bascule.core.addresses import AddressPlan
from bascule.core.machine import Address, Gid, Interface, NodeFacts, RdmaPort
from bascule.core.nouns import Finding, Node
from bascule.preflight.choose import choose_links

AT = datetime(2026, 12, 1, tzinfo=UTC)


def node(name, *rows, told=None, default="", rdma=(), machine=None, **more):
    """A node from rows `interface ip/prefix [kind] [speed in Gbit/s] [mtu=N] [down]`."""
    addresses, interfaces = [], {}
    for row in rows:
        interface, cidr, *words = row.split()
        ip, _, prefix = cidr.partition("/")
        if ip != "-":
            addresses.append(Address(interface, ip, int(prefix or 32)))
        interfaces[interface] = _interface(interface, words)
    facts = NodeFacts(
        addresses=tuple(addresses),
        interfaces=tuple(interfaces.values()),
        default_interface=default,
        rdma=tuple(rdma),
        machine_id=machine or f"boot-of-{name} net:[1]",
        **more,
    )
    return Node(name, name, told, facts=facts)


def _interface(name, words):
    kind = next((word for word in words if word.isalpha() and word != "down"), "ethernet")
    speed = next((int(float(word) * 1000) for word in words if word.replace(".", "").isdigit()), None)
    mtu = next((int(word.removeprefix("mtu=")) for word in words if word.startswith("mtu=")), 1500)
    return Interface(name, kind, "down" not in words, mtu, speed)


def port(device, interface=None, *, rate=200, layer="Ethernet", active=True, number=1, ip=""):
    gids = (Gid(3, "RoCE v2", ip),) if ip else ()
    return RdmaPort(device, number, active, layer, rate, interface, gids)


def spark(number, *, fabric=True, twin="10.0.1.{}/24", **more):
    """A DGX Spark: twin ports of one cable, a slow LAN with the default route, Wi-Fi, Docker."""
    rows = [
        "lo 127.0.0.1/8 loopback",
        f"enP7s7 192.168.1.{number}/24 ethernet 10",
        f"wlP9s9 192.168.2.{number}/24 wifi",
        "docker0 172.17.0.1/16 bridge",
        f"enp1s0f0np0 10.0.0.{number}/24 ethernet 200 mtu=9000" if fabric else "enp1s0f0np0 -/ ethernet 200",
        f"enP2p1s0f0np0 {twin.format(number)} ethernet 200 mtu=9000" if twin else "enP2p1s0f0np0 -/ ethernet 200",
    ]
    ports = (port("rocep1s0f0", "enp1s0f0np0"), port("roceP2p1s0f0", "enP2p1s0f0np0"))
    return node(f"spark-{number}", *rows, **{"default": "enP7s7", "rdma": ports, **more})


def h200(number, *, ipoib=True):
    """A server with eight InfiniBand ports, two of them with an address, and a RoCE port for storage."""
    rows = [f"bond0 10.1.0.{number}/16 ethernet 25", f"storage0 10.9.0.{number}/24 ethernet 200"]
    rows += [f"ib{at} 10.{20 + at}.0.{number}/24 infiniband 400" for at in range(2)] if ipoib else []
    ports = [port(f"mlx5_{at}", f"ib{at}", rate=400, layer="InfiniBand") for at in range(8)]
    return node(f"h{number}", *rows, default="bond0", rdma=(*ports, port("mlx5_bond_0", "storage0")))


def plan_of(nodes, failed=()):
    plan = choose_links(nodes, AT, failed)
    assert isinstance(plan, AddressPlan), plan
    return plan


def finding_of(nodes):
    finding = choose_links(nodes, AT)
    assert isinstance(finding, Finding), finding
    return finding


def told(plan):
    return [(one.node, one.ip, one.interface) for one in plan.link.told]


def codes(plan):
    return [notice.code for notice in plan.notices]
