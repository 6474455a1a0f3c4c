"""What TCP sockets prove about a start: who waits for an address of a peer that can't be reached (pure)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bascule.core.machine import Address
from bascule.watch.samples import Sample, Socket

# As include/net/tcp_states.h of Linux numbers them, with the names that `ss` prints.
STATES = {
    "01": "ESTABLISHED",
    "02": "SYN-SENT",
    "03": "SYN-RECV",
    "04": "FIN-WAIT-1",
    "05": "FIN-WAIT-2",
    "06": "TIME-WAIT",
    "07": "CLOSE",
    "08": "CLOSE-WAIT",
    "09": "LAST-ACK",
    "0A": "LISTEN",
    "0B": "CLOSING",
    "0C": "NEW-SYN-RECV",
}
PERSISTS = 5.0  # seconds; far more than a handshake takes where it works
_HEX = re.compile(r"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})\Z")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank sits: its node, that node's addresses, and the one that the plan tells its peers."""

    rank: int
    node: str
    address: str
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A rank waits for an address of another one: proven, since it was seen trying for `for_s` seconds at least."""

    advertised: str  # address:port that is tried
    interface: str  # that carries it on the peer
    by_rank: int  # the peer that has this address
    to_rank: int  # the one that can't reach it
    listening: bool | None  # the peer listens there; None: its sockets are not known
    instead: str | None  # the peer's address that works; None: no other is known to, so there is nothing to change
    proof: Literal["connected", "same network", ""]  # why `instead` works: a connection is there; or it ought to
    for_s: float

    def __str__(self) -> str:
        heard = {True: ", which listens there", False: ", where nobody listens", None: ""}[self.listening]
        says = f"rank {self.to_rank} has tried to reach {self.advertised} of rank {self.by_rank}{heard}"
        works = f"; {self.instead} is {self.proof.replace('same', 'in the same')}" if self.instead else ""
        return f"{says}, without an answer for {self.for_s:.0f} s{works}"


@dataclass(frozen=True, slots=True)
class Lonely:
    """A rank listens at an address beside the plan's, and no peer is connected there. A hint, no proof."""

    listens: str  # address:port
    rank: int
    planned: str


def decode(state: str, local: str, remote: str) -> Socket:
    """A socket as /proc/net/tcp or tcp6 prints it; ValueError when it is none."""
    if state not in STATES:
        raise ValueError(f"state {state[:10]!r}")
    name = STATES[state]
    return Socket(name, _endpoint(local), "" if name == "LISTEN" else _endpoint(remote))


def about_peers(sockets: Iterable[Socket], peers: Collection[str]) -> tuple[Socket, ...]:
    """Of the sockets of a whole network, those that may be of a rank: listeners, and what leads to a peer."""
    return tuple(one for one in sockets if one.state == "LISTEN" or host_of(one.remote) in peers)


def parse_tcp(text: str) -> tuple[Socket, ...]:
    """All sockets of /proc/net/tcp and tcp6, one behind the other; lines that are none are left out."""
    found = []
    for line in text.splitlines():
        row = line.split()
        if len(row) >= 4 and row[3] in STATES and _HEX.match(row[1]) and _HEX.match(row[2]):
            found.append(decode(row[3], row[1], row[2]))
    return tuple(found)


def host_of(endpoint: str) -> str:
    """The address of address:port, without the brackets of IPv6."""
    return endpoint.rpartition(":")[0].strip("[]")


def unreachable(samples: Iterable[Sample], seats: Sequence[Seat]) -> tuple[Unreachable, ...]:
    """All such pairs, by rank. `samples` are those of all ranks over the last looks; only those with sockets count.

    What was seen in the newest one of a rank, and in all of its others for PERSISTS seconds before, is no connection
    that is just being made.
    """
    by_rank = _by_rank(samples)
    newest = {rank: rows[-1] for rank, rows in by_rank.items()}
    found = []
    for seat in seats:
        for remote, lasted in sorted(_tries(by_rank.get(seat.rank, []))):
            if peer := _owner(host_of(remote), seat, seats, newest, remote):
                found.append(_unreachable(remote, peer, seat, newest, lasted))
    return tuple(found)


def lonely(samples: Iterable[Sample], seats: Sequence[Seat]) -> tuple[Lonely, ...]:
    """Listeners at one address of their node that is not the plan's, to which nobody is connected."""
    newest = {rank: rows[-1] for rank, rows in _by_rank(samples).items()}
    found = []
    for seat in seats:
        sockets = (newest[seat.rank].sockets or ()) if seat.rank in newest else ()
        used = {one.local for one in sockets if one.state == "ESTABLISHED"}
        own = {address.ip for address in seat.addresses} - {seat.address}
        found += [
            Lonely(one.local, seat.rank, seat.address)
            for one in sockets
            if one.state == "LISTEN" and host_of(one.local) in own and not _is_loopback(one.local)
            if one.local not in used
        ]
    return tuple(found)


