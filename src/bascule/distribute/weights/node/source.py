"""The source's side: its shelf has every unit, and its files are hashed while they are sent."""
# ruff: noqa: PTH -- file descriptors

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from bascule.distribute.weights.manifest import Entry, Manifest
from bascule.distribute.weights.node.hashing import digest
from bascule.distribute.weights.node.listing import changed
from bascule.distribute.weights.node.wire import Trouble
from bascule.distribute.weights.ranges import SMALL, Piece, units

Emit = Callable[[dict[str, Any]], None]


class Source:
    """Files as they lie; a file that changes under the copy is told at once, and never again trusted."""

    def __init__(self, root: str, manifest: Manifest, seed: int, emit: Emit) -> None:
        self.root, self.manifest, self.units = root, manifest, units(manifest)
        self.verify = "auto"
        self._seed, self._emit = seed, emit
        self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))

    def wait_for(self, unit: int, within: float) -> bool:
        """Everything is here."""
        return True

    def open(self, file: int) -> int:
        """See Shelf.open."""
        entry = self.manifest.entries[file]
        try:
            fd = os.open(os.path.join(self.root, entry.path), os.O_RDONLY)
        except OSError:
            self._tell_changed(entry)
            raise
        return fd

    def sent(self, piece: Piece, fd: int, data: bytes | None) -> bool:
        """See Shelf.sent; a small file is hashed as it goes."""
        entry = self.manifest.entries[piece.file]
        seen = os.fstat(fd)
        if (seen.st_size, seen.st_mtime_ns) != (entry.size, entry.mtime_ns):
            self._tell_changed(entry)
            return False
        if entry.sha256 and piece.length > SMALL:  # nobody hashes it here: its pages are not needed again
            os.posix_fadvise(fd, piece.offset, piece.length, os.POSIX_FADV_DONTNEED)
        return True

    def hash_files(self, numbers: list[int], verify: str) -> None:
        """Hash these files in threads; small ones many to a task."""
        small = [number for number in numbers if self.manifest.entries[number].size <= SMALL]
        large = [number for number in numbers if self.manifest.entries[number].size > SMALL]
        for task in (*([number] for number in large), *(small[at : at + 1000] for at in range(0, len(small), 1000))):
            self._pool.submit(self._hash, task, verify)

    def check(self) -> dict[str, Any]:
        """Files that changed since the manifest was made."""
        return {"changed": changed(self.root, self.manifest)[:20]}

    def _hash(self, numbers: list[int], verify: str) -> None:
        found = []
        for number in numbers:
            entry = self.manifest.entries[number]
            try:
                found.append([number, digest(os.path.join(self.root, entry.path), entry, verify, self._seed)])
            except OSError:
                self._tell_changed(entry)
        self._emit({"event": "digests", "files": found})

    def _tell_changed(self, entry: Entry) -> None:
        says = f"{entry.path} changed during the copy"
        self._emit({"event": "trouble", **Trouble("changed", says, f"it had {entry.size} bytes").plain()})


def digest_of(data: bytes) -> str:
    """sha256 of a small file's bytes."""
    return hashlib.sha256(data).hexdigest()
