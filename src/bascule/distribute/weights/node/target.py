"""A target's side: a shelf that fills, unit by unit, with a journal for the next try and checksums of what arrived."""
# 100,000 files: plain strings and os calls, not Path objects.

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from bascule.distribute.weights.manifest import Manifest, is_sampled
from bascule.distribute.weights.node.hashing import digest, forget, growing, settle
from bascule.distribute.weights.node.place import MARGIN, Place, disk_trouble, sync_file_system
from bascule.distribute.weights.node.visible import look
from bascule.distribute.weights.node.wire import Trouble, submit
from bascule.distribute.weights.ranges import SMALL, Piece, size_of, units
from bascule.distribute.weights.resume import held, lacking, lines_of

Emit = Callable[[dict[str, Any]], None]
SMALL_AT_ONCE = 1000  # small files that one thread hashes in a row


class Target:
    """Everything about one copy on its target; see Shelf for what the nodes behind it use."""

    def __init__(self, place: Place, manifest: Manifest, how: dict[str, Any], emit: Emit) -> None:
        self.place, self.manifest, self.units = place, manifest, units(manifest)
        self._verify, self._seed, self._emit = how["verify"], how["seed"], emit
        self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))
        self._news = threading.Condition()
        self._missing: set[int] = set(range(len(self.units)))
        self._pending: Counter[int] = Counter()  # pieces that a file waits for
        self._visible: frozenset[int] = frozenset()
        self._hashing = 0  # files in the pool
        self._growing: dict[int, list[tuple[int, int]]] = {}  # files that are hashed while they arrive: unit, offset
        self._told = False  # that all has arrived
        self._journal = -1
        self._half = 0  # bytes of ranges that were not finished: they have their room on the disk already
        self._counting = threading.Lock()
        self.bytes = self.hashed = 0

    def prepare(self) -> dict[str, Any]:
        """Look what is here and what room there is. Raises Trouble."""
        seen = look(self.place)
        if not seen.whole:
            self.place.lock()
            seen = look(self.place)  # another copy may have ended meanwhile
            if seen.whole:
                self.place.release()
        self._visible = seen.files
        there = {number: ((0, self.manifest.entries[number].size),) for number in seen.files}
        if not seen.whole:
            there = {**self._resumed(), **there}
        self._missing = set(lacking(self.units, there))
        self._pending = Counter(piece.file for unit in self._missing for piece in self.units[unit])
        total = sum(map(size_of, self.units))
        todo = sum(size_of(self.units[unit]) for unit in self._missing)
        self.bytes = total - todo
        if not seen.whole:
            self._check_room(todo)
            self._journal = os.open(self.place.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return {"whole": seen.whole, "total": total, "held": self.bytes, "units": len(self._missing)}

    def begin(self) -> None:
        """Hash what is here already; a copy that lacks nothing has arrived."""
        self._hash([number for number in self.manifest.files if not self._pending[number]])
        if not self._missing:
            self._arrived()

    def missing(self) -> list[int]:
        """Units to ask for, in order."""
        with self._news:
            return sorted(self._missing)

    def write_small(self, piece: Piece, data: memoryview) -> str | None:
        """Keep a small piece; its checksum when it is the whole file. Raises Trouble."""
        entry = self.manifest.entries[piece.file]
        if piece.file in self._visible:
            return None
        if piece.length != entry.size:
            with self.writing(piece) as fd:
                self.put(fd, data, piece.offset)
            return None
        flags, mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o777 if entry.executable else 0o666
        try:
            fd = os.open(self.place.part_of(entry.path), flags, mode)
            try:
                if os.write(fd, data) != piece.length:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
            finally:
                os.close(fd)
        except OSError as trouble:
            raise disk_trouble(trouble, entry.path) from trouble
        return hashlib.sha256(data).hexdigest() if self._verify != "full" else None

    @contextmanager
    def writing(self, piece: Piece) -> Iterator[int]:
        """A descriptor to write a piece to; large files get their size, and with it their holes, at once."""
        entry = self.manifest.entries[piece.file]
        try:
            fd = os.open(self.place.part_of(entry.path), os.O_WRONLY | os.O_CREAT, 0o777 if entry.executable else 0o666)
            try:
                if entry.size != os.fstat(fd).st_size:
                    os.ftruncate(fd, entry.size)
            except OSError:
                os.close(fd)
                raise
        except OSError as trouble:
            raise disk_trouble(trouble, entry.path) from trouble
        try:
            yield fd
            if is_sampled(entry, self._verify):  # not all of it will be read again, so it must be on the disk
                self.settle(fd, piece)
        finally:
            os.close(fd)

    def put(self, fd: int, data: memoryview, offset: int) -> None:
        """Write all of it. Raises Trouble."""
        try:
            while data:
                gone = os.pwrite(fd, data, offset)
                data, offset = data[gone:], offset + gone
        except OSError as trouble:
            raise disk_trouble(trouble, self.place.data) from trouble

    def settle(self, fd: int, piece: Piece) -> None:
        """Write a range to the disk and let go of its pages. Raises Trouble."""
        try:
            os.fdatasync(fd)
        except OSError as trouble:
            raise disk_trouble(trouble, self.place.data) from trouble
        os.posix_fadvise(fd, piece.offset, piece.length, os.POSIX_FADV_DONTNEED)

    def count(self, gained: int) -> None:
        """Add to the bytes that are here."""
        with self._counting:
            self.bytes += gained

    def finish(self, unit: int, digests: list[list[Any]]) -> None:
        """Note a unit that has arrived whole; hash the files that are complete with it."""
        if digests:
            self._emit({"event": "digests", "files": digests})
        told = {number for number, _ in digests}
        with self._news:
            if unit not in self._missing:
                return
            self._note(unit)
            self._missing.discard(unit)
            self._pending.subtract(piece.file for piece in self.units[unit])
            self._follow(self.units[unit][0].file)
            ready = {p.file for p in self.units[unit] if not self._pending[p.file]} - told - self._visible
            self._news.notify_all()
        self.hashed += len(told)
        self._hash(sorted(ready - self._growing.keys()))
        if not self._missing:
            self._arrived()

    def drop(self, files: Iterable[int]) -> None:
        """Forget these files: they arrived wrong."""
        wrong = set(files)
        with self._news:
            self._told = False
            self._growing.clear()
            for unit, pieces in enumerate(self.units):
                if unit not in self._missing and any(piece.file in wrong for piece in pieces):
                    self._missing.add(unit)
                    self._pending.update(piece.file for piece in pieces)
                    self.count(-size_of(pieces))

    def wait_for(self, unit: int, within: float) -> bool:
        """See Shelf.wait_for."""
        with self._news:
            return self._news.wait_for(lambda: unit not in self._missing, within)

    def open(self, file: int) -> int:
        """See Shelf.open."""
        path = self.manifest.entries[file].path
        try:
            return os.open(self.place.locate(path), os.O_RDONLY)
        except FileNotFoundError:  # it became visible between the two
            return os.open(os.path.join(self.place.root, path), os.O_RDONLY)

    def sent(self, piece: Piece, fd: int, data: bytes | None) -> bool:
        """See Shelf.sent."""
        return True

    def _resumed(self) -> dict[int, Any]:
        """Ranges that earlier copies finished, of files that are still here with their size."""
        taken = self.place.clear({entry.path for entry in self.manifest.entries})
        found = held(self.place.read_journal(), self.manifest)
        there = {number: spans for number, spans in found.items() if self._has_size(number)}
        self._half = taken - sum(length for spans in there.values() for _, length in spans)
        return there

    def _has_size(self, number: int) -> bool:
        entry = self.manifest.entries[number]
        try:
            return os.stat(os.path.join(self.place.data, entry.path)).st_size == entry.size
        except OSError:
            return False

    def _check_room(self, todo: int) -> None:
        free, files = self.place.free()
        count = sum(1 for number in self.manifest.files if self._pending[number])
        if todo - max(0, self._half) + MARGIN > free:
            says = f"{todo / 1e9:.2f} GB are to come and {free / 1e9:.2f} GB are free"
            raise Trouble("no-room", says, f"free {free} bytes at {self.place.part}")
        if files is not None and count > files:
            raise Trouble("no-room", f"{count} files are to come and {files} inodes are free", self.place.part)

    def _hash(self, numbers: list[int]) -> None:
        entries = self.manifest.entries
        with self._news:
            self._hashing += len(numbers)
        small = [number for number in numbers if entries[number].size <= SMALL]
        tasks = [[number] for number in numbers if entries[number].size > SMALL]
        tasks += [small[at : at + SMALL_AT_ONCE] for at in range(0, len(small), SMALL_AT_ONCE)]
        for task in tasks:
            submit(self._pool, self._hash_these, task)

    def _hash_these(self, numbers: list[int]) -> None:
        if self._verify == "full" and len(numbers) > 1:
            sync_file_system(self.place.data)  # once for many small files
        found = [[number, self._digest(number)] for number in numbers]
        self._tell(found)

    def _digest(self, number: int) -> str:
        """From what the kernel holds; with `full`, and for sampled files, from the disk."""
        entry = self.manifest.entries[number]
        path = self.place.locate(entry.path)
        try:
            if entry.size > SMALL and (self._verify == "full" or is_sampled(entry, self._verify)):
                settle(path)
            elif self._verify == "full":
                forget(path)
            if number not in self._visible:
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
            result = digest(path, entry, self._verify, self._seed)
            if entry.size > SMALL:
                forget(path)
        except OSError as trouble:
            return f"unread: {trouble}"
        return result

    def _follow(self, number: int) -> None:
        """Begin to hash a large file while it arrives, so that its last byte is not the beginning of a long wait."""
        entry = self.manifest.entries[number]
        by_itself = entry.size > SMALL and entry.spans is None and number not in self._growing
        if by_itself and self._verify != "full" and not is_sampled(entry, self._verify):
            pieces = ((unit, piece) for unit, pieces in enumerate(self.units) for piece in pieces[:1])
            self._growing[number] = [(unit, piece.offset) for unit, piece in pieces if piece.file == number]
            self._hashing += 1
            submit(self._pool, self._hash_growing, number)

    def _hash_growing(self, number: int) -> None:
        entry, ranges = self.manifest.entries[number], self._growing[number]

        def end() -> int:
            return next((offset for unit, offset in ranges if unit in self._missing), entry.size)

        def grown(at: int) -> int:
            with self._news:
                self._news.wait_for(lambda: end() > at)
                return end()

        path = os.path.join(self.place.data, entry.path)
        try:
            found = growing(path, entry.size, grown)
            os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
        except OSError as trouble:
            found = f"unread: {trouble}"
        self._tell([[number, found]])

    def _note(self, unit: int) -> None:
        try:
            os.write(self._journal, lines_of(self.units[unit], self.manifest))
        except OSError as trouble:
            raise disk_trouble(trouble, self.place.journal) from trouble

    def _tell(self, found: list[list[Any]]) -> None:
        self._emit({"event": "digests", "files": found})
        with self._news:
            self._hashing -= len(found)
            self.hashed += len(found)
        if not self._missing:
            self._arrived()

    def _arrived(self) -> None:
        with self._news:
            if self._missing or self._hashing or self._told:
                return
            self._told = True
        self._emit({"event": "arrived"})