def _by_rank(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    by_rank: dict[int, list[Sample]] = {}
    for sample in sorted((one for one in samples if one.sockets is not None), key=lambda one: one.at):
        by_rank.setdefault(sample.rank, []).append(sample)
    return by_rank


def _tries(rows: Sequence[Sample]) -> list[tuple[str, float]]:
    """Addresses that a rank is trying to reach, and for how many seconds without a break; PERSISTS at least."""
    if not rows:
        return []
    lasting = []
    for remote in _tried(rows[-1]):
        since = rows[-1].at
        for row in reversed(rows):
            if remote not in _tried(row):
                break
            since = row.at
        if rows[-1].at - since >= PERSISTS:
            lasting.append((remote, rows[-1].at - since))
    return lasting


def _tried(sample: Sample) -> set[str]:
    return {one.remote for one in sample.sockets or () if one.state == "SYN-SENT"}


def _owner(ip: str, seat: Seat, seats: Sequence[Seat], newest: dict[int, Sample], remote: str) -> Seat | None:
    """The rank on another node that has this address, the one that listens there first.

    An address that the rank's own node has as well, such as that of a bridge, tells nothing.
    """
    if ip in {address.ip for address in seat.addresses} or _is_loopback(remote):
        return None
    peers = [
        peer
        for peer in seats
        if peer.node != seat.node and ip in {peer.address, *(address.ip for address in peer.addresses)}
    ]
    if len({peer.node for peer in peers}) != 1:  # nobody's, or that of several nodes
        return None
    return next((peer for peer in peers if _listens(newest.get(peer.rank), remote)), peers[0])


def _unreachable(remote: str, peer: Seat, seat: Seat, newest: dict[int, Sample], lasted: float) -> Unreachable:
    ip = host_of(remote)
    instead, proof = _instead(ip, peer, seat, newest)
    interface = next((address.interface for address in peer.addresses if address.ip == ip), "")
    heard = _listens(newest[peer.rank], remote) if peer.rank in newest else None
    return Unreachable(remote, interface, peer.rank, seat.rank, heard, instead, proof, lasted)


def _instead(
    ip: str, peer: Seat, seat: Seat, newest: dict[int, Sample]
) -> tuple[str | None, Literal["connected", "same network", ""]]:
    """Another address of the peer: one with a connection between the two, else the plan's in a network of both."""
    others = [peer.address, *(address.ip for address in peer.addresses if address.ip != peer.address)]
    for other in others:
        if other != ip and _connected(other, peer, seat, newest):
            return other, "connected"
    tried = {host_of(remote) for remote in _tried(newest[seat.rank])}
    if peer.address not in (ip, *tried) and _share_network(peer.address, peer, seat):
        return peer.address, "same network"
    return None, ""


def _connected(other: str, peer: Seat, seat: Seat, newest: dict[int, Sample]) -> bool:
    """A connection between this address of the peer and the rank's node, seen from either end."""
    own = {seat.address, *(address.ip for address in seat.addresses)}
    ours, theirs = newest.get(seat.rank), newest.get(peer.rank)
    seen = [(host_of(one.remote), host_of(one.local)) for one in _established(ours)]
    seen += [(host_of(one.local), host_of(one.remote)) for one in _established(theirs)]
    return any(there == other and here in own for there, here in seen)


def _established(sample: Sample | None) -> list[Socket]:
    return [one for one in sample.sockets or () if one.state == "ESTABLISHED"] if sample else []


def _share_network(ip: str, peer: Seat, seat: Seat) -> bool:
    prefix = next((address.prefix for address in peer.addresses if address.ip == ip), None)
    if prefix is None:
        return False
    network = ipaddress.ip_network(f"{ip}/{prefix}", strict=False)
    return any(ipaddress.ip_address(address.ip) in network for address in seat.addresses)


def _listens(sample: Sample | None, endpoint: str) -> bool:
    """It listens there, or on that port of all its addresses."""
    if sample is None:
        return False
    port = endpoint.rpartition(":")[2]
    wanted = {endpoint, f"0.0.0.0:{port}", f"[::]:{port}"}
    return any(one.state == "LISTEN" and one.local in wanted for one in sample.sockets or ())


def _is_loopback(endpoint: str) -> bool:
    return ipaddress.ip_address(host_of(endpoint)).is_loopback


def _endpoint(text: str) -> str:
    """The kernel prints an address as 32-bit words in the order of its CPU, all of ours little-endian."""
    found = _HEX.match(text)
    if not found:
        raise ValueError(f"address {text[:50]!r}")
    raw = b"".join(bytes.fromhex(found[1][at : at + 8])[::-1] for at in range(0, len(found[1]), 8))
    ip = ipaddress.ip_address(raw)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return f"[{ip}]:{int(found[2], 16)}" if ip.version == 6 else f"{ip}:{int(found[2], 16)}"
