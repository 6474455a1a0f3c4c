"""What `bascule doctor` says: a table of the nodes, then what a person should know of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bascule.core.machine import Disk, Gpu, NodeFacts
from bascule.core.notices import Notice
from bascule.core.nouns import Fate

if TYPE_CHECKING:
    from bascule.core.nouns import Node
    from bascule.operate.doctor import Examination
    from bascule.preflight.addresses import Proven

MOST_COLUMNS = 6  # nodes beside each other; more stand below each other
UNKNOWN = "?"
_LABELS = {"blocker": "✗", "warning": "warning", "unknown": "unknown", "note": "note"}  # in the order of their weight
_LAYERS = {"Ethernet": "RoCE", "InfiniBand": "IB"}
_GIB, _GB = 2**30, 1e9
Nodes = Sequence["Node"]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: what it says of a node, what its figures are, and what they are together."""

    label: str
    cell: Callable[[NodeFacts], str]
    unit: str = ""
    together: Callable[[Nodes], str] = lambda _: ""


def doctor_lines(found: Examination, *, addresses: bool = False) -> list[str]:
    """The table and the notices, the heaviest first; `addresses`: with the table of who tells whom which address."""
    rows = [(row, cells) for row in _TABLE if any(cells := _cells(row, found))]
    table = _beside(found, rows) if len(found.asked) <= MOST_COLUMNS else _below(found, rows)
    if found.proven is None:
        return [*table, *notice_lines(found.notices)]
    notices = notice_lines((*found.notices, *found.proven.notices))
    return [*table, *_links(found.proven, whole=addresses), *notices]


def _links(proven: Proven, *, whole: bool) -> Iterator[str]:
    """Who tells whom which address, and what was found on the way between the nodes, unless all is well."""
    from bascule.show.links import addresses_line, links_lines  # noqa: PLC0415 - with --no-proof it is not needed

    yield f"{'addresses':<12}{addresses_line(proven)}"
    yield from (f"{'':<12}{line}" for line in (links_lines(proven) if whole else ()))
    for finding in proven.findings:
        if finding.fate is not Fate.OK:
            yield f"{'unknown' if finding.fate is Fate.UNKNOWN else '✗':<12}{finding.says}"
            yield from [f"{'':<12}try: {finding.advice}"] if finding.advice else []


def notice_lines(notices: Sequence[Notice]) -> Iterator[str]:
    """Each notice once, however many nodes it is about."""
    alike: dict[tuple[str, str, str], list[Notice]] = {}
    for one in sorted(notices, key=lambda one: list(_LABELS).index(one.weight)):
        says = re.sub(rf"\b{re.escape(one.node)}\b", "…", one.says) if one.node else one.says
        alike.setdefault((one.weight, one.code, says), []).append(one)
    for first, *others in alike.values():
        yield f"{_LABELS[first.weight]:<12}{first.says}"
        if others:
            yield f"{'':<12}the same: {', '.join(one.node for one in others)}"
        if first.advice:
            yield f"{'':<12}try: {first.advice}"


def _cells(row: Row, found: Examination) -> list[str]:
    nodes = {node.name: node for node in found.nodes}
    lost = "✗ no answer" if row.label == "ssh" else ""
    return [row.cell(nodes[name].facts) if name in nodes else lost for name in found.asked]


def _beside(found: Examination, rows: Sequence[tuple[Row, list[str]]]) -> list[str]:
    """A column for each node."""
    widths = [max(len(name), *(len(cells[at]) for _, cells in rows)) + 3 for at, name in enumerate(found.asked)]
    lines = [_line("", found.asked, widths, "")]
    for row, cells in rows:
        lines.append(_line(row.label, cells, widths, row.together(found.nodes) or row.unit))
    return lines


def _below(found: Examination, rows: Sequence[tuple[Row, list[str]]]) -> list[str]:
    """A line for each node, and behind them what they are together."""
    widths = [max(len(row.label), *map(len, cells)) + 3 for row, cells in rows]
    first = max(12, *(len(name) + 3 for name in found.asked))
    lines = [_line("", [row.label for row, _ in rows], widths, "", first)]
    for at, name in enumerate(found.asked):
        lines.append(_line(name, [cells[at] for _, cells in rows], widths, "", first))
    told = [(row.label, row.together(found.nodes)) for row, _ in rows]
    return [*lines, *(f"{label:<12}{text}" for label, text in told if text)]


def _line(label: str, cells: Sequence[str], widths: Sequence[int], remark: str, first: int = 12) -> str:
    body = "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"{label:<{first}}{body}{remark}".rstrip()


def _ssh(facts: NodeFacts) -> str:
    return UNKNOWN if facts.round_trip_s is None else f"{1000 * facts.round_trip_s:.0f} ms"


