"""Who gets the weights from whom, and over which network (pure)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

UNKNOWN_SPEED = 1000  # Mbit/s, for a link that doesn't say


@dataclass(frozen=True, slots=True)
class Link:
    """One IPv4 address of a node and the speed of its link."""

    interface: str
    ip: str
    prefix: int
    speed: int  # Mbit/s; 0 = the link doesn't say
    default: bool  # the default route uses it: then it is the LAN rather than a private fabric


@dataclass(frozen=True, slots=True)
class Route:
    """One way to a target: from which node, to which of its addresses; no address = through ssh and the controller."""

    upstream: str
    ip: str | None
    interface: str = ""

    def __str__(self) -> str:
        if self.ip is None:
            return f"from {self.upstream} through ssh"
        return f"from {self.upstream} at {self.ip} ({self.interface})"


def shared(one: Sequence[Link], other: Sequence[Link], preferred: str | None = None) -> tuple[tuple[Link, Link], ...]:
    """Pairs of addresses in one network: the preferred one first, then the fastest, then no default route."""
    pairs = [(a, b) for a in one for b in other if a.ip != b.ip and _network(a) == _network(b)]

    def badness(pair: tuple[Link, Link]) -> tuple[bool, int, bool]:
        slowest = min(link.speed or UNKNOWN_SPEED for link in pair)
        return (pair[0].ip != preferred, -slowest, any(link.default for link in pair))

    return tuple(sorted(pairs, key=badness))


def chain(source: str, targets: Sequence[str], links: Mapping[str, Sequence[Link]]) -> tuple[str, ...]:
    """The order in which targets pass the weights on: a slow one holds up all behind it, so it comes last."""

    def speed(name: str) -> int:
        best = shared(links[source], links[name])
        return min(link.speed or UNKNOWN_SPEED for link in best[0]) if best else 0

    return tuple(sorted(targets, key=lambda name: -speed(name)))  # stable: equal ones stay as they were named


def routes(
    target: str, before: Sequence[str], links: Mapping[str, Sequence[Link]], preferred: Mapping[str, str | None]
) -> tuple[Route, ...]:
    """All ways to a target, the best first; `before`: whom it may pull from, the nearest first, the source last."""
    direct = [
        Route(upstream, mine.ip, mine.interface)
        for upstream in before
        for mine, _ in shared(links[upstream], links[target], preferred.get(upstream))
    ]
    return (*direct, Route(before[-1], None))


def _network(link: Link) -> str:
    return str(ipaddress.ip_network(f"{link.ip}/{link.prefix}", strict=False))
