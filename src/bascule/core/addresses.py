"""Who tells whom which address: the address plan of a start, and what was measured between each two of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bascule.core.notices import Notice

ROUTED = "routed"  # in place of a network: the nodes share none, each is reached at its own address
Outcome = Literal[
    "reached",  # connected, answered, and took a payload of full-size segments
    "refused",  # something answered in its place: a firewall that rejects, or an address of somebody else
    "no-route",  # the network said that there is no way, or that nobody has this address
    "no-answer",  # SYN was sent, and nothing came back
    "mute",  # connected, and then no word
    "stalled",  # small words pass, and a payload of full-size segments is never acknowledged
    "stranger",  # somebody else has this address
    "unproven",  # could not be tried
]


@dataclass(frozen=True, slots=True)
class Told:
    """What one node tells its peers: its own address, and the interface that carries it."""

    node: str
    ip: str
    interface: str | None  # None: not known


@dataclass(frozen=True, slots=True)
class Link:
    """A network with an address of every node, in the order of the nodes."""

    network: str  # 10.0.0.0/24, or ROUTED
    told: tuple[Told, ...]
    rdma: bool = False  # an active RDMA port stands behind the address of every node
    speed_mbit: int | None = None  # of the slowest node; None: no driver says
    weakness: str = ""  # why it is taken only where there is nothing better: "Wi-Fi"

    def __str__(self) -> str:
        speed = f"{self.speed_mbit / 1000:g} Gbit/s" if self.speed_mbit else ""
        facts = ", ".join(word for word in ("RDMA" if self.rdma else "", speed, self.weakness) if word)
        return f"{self.network} ({facts})" if facts else self.network


@dataclass(frozen=True, slots=True)
class Row:
    """One node in the plan: the address that each part of an engine tells or dials there."""

    node: str
    rendezvous: str  # the head's address, which every rank dials
    gloo: Told
    nccl: Told  # NCCL's sockets; its data goes through the RDMA ports where there are some
    zmq: Told  # the engine's own message queues
    hcas: tuple[str, ...] | None = None  # DEVICE:PORT for NCCL; None: left to NCCL; (): it must use sockets

    @property
    def told(self) -> tuple[Told, ...]:
        """What it tells its peers, each address once."""
        return tuple({one.ip: one for one in (self.gloo, self.nccl, self.zmq)}.values())


@dataclass(frozen=True, slots=True)
class PassedOver:
    """An address that was not chosen, and why."""

    node: str
    interface: str
    ip: str
    why: str


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """The addresses of one start; rows are in the order of the nodes, head first."""

    link: Link
    rows: tuple[Row, ...]
    because: str  # one sentence
    rails: tuple[Link, ...] = ()  # other links whose RDMA ports NCCL uses as well
    others: tuple[Link, ...] = ()  # what could be taken instead, best first
    failed: tuple[Link, ...] = ()  # better ones that did not stand the proof
    passed_over: tuple[PassedOver, ...] = ()
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """What happened when one node opened a connection to an address that another one tells."""

    origin: str
    target: str
    ip: str  # of the target
    outcome: Outcome
    local_ip: str = ""  # from which the origin connected; "" where it did not come so far
    connect_s: float | None = None  # from SYN to the established connection
    round_trip_s: float | None = None  # of a few bytes there and back, the best of several
    rate: float | None = None  # bytes/s of one TCP stream; None: not measured
    seen: str = ""  # what the system said, or why it could not be tried

    @property
    def bad(self) -> bool:
        """True when it is proven that engines would fail here; "unproven" is not."""
        return self.outcome not in ("reached", "unproven")
