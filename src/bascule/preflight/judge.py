"""What the proof of an address plan means: findings, and what a person should know (pure)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from bascule.core.addresses import AddressPlan, Link, Pair
from bascule.core.notices import Notice
from bascule.core.nouns import Evidence, Fate, Finding, Step

MOST_EVIDENCE = 8  # pairs that are quoted; all are in the table
_SAYS = {
    "refused": "is refused",
    "no-route": "finds no way",
    "no-answer": "gets no answer to its SYN",
    "mute": "is let in and then gets no word",
    "stranger": "finds somebody else",
    "stalled": "can send small messages and no full-size segments",
}
_ADVICE = {
    "refused": "{target} listens there, so a firewall rejects it, or another machine has {ip}: "
    "`sudo iptables -S INPUT; sudo nft list ruleset` on {target}",
    "no-route": "`ip route get {ip}; ip neigh show {ip}` on {origin}; look at the cable and at {target}'s interface",
    "no-answer": "a firewall drops it, or the way there ends: `sudo iptables -S INPUT; sudo nft list ruleset` on "
    "{target}, `ip route get {ip}` on {origin}",
    "mute": "something between {origin} and {target} lets connections in and nothing through: a proxy, or a firewall",
    "stranger": "another machine has {ip} as well: `ip neigh show {ip}` on {origin} tells its MAC address",
    "stalled": "the MTU is smaller somewhere between {origin} and {target}: set the same on both interfaces and on the "
    "switch (`ip link show`; `ping -M do -s 8972 {ip}` tries 9000), or a smaller one on both",
}


def judge(plan: AddressPlan, pairs: Sequence[Pair], ran: Mapping[str, str], at: datetime) -> tuple[Finding, ...]:
    """At least one finding, the weightiest first; `ran` is what the helper of each node ran in."""
    cut = [pair for pair in pairs if pair.bad and pair.outcome != "stalled"]
    stalled = [pair for pair in pairs if pair.outcome == "stalled"]
    unproven = [pair for pair in pairs if pair.outcome == "unproven"]
    found = []
    if cut:
        says, seen, advice = _says(cut, pairs), _seen(cut, ran, at), _advice(cut[0])
        found.append(Finding(Step.PREFLIGHT, Fate.CLUSTER, "peer-unreachable", says, seen, advice=advice))
    if stalled:
        says, seen, advice = _says(stalled, pairs), _seen(stalled, ran, at), _advice(stalled[0])
        found.append(Finding(Step.PREFLIGHT, Fate.CLUSTER, "mtu-blackhole", says, seen, advice=advice))
    if unproven:
        says = f"{_count(unproven)} could not be tried: {unproven[0].seen}"
        found.append(Finding(Step.PREFLIGHT, Fate.UNKNOWN, "pairs-unproven", says, _seen(unproven, ran, at)))
    return tuple(found) or (_proven(plan, pairs, ran, at),)


def sources(link: Link, pairs: Sequence[Pair], at: datetime) -> Iterator[Notice]:
    """Nodes that reach their peers from another address than the one they tell.

    Not between loopback addresses: both are of one machine, and its kernel sends from 127.0.0.1 whatever is told.
    """
    tells = {told.node: told.ip for told in link.told}
    there = [pair for pair in pairs if pair.local_ip and pair.ip == tells[pair.target]]
    other = {pair.origin: pair for pair in there if pair.local_ip != tells[pair.origin]}
    for pair in (one for one in other.values() if not _inside(one)):
        says = f"{pair.origin} tells {tells[pair.origin]} and reaches {pair.ip} of {pair.target} from {pair.local_ip}"
        advice = f"`ip route get {pair.ip}` on {pair.origin}: its route goes by another interface than the plan's"
        seen = Evidence(pair.origin, f"TCP connection to {pair.ip}", at, f"local address {pair.local_ip}")
        yield Notice(pair.origin, "other-source-address", says, (seen,), "warning", advice)


def _inside(pair: Pair) -> bool:
    """Both ends are loopback addresses."""
    return all(ipaddress.ip_address(one).is_loopback for one in (pair.ip, pair.local_ip))


def passed_over(link: Link, findings: Sequence[Finding]) -> Notice:
    """A better link that did not stand the proof, while another one did."""
    first = findings[0]
    says = f"{link} is not used: {first.says}"
    return Notice("", "link-passed-over", says, first.evidence, advice=first.advice)


def rail_lost(link: Link, pairs: Sequence[Pair], ran: Mapping[str, str], at: datetime) -> Notice:
    """A link of RDMA ports beside the chosen one that did not stand the proof: NCCL goes without its ports."""
    bad = [pair for pair in pairs if pair.bad]
    says = f"NCCL goes without the RDMA ports on {link}: {_says(bad, pairs)}"
    return Notice("", "rail-passed-over", says, _seen(bad, ran, at), advice=_advice(bad[0]))


def _proven(plan: AddressPlan, pairs: Sequence[Pair], ran: Mapping[str, str], at: datetime) -> Finding:
    if not pairs:
        seen = Evidence(plan.rows[0].node, "the plan", at, "one node has no peers")
        return Finding(Step.PREFLIGHT, Fate.OK, "addresses-proven", "there is nobody to reach", (seen,))
    slowest = max(pairs, key=lambda pair: pair.round_trip_s or 0)
    says = f"all {len(pairs)} pairs reach each other over {plan.link}"
    return Finding(Step.PREFLIGHT, Fate.OK, "addresses-proven", says, _seen([slowest], ran, at))


def _says(bad: Sequence[Pair], pairs: Sequence[Pair]) -> str:
    """The first pair with its direction, whether the other direction works, and how many more there are."""
    first = bad[0]
    back = next((one for one in pairs if (one.origin, one.target) == (first.target, first.origin)), None)
    works = "; the other direction works" if back and back.outcome == "reached" else ""
    both = "; nor the other way" if back and back.outcome == first.outcome else ""
    more = len(bad) - 1 - bool(both)
    others = f"; {more} more pair{'s' * (more > 1)} like it" if more else ""
    return f"{first.origin} {_SAYS[first.outcome]} at {first.ip} of {first.target}{works}{both}{others}"


def _advice(pair: Pair) -> str:
    return _ADVICE[pair.outcome].format(origin=pair.origin, target=pair.target, ip=pair.ip)


def _seen(pairs: Sequence[Pair], ran: Mapping[str, str], at: datetime) -> tuple[Evidence, ...]:
    return tuple(_evidence(pair, ran, at) for pair in pairs[:MOST_EVIDENCE])


def _evidence(pair: Pair, ran: Mapping[str, str], at: datetime) -> Evidence:
    source = f"TCP connection to {pair.ip} of {pair.target}, by {ran.get(pair.origin) or 'nothing'}"
    times = (("connected in", pair.connect_s), ("round trip", pair.round_trip_s))
    parts = [pair.outcome, *(f"{what} {1000 * value:.3f} ms" for what, value in times if value is not None)]
    parts += [f"from {pair.local_ip}"] if pair.local_ip else []
    return Evidence(pair.origin, source, at, ", ".join([*parts, *([pair.seen] if pair.seen else [])]))


def _count(pairs: Sequence[Pair]) -> str:
    return f"{len(pairs)} pairs" if len(pairs) > 1 else f"{pairs[0].origin} → {pairs[0].target}"
