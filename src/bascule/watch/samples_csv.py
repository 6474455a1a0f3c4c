"""Samples as a CSV file that evidence keeps: one row a look, an empty cell is what could not be read (pure)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping

from bascule.watch.samples import COUNTERS, GAUGES, Sample, Socket

NAMES = (*COUNTERS, *GAUGES)
COLUMNS = ("rank", "at", *NAMES, "busiest", "sockets")
LONGEST = 64 * 2**20  # characters of a file: a day of eight ranks, sampled every 2 s, is 40 MB


class NotSamples(ValueError):
    """A file that is no CSV of samples; says which line."""


def to_csv(samples: Iterable[Sample], *, header: bool = True) -> str:
    """Rows in the order given, with a line of names unless they are added to a file that has one."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    for sample in samples:
        values = [f"{sample.values[name]:.15g}" if name in sample.values else "" for name in NAMES]
        writer.writerow((sample.rank, f"{sample.at:.3f}", *values, " ".join(sample.busiest), _words(sample.sockets)))
    return text.getvalue()


def from_csv(text: str) -> dict[int, list[Sample]]:
    """Samples by rank, each in order of time. Columns that are not known here are passed over.

    Raises NotSamples for text that holds no rank or time, a value that is no finite number, or is too long.
    """
    if len(text) > LONGEST:
        raise NotSamples(f"more than {LONGEST / 2**20:.0f} MB")
    reader = csv.DictReader(io.StringIO(text))
    found: dict[int, list[Sample]] = {}
    for sample in _rows(reader):
        found.setdefault(sample.rank, []).append(sample)
    return {rank: sorted(samples, key=lambda sample: sample.at) for rank, samples in sorted(found.items())}


def _rows(reader: csv.DictReader[str]) -> Iterator[Sample]:
    try:
        named = {"rank", "at"} <= set(reader.fieldnames or ())
        for row in reader if named else ():
            yield _sample(row)
    except (ValueError, csv.Error) as trouble:
        raise NotSamples(f"line {reader.line_num}: {trouble}") from None
    if not named:
        raise NotSamples("line 1: no columns `rank` and `at`")


def _sample(row: Mapping[str, str]) -> Sample:
    values = {name: _finite(row[name]) for name in NAMES if row.get(name)}
    rank = row["rank"] or ""
    if not (rank.isascii() and rank.isdigit() and len(rank) < 7):
        raise ValueError(f"rank {rank[:20]!r} is no number")
    words = (row.get("sockets") or "").split()
    sockets = tuple(Socket(*word.split(",")) for word in words if word.count(",") == 2) if words else None
    return Sample(int(rank), _finite(row["at"]), values, sockets, tuple((row.get("busiest") or "").split()))


def _words(sockets: tuple[Socket, ...] | None) -> str:
    """`-` is that there is none, an empty cell that they were not read."""
    if sockets is None:
        return ""
    return " ".join(f"{one.state},{one.local},{one.remote}" for one in sockets) or "-"


def _finite(text: str | None) -> float:
    value = float(text or "")
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not finite")
    return value
