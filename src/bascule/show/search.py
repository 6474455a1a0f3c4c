"""Candidates as a table, the best first with a reason each; who is to be asked about, what is refused or not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bascule.core.units import size
from bascule.discover.rank import age

if TYPE_CHECKING:
    from bascule.candidates.ask import Ask, Discovered
    from bascule.discover.offers import Offer
    from bascule.discover.rank import Ranked

COLUMNS = ("engine", "what", "verdict", "size", "age", "pulls", "publisher", "signed", "on")
MARKS = {"present": "signed", "absent": "unsigned", "unknown": "not told"}  # nobody verifies it here


def search_lines(ask: Ask, found: Discovered) -> Iterator[str]:
    """All that a person sees."""
    yield _head(ask)
    ranking = found.ranking
    rows = [_cells(row, ask) for row in ranking.rows]
    widths = [max([len(name), *(len(row[at]) for row in rows)]) for at, name in enumerate(COLUMNS)] if rows else []
    if rows:
        yield ""
        yield "    " + _line(COLUMNS, widths)
    for number, row in enumerate(ranking.candidates, 1):
        yield from _entry(f"{number:>2}  ", row, ask, widths)
    for row in ranking.held:
        yield from _entry(" ?  ", row, ask, widths)
    for row in ranking.refused:
        yield from _entry(" -  ", row, ask, widths)
    yield from _end(found)


def plain(ask: Ask, found: Discovered) -> Mapping[str, Any]:
    """As `--json` gives it."""
    return {
        "model": ask.model.path,
        "architectures": ask.model.architectures,
        "platforms": ask.platforms,
        "gpu": ask.gpu,
        "candidates": [_plain(row) for row in found.ranking.candidates],
        "held": [_plain(row) for row in found.ranking.held],
        "refused": [_plain(row) for row in found.ranking.refused],
        "unread": [
            {"source": one.source, "code": one.trouble, "why": one.why, "advice": one.advice} for one in found.unread
        ],
        "reached": found.reached,
        "bytes_received": found.received,
        "seconds": round(found.seconds, 3),
        "allowances": {host: str(left) for host, left in found.allowances.items()},
    }


def _head(ask: Ask) -> str:
    where = ", ".join(node.name for node in ask.nodes)
    parts = [", ".join(ask.model.architectures) or ask.model.model_type, *ask.platforms, ask.gpu, where]
    return f"{ask.model.path}   {' · '.join(part for part in parts if part)}"


def _entry(mark: str, row: Ranked, ask: Ask, widths: Sequence[int]) -> Iterator[str]:
    yield mark + _line(_cells(row, ask), widths)
    if row.refused and row.refused != row.verdict.says:
        yield f"      refused: {row.refused}"
        return
    yield f"      {row.because}"
    if row.held:
        yield f"      anybody may publish there: --trust {row.offer.publisher.words[1]} if you know them"
    if row.verdict.advice and not row.refused:
        yield f"      try: {row.verdict.advice}"
    for name in row.offer.names[1:4]:
        yield f"      also {name}"
    if row.offer.note:
        yield f"      {row.offer.note}"


def _cells(row: Ranked, ask: Ask) -> tuple[str, ...]:
    offer = row.offer
    return (
        row.verdict.release or f"{offer.engine} {offer.release}".strip(),
        _name(offer),
        row.verdict.word if not row.refused or row.verdict.finding else "-",
        size(offer.size) if offer.size is not None else "",
        age(offer.created, ask.now()),
        _many(offer.pulls),
        _publisher(offer),
        MARKS.get(offer.signed, ""),
        ", ".join(offer.nodes),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _name(offer: Offer) -> str:
    """With the beginning of its digest, which tells two images of one name apart."""
    return f"{offer.name}@{offer.pinned[:19]}…" if offer.pinned and "@" not in offer.name else offer.name


def _publisher(offer: Offer) -> str:
    if offer.kind == "venv":
        return ""
    return f"{offer.publisher.name} (community)" if offer.publisher.kind == "community" else offer.publisher.name


def _many(count: int | None) -> str:
    if count is None:
        return ""
    for limit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= limit:
            return f"{count / limit:.1f} {name}"
    return str(count)


def _end(found: Discovered) -> Iterator[str]:
    ranking = found.ranking
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in found.unread:
        groups.setdefault((one.trouble, one.why, one.advice), []).append(one.source)
    if groups:
        yield ""
        yield "not read"
    for (code, why, advice), names in groups.items():
        yield f"    {', '.join(names)}"
        yield f"      [{code}] {why}" + (f"   try: {advice}" if advice else "")
    counts = f"{len(ranking.candidates)} candidates, {len(ranking.held)} to ask about, {len(ranking.refused)} refused"
    yield ""
    yield f"{counts}; {found.received / 1e6:.1f} MB read from registries in {found.seconds:.1f} s; nothing was pulled"
    for host, left in found.allowances.items():
        yield f"{host}: {left}"


def _plain(row: Ranked) -> Mapping[str, Any]:
    offer, verdict = row.offer, row.verdict
    evidence = verdict.finding.evidence if verdict.finding else ()
    return {
        "names": offer.names,
        "kind": offer.kind,
        "engine": offer.engine,
        "release": verdict.release or offer.release,
        "verdict": verdict.word,
        "says": verdict.says,
        "code": verdict.trouble,
        "hint": verdict.hint,
        "advice": verdict.advice,
        "because": row.because,
        "refused": row.refused,
        "held": row.held,
        "digest": offer.pinned,
        "identities": sorted(offer.identities),
        "platforms": offer.platforms,
        "size": offer.size,
        "created": offer.created,
        "pulls": offer.pulls,
        "publisher": offer.publisher,
        "signed": offer.signed,
        "sources": offer.sources,
        "nodes": offer.nodes,
        "seen": offer.also,
        "evidence": evidence,
        "bytes_read": verdict.bytes_read,
    }
