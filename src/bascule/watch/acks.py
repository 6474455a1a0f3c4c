"""What the timers of TCP sockets prove about the link between two nodes: packets that nobody acknowledges (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bascule.watch.sockets import Seat, host_of

# The sixth try comes 6 to 13 s after the first packet (200 ms, doubled each time, tcp(7)). A rank that is stopped or
# busy is no cause: its kernel acknowledges, and where its window is closed every answer sets the count of `persist`
# back to 0 (tcp_ack in net/ipv4/tcp_input.c). A firewall that drops what goes out makes it `persist` as well.
TRIES = 6
_SOCKET = re.compile(r"ESTAB +\d+ +\d+ +(?P<local>\S+) +(?P<remote>\S+) +timer:\((?:on|persist),[^,]*,(?P<tries>\d+)\)")


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """A connection between two nodes over which nothing comes back."""

    node: str
    peer: str
    local: str  # address:port
    remote: str
    tries: int

    def __str__(self) -> str:
        return f"{self.local} has sent the same {self.tries} times to {self.remote} on {self.peer}, without an answer"


def unacknowledged(timers: Mapping[str, str], seats: Sequence[Seat]) -> list[Unacknowledged]:
    """Such connections, those tried most often first. `timers` is what `ss -tanoi` prints on each node."""
    found = [one for node, text in timers.items() for one in _of(node, text, seats)]
    return sorted(found, key=lambda one: -one.tries)


def _of(node: str, text: str, seats: Sequence[Seat]) -> Iterator[Unacknowledged]:
    own = {address.ip for seat in seats if seat.node == node for address in seat.addresses}
    for socket in _SOCKET.finditer(text):
        local, remote = (_plain(socket[name]) for name in ("local", "remote"))
        ip = host_of(remote)
        peers = {seat.node for seat in seats if ip in {seat.address, *(address.ip for address in seat.addresses)}}
        if int(socket["tries"]) >= TRIES and ip not in own and len(peers - {node}) == 1:
            yield Unacknowledged(node, (peers - {node}).pop(), local, remote, int(socket["tries"]))


def _plain(endpoint: str) -> str:
    """IPv4 as such, where a socket of IPv6 carries it."""
    return endpoint.replace("[::ffff:", "").replace("]", "") if "[::ffff:" in endpoint else endpoint
