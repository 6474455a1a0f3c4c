"""The journal of a half copy: which ranges of which files are there, as lines that survive a kill.

This module is also sent to the nodes: standard library only, Python 3.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from bascule.distribute.weights.manifest import Manifest, Span
from bascule.distribute.weights.ranges import Unit

Held = Mapping[int, tuple[Span, ...]]  # number of a file -> its finished ranges, merged and in order


def lines_of(unit: Unit, manifest: Manifest) -> bytes:
    """What the journal gains when a unit is finished: one line, so that a torn one is told apart."""
    rows = [[manifest.entries[p.file].path, manifest.entries[p.file].identity, p.offset, p.length] for p in unit]
    return json.dumps(rows, separators=(",", ":")).encode() + b"\n"


def held(journal: bytes, manifest: Manifest) -> Held:
    """What a journal says is there of these very files; what belongs to other ones, or is torn, does not count."""
    numbers = {(entry.path, entry.identity): number for number, entry in enumerate(manifest.entries)}
    found: dict[int, list[Span]] = {}
    for line in journal.split(b"\n"):
        for path, identity, offset, length in _rows(line):
            number = numbers.get((path, identity))
            if number is not None:
                found.setdefault(number, []).append((offset, length))
    return {number: merged(spans) for number, spans in found.items()}


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same bytes as few spans, in order."""
    result: list[Span] = []
    for offset, length in sorted(spans):
        if result and offset <= sum(result[-1]):
            start, before = result[-1]
            result[-1] = (start, max(before, offset + length - start))
        else:
            result.append((offset, length))
    return tuple(result)


def lacking(units: Iterable[Unit], there: Held) -> tuple[int, ...]:
    """Numbers of the units of which some piece is not there."""
    return tuple(number for number, unit in enumerate(units) if not all(_covered(p, there) for p in unit))


def _covered(piece: tuple[int, int, int], there: Held) -> bool:
    file, offset, length = piece
    return any(start <= offset and offset + length <= start + size for start, size in there.get(file, ()))


def _rows(line: bytes) -> list[tuple[str, str, int, int]]:
    if not line:
        return []
    try:
        rows = json.loads(line)
    except ValueError:
        return []  # the last line of a writer that was killed
    return [(row[0], row[1], row[2], row[3]) for row in rows]
