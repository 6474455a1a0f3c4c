"""The view of any tree of files that can list its folders and give bytes: wheels, layers."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, ParamSpec, Protocol, TypeVar

from bascule.core.reading import EXCERPT, Spot, Unreadable
from bascule.probe.kernels.fatbin import Library, read_library
from bascule.probe.views.base import HITS_PER_FILE, TEXT_LIMIT, Found
from bascule.probe.views.patterns import LINE, STRING, Pattern, glob_of, is_glob, pattern_of
from bascule.probe.views.streams import CHUNK, Meter, Reader, explained
from bascule.registry.aside import aside

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one question may cost."""

    library: int = 4 << 30  # bytes of one shared library, which lies in a temporary file for a while
    total: int = 16 << 30  # bytes that are unpacked; a whole torch has 5 GB of libraries
    paths: int = 200_000  # that globs match


class Files(Protocol):
    """A tree of files. Paths are relative to `root`; each method raises Unreadable."""

    root: str
    meter: Meter

    def ready(self, glob: str) -> None:
        """Fetch what must be known before the other methods can answer for this glob."""
        ...

    def names(self, folder: str) -> Iterable[str]:
        """The names in a folder; none when it isn't there or is no folder."""
        ...

    def has(self, path: str) -> bool:
        """Whether something is there: a file, a folder, or a link to one."""
        ...

    def each(self, paths: Sequence[str]) -> Iterator[tuple[str, Reader]]:
        """Those of the paths that are files, in the order that is cheapest; each is read before the next one."""
        ...


class TreeView:
    """A view of such a tree; see View. What takes long runs in a thread, which ends when its caller is cancelled."""

    def __init__(self, files: Files, limits: Limits | None = None) -> None:
        self.files = files
        self.limits = limits or Limits()
        self.root = files.root
        self.bytes_read = files.meter.total
        self._lock = threading.Lock()

    async def read(self, path: str) -> bytes | None:
        """See View.read; more than TEXT_LIMIT bytes are refused."""
        return await self._in_thread(self._read, path, TEXT_LIMIT, True)

    async def head(self, path: str, size: int) -> bytes | None:
        """See View.head."""
        return await self._in_thread(self._read, path, size, False)

    async def find(self, *globs: str) -> tuple[str, ...]:
        """See View.find."""
        return await self._in_thread(self._expand, globs)

    async def search(self, pattern: str, *globs: str) -> Found:
        """See View.search."""
        return await self._in_thread(self._search, pattern, LINE, globs)

    async def words(self, pattern: str, *globs: str) -> Found:
        """See View.words."""
        return await self._in_thread(self._search, pattern, STRING, globs)

    async def libraries(self, *globs: str) -> tuple[Library, ...]:
        """See View.libraries; one that can't be read says so in its `trouble`."""
        return await self._in_thread(self._libraries, globs)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def alone() -> T:
            with self._lock:
                return function(*args, **kwargs)

        try:
            return await aside(alone)
        except asyncio.CancelledError:
            self.files.meter.stopped = True
            raise
        finally:
            self.root, self.bytes_read = self.files.root, self.files.meter.total

    def _read(self, path: str, limit: int, whole: bool) -> bytes | None:
        self.files.ready(path)
        for _, reader in self.files.each([path]):
            with explained(path):
                data = _up_to(reader, limit + 1 if whole else limit)
            if whole and len(data) > limit:
                raise Unreadable(path, f"more than {limit} bytes")
            return data
        if self.files.has(path):
            raise Unreadable(path, "is a folder, or something else that is no file")
        return None

    def _expand(self, globs: Sequence[str]) -> tuple[str, ...]:
        found: set[str] = set()
        for glob in globs:
            self.files.ready(glob)
            paths = ["/" if glob.startswith("/") else ""]
            for part in glob.lstrip("/").split("/"):
                paths = [*self._below(paths, part)]
                if len(found) + len(paths) > self.limits.paths:
                    raise Unreadable(glob, f"matches more than {self.limits.paths} paths")
            found |= {path for path in paths if self.files.has(path)}
        return tuple(sorted(found))

    def _below(self, folders: Iterable[str], part: str) -> Iterator[str]:
        wanted = glob_of(part) if is_glob(part) else None
        for folder in folders:
            before = folder if not folder or folder.endswith("/") else f"{folder}/"
            if wanted is None:
                yield f"{before}{part}"
            else:
                yield from (before + name for name in self.files.names(folder) if wanted.match(name))

    def _search(self, text: str, end: bytes, globs: Sequence[str]) -> Found:
        with explained(text):
            pattern = pattern_of(text, end)
        hits: dict[str, list[Spot]] = {}
        left = self.limits.total
        for path, reader in self.files.each(self._expand(globs)):
            hits[path], before = [], 0
            with explained(path):
                for block in _blocks(reader, end):
                    left -= len(block)
                    if left < 0:
                        raise Unreadable(path, f"more than {self.limits.total} bytes to search")
                    hits[path] += _hits(pattern, block, end, (path, before))
                    before += block.count(LINE)
        spots = [spot for path in sorted(hits) for spot in hits[path][:HITS_PER_FILE]]
        return Found(len(hits), tuple(spots))

    def _libraries(self, globs: Sequence[str]) -> tuple[Library, ...]:
        paths = self._expand(globs)
        found: dict[str, Library] = {}
        left, why = self.limits.total, ""
        try:
            for path, reader in self.files.each(paths):
                found[path] = _library(path, reader, min(left, self.limits.library))
                left -= found[path].size
        except Unreadable as trouble:
            if self.files.meter.stopped:
                raise
            why = trouble.why
        if why:
            found |= {path: Library(path, 0, trouble=why) for path in paths if path not in found}
        return tuple(found[path] for path in sorted(found))


