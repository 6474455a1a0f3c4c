"""Cuts a manifest into the units that are sent, the same on every node: ranges of large files, batches of small ones.

This module is also sent to the nodes: standard library only, Python 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bascule.distribute.weights.manifest import MIB, Manifest

RANGE = 64 * MIB  # bytes; the most that a cut connection costs again
SMALL = MIB  # bytes; files up to this size travel in batches
BATCH_BYTES, BATCH_FILES = 8 * MIB, 1024
PIECES = 1024  # of a sparse file, in one unit


class Piece(NamedTuple):
    """Some bytes of one file."""

    file: int  # its number in the manifest
    offset: int
    length: int


Unit = tuple[Piece, ...]


def units(manifest: Manifest) -> tuple[Unit, ...]:
    """All units: batches of small files first, then the ranges of large ones in their order."""
    small = (number for number in manifest.files if manifest.entries[number].size <= SMALL)
    large = (number for number in manifest.files if manifest.entries[number].size > SMALL)
    batches = _pack((Piece(number, 0, manifest.entries[number].size) for number in small), BATCH_BYTES, BATCH_FILES)
    ranges = (unit for number in large for unit in _pack(_cut(number, manifest), RANGE, PIECES))
    return (*batches, *ranges)


def size_of(unit: Unit) -> int:
    """Bytes of a unit."""
    return sum(piece.length for piece in unit)


def _cut(number: int, manifest: Manifest) -> Iterator[Piece]:
    """Pieces of at most RANGE bytes; a file that is one hole has a single empty one."""
    data = manifest.entries[number].data
    if not data:
        yield Piece(number, 0, 0)
    for offset, length in data:
        for start in range(offset, offset + length, RANGE):
            yield Piece(number, start, min(RANGE, offset + length - start))


def _pack(pieces: Iterable[Piece], most_bytes: int, most_pieces: int) -> Iterator[Unit]:
    unit: list[Piece] = []
    total = 0
    for piece in pieces:
        if unit and (total + piece.length > most_bytes or len(unit) == most_pieces):
            yield tuple(unit)
            unit, total = [], 0
        unit.append(piece)
        total += piece.length
    if unit:
        yield tuple(unit)
