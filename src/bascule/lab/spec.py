"""What a lab is made of: hosts, their addresses on two networks, and the commands that make them (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Network = Literal["fabric", "lan"]
NETWORKS: tuple[Network, ...] = ("fabric", "lan")
INTERFACE = {"fabric": "fab0", "lan": "lan0"}  # on a host; the bridge in the switch has the same name
CONTROLLER = 254  # the last number of the controller's address; it is on the LAN alone
MOST_HOSTS = 200
USERS = {"op": 64001, "guest": 64002}  # op may use docker, guest may not
DOCKER_GROUP = 64000


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a lab."""

    lab: str
    number: int
    net: int  # second octet of its addresses

    @property
    def name(self) -> str:
        """As in the ssh config of the lab."""
        return f"h{self.number}"

    @property
    def namespace(self) -> str:
        """Its network namespace."""
        return f"{self.lab}-{self.name}"

    @property
    def cgroup(self) -> str:
        """The parent of its containers' control groups."""
        return f"/{self.namespace}"

    def address(self, network: Network) -> str:
        """Its address on a network."""
        return f"10.{self.net}.{NETWORKS.index(network)}.{self.number}"

    def cable(self, network: Network) -> str:
        """The switch's end of its cable; at most 15 characters, as the kernel has it."""
        return f"{INTERFACE[network][:3]}{self.number}"


@dataclass(frozen=True, slots=True)
class Lab:
    """Some hosts on a switch of their own."""

    name: str
    folder: Path
    size: int
    net: int = 87

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts, h1 first."""
        return tuple(Host(self.name, number, self.net) for number in range(1, self.size + 1))

    @property
    def switch(self) -> str:
        """The network namespace that holds the bridges."""
        return f"{self.name}-switch"

    @property
    def uplink(self) -> str:
        """The controller's interface to the LAN."""
        return f"{self.name[:9]}-lan"

    def host_folder(self, host: Host) -> Path:
        """Everything a host keeps: keys, home, docker's data."""
        return self.folder / host.name


def make_switch(lab: Lab) -> Iterator[tuple[str, ...]]:
    """Commands: the switch, its bridges, and the controller's cable to the LAN."""
    yield ("ip", "netns", "add", lab.switch)
    for network in NETWORKS:
        yield ("ip", "-n", lab.switch, "link", "add", INTERFACE[network], "type", "bridge")
        yield ("ip", "-n", lab.switch, "link", "set", INTERFACE[network], "up")
    yield ("ip", "link", "add", lab.uplink, "type", "veth", "peer", "name", "uplink", "netns", lab.switch)
    yield ("ip", "-n", lab.switch, "link", "set", "uplink", "master", INTERFACE["lan"], "up")
    yield ("ip", "addr", "add", f"10.{lab.net}.1.{CONTROLLER}/24", "dev", lab.uplink)
    yield ("ip", "link", "set", lab.uplink, "up")


def make_network(lab: Lab, host: Host) -> Iterator[tuple[str, ...]]:
    """Commands: a host's namespace with a cable to each network; its default route is the LAN, as in life."""
    yield ("ip", "netns", "add", host.namespace)
    yield ("ip", "-n", host.namespace, "link", "set", "lo", "up")
    for network in NETWORKS:
        inside, outside = INTERFACE[network], host.cable(network)
        cable = ("type", "veth", "peer", "name", outside, "netns", lab.switch)
        yield ("ip", "-n", host.namespace, "link", "add", inside, *cable)
        yield ("ip", "-n", lab.switch, "link", "set", outside, "master", inside, "up")
        yield ("ip", "-n", host.namespace, "addr", "add", f"{host.address(network)}/24", "dev", inside)
        yield ("ip", "-n", host.namespace, "link", "set", inside, "up")
    gateway = f"10.{lab.net}.1.{CONTROLLER}"
    yield ("ip", "-n", host.namespace, "route", "add", "default", "via", gateway, "dev", INTERFACE["lan"])


def boot(lab: Lab, host: Host, init: Path) -> tuple[str, ...]:
    """The command that is the host: its first process and, when it ends, the end of everything in it."""
    inside = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
    folder = str(lab.host_folder(host))
    words = ("sh", str(init), folder, host.name, host.cgroup)
    return ("nsenter", f"--net=/run/netns/{host.namespace}", *inside, *words)


def drop(one: Host, other: Host, network: Network) -> Iterator[tuple[str, ...]]:
    """Commands: `one` neither sends to nor hears from `other` on a network; packets vanish without an answer."""
    address = other.address(network)
    for chain, side in (("INPUT", "--source"), ("OUTPUT", "--destination")):
        yield (*_iptables(one), "--append", chain, side, address, "--jump", "DROP")


def undrop(host: Host) -> tuple[str, ...]:
    """The command that lets everything through again."""
    return (*_iptables(host), "--flush")


def shape(host: Host, network: Network, rate: str) -> Iterator[tuple[str, ...]]:
    """Commands: what a host sends and gets on a network is held to a rate, such as 1gbit; "" lifts it."""
    switch = f"{host.lab}-switch"
    for namespace, device in ((host.namespace, INTERFACE[network]), (switch, host.cable(network))):
        yield ("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")
        if rate:
            limit = ("tbf", "rate", rate, "burst", "2mb", "latency", "100ms")
            yield ("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *limit)


def ssh_config(lab: Lab, user: str = "op") -> str:
    """An ssh client configuration that reaches every host by its name."""
    lines = [f"# The hosts of the lab {lab.name}; ssh -F this-file h1"]
    for host in lab.hosts:
        lines += [
            f"Host {host.name}",
            f"  HostName {host.address('lan')}",
            f"  User {user}",
            f"  IdentityFile {lab.host_folder(host) / 'client_key'}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {lab.folder / 'known_hosts'}",
            "  StrictHostKeyChecking yes",
        ]
    return "\n".join(lines) + "\n"


def _iptables(host: Host) -> tuple[str, ...]:
    return ("nsenter", f"--net=/run/netns/{host.namespace}", "iptables", "--wait")
