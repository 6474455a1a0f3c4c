"""The source's side: its shelf has every unit, and its files are hashed while they are sent."""
# File descriptors.

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bascule.distribute.weights.manifest import Entry, Manifest
from bascule.distribute.weights.node.hashing import digest
from bascule.distribute.weights.node.listing import changed
from bascule.distribute.weights.node.wire import Trouble, submit
from bascule.distribute.weights.ranges import SMALL, Piece, units

Emit = Callable[[dict[str, Any]], None]
SMALL_AT_ONCE = 1000  # small files that one thread hashes in a row


class Source:
    """Files as they lie; one that changes under the copy is told at once."""

    def __init__(self, root: str, manifest: Manifest, how: dict[str, Any], emit: Emit) -> None:
        self.root, self.manifest, self.units = root, manifest, units(manifest)
        self._verify, self._seed, self._emit = how["verify"], how["seed"], emit
        self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))
        self._lock = threading.Lock()
        self._fresh: list[list[Any]] = []  # digests of small files that were sent

    def wait_for(self, unit: int, within: float) -> bool:
        """Everything is here."""
        return True

    def open(self, file: int) -> int:
        """See Shelf.open."""
        entry = self.manifest.entries[file]
        try:
            return os.open(os.path.join(self.root, entry.path), os.O_RDONLY)
        except OSError:
            self._tell_changed(entry)
            raise

    def sent(self, piece: Piece, fd: int, data: bytes | None) -> bool:
        """See Shelf.sent; a small file is hashed as it goes."""
        entry = self.manifest.entries[piece.file]
        seen = os.fstat(fd)
        if (seen.st_size, seen.st_mtime_ns) != (entry.size, entry.mtime_ns):
            self._tell_changed(entry)
            return False
        if data is not None and len(data) == entry.size:
            with self._lock:
                self._fresh.append([piece.file, hashlib.sha256(data).hexdigest()])
        if entry.sha256 and piece.length > SMALL:  # nobody hashes it here: its pages are not needed again
            os.posix_fadvise(fd, piece.offset, piece.length, os.POSIX_FADV_DONTNEED)
        return True

    def flush(self) -> None:
        """Tell the digests that gathered."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
        if fresh:
            self._emit({"event": "digests", "files": fresh})

    def hash_files(self, numbers: list[int]) -> None:
        """Hash these files in threads, and tell each."""
        entries = self.manifest.entries
        small = [number for number in numbers if entries[number].size <= SMALL]
        tasks = [[number] for number in numbers if entries[number].size > SMALL]
        tasks += [small[at : at + SMALL_AT_ONCE] for at in range(0, len(small), SMALL_AT_ONCE)]
        for task in tasks:
            submit(self._pool, self._hash, task)

    def check(self) -> list[str]:
        """Files that changed since the manifest was made."""
        return changed(self.root, self.manifest)[:20]

    def _hash(self, numbers: list[int]) -> None:
        found = []
        for number in numbers:
            entry = self.manifest.entries[number]
            try:
                found.append([number, digest(os.path.join(self.root, entry.path), entry, self._verify, self._seed)])
            except OSError:
                self._tell_changed(entry)
        self._emit({"event": "digests", "files": found})

    def _tell_changed(self, entry: Entry) -> None:
        says = f"{entry.path} changed during the copy"
        self._emit({"event": "trouble", **Trouble("changed", says, f"it had {entry.size} bytes").plain()})
