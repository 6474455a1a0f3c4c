"""Rebuilds a layer's tar byte by byte from docker's overlay2 folders and the tar-split record beside them."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

CHUNK = 1 << 18  # bytes that are read at once; with more, each read gets fresh pages from the kernel


class NodeTrouble(Exception):
    """What went wrong on this node: a code that the controller knows, and what was seen."""

    def __init__(self, code: str, seen: str) -> None:
        super().__init__(f"{code}: {seen}")
        self.code = code
        self.seen = seen


class Piece(NamedTuple):
    """Some bytes of the tar: given here, or those of a file of the layer."""

    start: int
    size: int
    given: bytes  # headers and padding; empty for a file
    name: bytes  # the file, relative to the layer's folder


class SplitLayer:
    """One layer: the order of its pieces, and the folder that has its files."""

    def __init__(self, record: str, folder: str) -> None:
        self.folder = os.fsencode(os.path.realpath(folder))
        self.pieces = list(read_record(record))
        last = self.pieces[-1] if self.pieces else Piece(0, 0, b"", b"")
        self.size = last.start + last.size
        self._within = {b""}  # folders that are known to lie inside

    def read(self, offset: int = 0) -> Iterator[bytes]:
        """The bytes of the tar from an offset on. Raises NodeTrouble when a file is gone or has another size."""
        for piece in self.pieces[self._first_at(offset) :]:
            skip = max(0, offset - piece.start)
            if piece.given:
                yield piece.given[skip:]
            else:
                yield from self._file(piece, skip)

    def _first_at(self, offset: int) -> int:
        low, high = 0, len(self.pieces)
        while low < high:
            middle = (low + high) // 2
            piece = self.pieces[middle]
            if piece.start + piece.size <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _file(self, piece: Piece, skip: int) -> Iterator[bytes]:
        left = piece.size - skip
        try:
            with open(os.open(self._path(piece.name), os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as file:
                file.seek(skip)
                while left:
                    data = file.read(min(CHUNK, left))
                    if not data:
                        raise NodeTrouble("layer-changed", f"{os.fsdecode(piece.name)} is shorter than its record")
                    left -= len(data)
                    yield data
        except OSError as trouble:
            raise NodeTrouble("layer-gone", str(trouble)) from trouble

    def _path(self, name: bytes) -> bytes:
        """The file's path; a link must not lead out of the layer's folder, since root may read here."""
        folder = os.path.dirname(name)
        path = os.path.join(self.folder, name)
        if folder not in self._within:
            real = os.path.realpath(os.path.join(self.folder, folder))
            if real != self.folder and not real.startswith(self.folder + b"/"):
                raise NodeTrouble("layer-changed", f"{os.fsdecode(name)} leads out of its layer")
            self._within.add(folder)
        return path


def read_record(record: str) -> Iterator[Piece]:
    """The pieces that a tar-split.json.gz lists; small ones that follow each other are joined."""
    start, pending = 0, b""
    try:
        with gzip.open(record, "rb") as lines:
            for line in lines:
                entry = json.loads(line)
                if entry["type"] == 2:
                    pending += base64.b64decode(entry["payload"] or "")
                elif entry.get("size", 0) > 0:
                    if pending:
                        yield Piece(start, len(pending), pending, b"")
                        start, pending = start + len(pending), b""
                    yield Piece(start, entry["size"], b"", _name_of(entry))
                    start += entry["size"]
    except (OSError, EOFError, ValueError, KeyError) as trouble:
        raise NodeTrouble("layer-gone", f"{record}: {trouble}") from trouble
    if pending:
        yield Piece(start, len(pending), pending, b"")


def _name_of(entry: dict[str, Any]) -> bytes:
    """A file's name; one that is no UTF-8 stands in name_raw."""
    raw = entry.get("name_raw")
    name = base64.b64decode(raw) if raw else str(entry["name"]).encode()
    return os.path.normpath(name.lstrip(b"/"))