def _up_to(reader: Reader, size: int) -> bytes:
    parts: list[bytes] = []
    left = size
    while left and (data := reader.read(min(left, CHUNK))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _blocks(reader: Reader, end: bytes) -> Iterator[bytes]:
    """A file in pieces of whole lines, or strings. Raises ValueError."""
    rest = b""
    while data := reader.read(CHUNK):
        head, mark, tail = data.rpartition(end)
        if mark:
            yield rest + head + mark
            rest = tail
        else:
            rest += tail
        if len(rest) > TEXT_LIMIT:
            raise ValueError(f"more than {TEXT_LIMIT} bytes in one line or string")
    if rest:
        yield rest


def _hits(pattern: Pattern, block: bytes, end: bytes, where: tuple[str, int]) -> list[Spot]:
    """Of a text the lines that match; of a binary file the matches themselves."""
    path, before = where
    found: list[Spot] = []
    if pattern.needle not in block:
        return found
    block = end + block
    place = 1 - pattern.skip
    while len(found) < HITS_PER_FILE and (match := pattern.regex.search(block, place)):
        start = match.start() + pattern.skip
        if start == len(block) and block.endswith(end):
            break  # behind the last end there is no further line
        if end == LINE:
            stop = block.find(end, match.end())
            stop = len(block) if stop < 0 else stop
            line = block[block.rfind(end, 0, start) + 1 : stop].decode(errors="replace")
            found.append(Spot(path, before + block.count(LINE, 0, start), line.strip()[:EXCERPT]))
            place = stop + 1 - pattern.skip
        else:
            if start < match.end():
                found.append(Spot(path, None, block[start : match.end()].decode(errors="replace")[:EXCERPT]))
            place = max(match.end(), start + 1 - pattern.skip)
        if place > len(block):
            break
    return found


def _library(path: str, reader: Reader, limit: int) -> Library:
    """Read one library out of a temporary file, which only this process sees."""
    size = 0
    try:
        with explained(path), tempfile.TemporaryFile() as file:
            while size <= limit and (data := reader.read(CHUNK)):
                size += file.write(data)
            if size > limit:
                return Library(path, size, trouble=f"more than {limit} bytes")
            return _read(path, file, size)
    except Unreadable as trouble:
        return Library(path, size, trouble=trouble.why)


def _read(path: str, file: BinaryIO, size: int) -> Library:
    file.seek(0)
    return read_library(path, file, size)
