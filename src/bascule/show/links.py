"""Who tells whom which address, over which link, and what was measured: one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bascule.core.addresses import AddressPlan, Pair, Row, Told
from bascule.core.units import rate
from bascule.preflight.addresses import Proven

EACH_PAIR = 4  # nodes; of more, a line for each node that tells tells the worst of its peers
_WORDS = {
    "refused": "REFUSED",
    "no-route": "NO ROUTE",
    "no-answer": "NO ANSWER",
    "mute": "NO WORD",
    "stranger": "SOMEBODY ELSE",
    "stalled": "STALLED",
    "unproven": "not tried",
}


def links_lines(proven: Proven) -> list[str]:
    """Why these addresses, then the table: a line for each address and each peer that is told it."""
    return _plan_lines(proven.plan, proven.pairs) if proven.plan else []


def addresses_line(proven: Proven) -> str:
    """All of it in one line, as a row of a larger table."""
    if proven.plan is None:
        return f"none: {proven.findings[0].says}"
    rows, measured = proven.plan.rows, _measured(proven.pairs)
    names = sorted({told.interface or "?" for row in rows for told in row.told})
    ips = list(dict.fromkeys(told.ip for row in rows for told in row.told))
    tells = f"rendezvous {rows[0].rendezvous} · gloo, nccl, zmq {_alike(ips)} over {', '.join(names)}"
    return f"{tells} · {measured}" if measured else tells


def _plan_lines(plan: AddressPlan, pairs: Sequence[Pair]) -> list[str]:
    cells = [["tells", "what", "to", "over", "RDMA ports for NCCL", "round trip", "rate", "from"]]
    for row in plan.rows:
        for told in row.told:
            cells += _cells(row, told, plan, [one for one in pairs if (one.target, one.ip) == (row.node, told.ip)])
    lead = "" if plan.link.network in plan.because else f"{plan.link}: "
    return [f"{lead}{plan.because}", *_columns(cells)]


def _cells(row: Row, told: Told, plan: AddressPlan, pairs: Sequence[Pair]) -> Iterator[list[str]]:
    """The lines of one address: one a peer, or one for all of many and one for each that fails."""
    bad = [pair for pair in pairs if pair.outcome != "reached"]
    each = [[pair] for pair in pairs]
    if len(plan.rows) > EACH_PAIR and pairs:
        each = [[pair for pair in pairs if pair not in bad], *([pair] for pair in bad)]
    start, way = [f"{row.node} {told.ip}", _what(row, told, plan)], [told.interface or "?", _hcas(row, told)]
    for at, some in enumerate(each or [[]]):
        lead, own = (start, way) if at == 0 else (["", ""], ["", ""])
        to = some[0].origin if len(some) == 1 else f"{len(some)} peers" if some else ""
        yield [*lead, to, *own, *_measures(some), some[0].local_ip if len(some) == 1 else ""]


def _what(row: Row, told: Told, plan: AddressPlan) -> str:
    uses = {"gloo": row.gloo, "nccl": row.nccl, "zmq": row.zmq}
    meets = row is plan.rows[0] and told.ip == row.rendezvous
    return ", ".join([*(["rendezvous"] if meets else []), *(name for name, one in uses.items() if one == told)])


def _measures(pairs: Sequence[Pair]) -> list[str]:
    """Round trip and rate; of several pairs the longest and the lowest."""
    if not pairs:
        return ["", ""]
    if len(pairs) == 1 and pairs[0].outcome != "reached":
        return [_WORDS[pairs[0].outcome], ""]
    trips = [pair.round_trip_s for pair in pairs if pair.round_trip_s is not None]
    rates = [pair.rate for pair in pairs if pair.rate is not None]
    up_to, from_ = ("≤ ", "≥ ") if len(pairs) > 1 else ("", "")
    return [f"{up_to}{_ms(max(trips))}" if trips else "", f"{from_}{rate(min(rates))}" if rates else "not measured"]


def _measured(pairs: Sequence[Pair]) -> str:
    bad = [pair for pair in pairs if pair.outcome != "reached"]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        return f"{bad[0].origin} → {bad[0].target} {_WORDS[bad[0].outcome]}{more}"
    if not pairs:
        return ""
    return f"TCP both ways {' '.join(_measures(pairs))}"


def _hcas(row: Row, told: Told) -> str:
    if told != row.nccl:
        return ""
    if row.hcas is None:
        return "left to NCCL"
    return ", ".join(row.hcas) or "none: sockets"


def _alike(ips: Sequence[str]) -> str:
    """10.0.0.x where only the last number differs."""
    heads = {ip.rpartition(".")[0] for ip in ips}
    return f"{heads.pop()}.x" if len(heads) == 1 and len(ips) > 1 else ", ".join(ips)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