def _machine(facts: NodeFacts) -> str:
    return f"{facts.arch or UNKNOWN} · {facts.cores or UNKNOWN} cores"


def _docker(facts: NodeFacts) -> str:
    if facts.docker:
        name = f"{facts.docker.command[-1]} " if facts.docker.command[-1] != "docker" else ""
        return f"{name}{'.'.join(facts.docker.version.split('.')[:2])} {facts.docker.store}"
    why = facts.unknown.get("docker", "")
    if "permission denied" in why.lower():
        return "denied"
    return "none" if all("not installed" in part for part in why.split("; ")) else UNKNOWN


def _gpu(facts: NodeFacts) -> str:
    if facts.gpus is None:
        return UNKNOWN
    kinds = dict.fromkeys((gpu.name.removeprefix("NVIDIA "), gpu.sm) for gpu in facts.gpus)
    return " + ".join(_kind(facts.gpus, name, sm) for name, sm in kinds) or "none"


def _kind(gpus: Sequence[Gpu], name: str, sm: str | None) -> str:
    count = sum(gpu.name.removeprefix("NVIDIA ") == name for gpu in gpus)
    return f"{f'{count} × ' if count > 1 else ''}{name} {sm or UNKNOWN}"


def _gpu_memory(facts: NodeFacts) -> str:
    """Of all GPUs together, where it is not the machine's own."""
    own = [gpu for gpu in facts.gpus or () if gpu.memory_bytes is not None]
    if not own:
        return "unified" if facts.unified else ""
    return _of([gpu.memory_free_bytes for gpu in own], [gpu.memory_bytes for gpu in own])


def _memory(facts: NodeFacts) -> str:
    return _of([facts.memory_free_bytes], [facts.memory_bytes])


def _of(free: Sequence[int | None], total: Sequence[int | None]) -> str:
    return f"{_gib(free)} of {_gib(total)} GiB"


def _gib(parts: Sequence[int | None]) -> str:
    return UNKNOWN if None in parts else f"{sum(part or 0 for part in parts) / _GIB:.0f}"


def _disk(facts: NodeFacts) -> str:
    """One figure where all that matters is on one volume."""
    if facts.disks is None:
        return UNKNOWN
    volumes: dict[str, list[Disk]] = {}
    for disk in facts.disks:
        volumes.setdefault(disk.volume, []).append(disk)
    if len(volumes) == 1:
        return f"{facts.disks[0].free_bytes / _GB:.0f} GB"
    return " · ".join(
        f"{'+'.join(disk.what for disk in shared)} {shared[0].free_bytes / _GB:.0f} GB" for shared in volumes.values()
    )


def _rdma(facts: NodeFacts) -> str:
    """The ports that are up, by rate."""
    if facts.rdma is None:
        return UNKNOWN
    rates = [f"{port.rate_gbit or 0:.0f} Gbit/s {_LAYERS.get(port.layer, '')}" for port in facts.rdma if port.active]
    told = [f"{rates.count(rate)} × {rate}" for rate in dict.fromkeys(rates)]
    return ", ".join(told) or ("ports down" if facts.rdma else "")


def _clock(facts: NodeFacts) -> str:
    """As many digits as are known."""
    if facts.clock_offset_s is None or facts.clock_error_s is None:
        return UNKNOWN
    digits = 3 if facts.clock_error_s < 0.005 else 2 if facts.clock_error_s < 0.05 else 1
    return f"{facts.clock_offset_s:+.{digits}f} s".replace("-", "−")


def _ranks(facts: NodeFacts) -> str:
    return UNKNOWN if facts.ranks is None else ", ".join(facts.ranks)


def _drivers(nodes: Nodes) -> str:
    """Once where they are the same, else by node."""
    told = {
        node.name: f"driver {node.facts.driver or UNKNOWN} = CUDA {node.facts.cuda or UNKNOWN}"
        for node in nodes
        if node.facts.gpus
    }
    by_text = {text: [name for name, one in told.items() if one == text] for text in dict.fromkeys(told.values())}
    if len(by_text) == 1:
        return next(iter(by_text))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in by_text.items())


def _stores(nodes: Nodes) -> str:
    stores = {node.facts.docker.store for node in nodes if node.facts.docker}
    return "stores differ" if len(stores) > 1 else ""


_TABLE = (
    Row("ssh", _ssh, "for a short command"),
    Row("machine", _machine),
    Row("docker", _docker, together=_stores),
    Row("gpu", _gpu, together=_drivers),
    Row("gpu memory", _gpu_memory),
    Row("memory", _memory, "free"),
    Row("disk", _disk, "free"),
    Row("rdma", _rdma),
    Row("clock", _clock, "against this machine"),
    Row("runs", _ranks),
)
