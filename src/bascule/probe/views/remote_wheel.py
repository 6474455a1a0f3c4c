"""A wheel on a package index, without its download: its table of contents, and only the files that are asked for."""

from __future__ import annotations

import asyncio
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import IO

import httpx2

from bascule.core.reading import Unreadable
from bascule.probe.index import Wheel
from bascule.probe.views.remote_file import RemoteFile
from bascule.probe.views.streams import CHUNK, Reader
from bascule.probe.views.tree import TreeView

DATA = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")  # PEP 427: what lies here is installed into site-packages too
LONGEST = 1000  # characters of a path; the longest of vLLM 0.33 has 171
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others are used by no wheel
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)


@asynccontextmanager
async def open_wheel(client: httpx2.AsyncClient, wheel: Wheel) -> AsyncIterator[RemoteWheel]:
    """A wheel on an index, as a View; what came of it lies in a temporary file meanwhile. Raises Unreadable."""
    with tempfile.TemporaryFile(prefix="bascule-") as kept:
        file = RemoteFile(client, wheel, kept)
        try:
            await file.open()
            yield RemoteWheel(await asyncio.to_thread(RemoteFiles, wheel.filename, file))
        finally:
            file.meter.stopped = True


class RemoteWheel(TreeView):
    """The files of one wheel; see View."""

    files: RemoteFiles

    @property
    def requests(self) -> int:
        """How often the server was asked."""
        return self.files.file.requests

    async def fetch(self, paths: Iterable[str]) -> None:
        """Get several files beforehand, in as few requests as they lie in stretches. Raises Unreadable."""
        await self._in_thread(self.files.fetch, tuple(paths))


class RemoteFiles:
    """The files of a wheel, read in threads; see Files. Raises Unreadable."""

    def __init__(self, root: str, file: RemoteFile) -> None:
        self.root, self.file, self.meter = root, file, file.meter
        with _explained(root):
            self.archive = zipfile.ZipFile(file)
        infos = sorted(self.archive.infolist(), key=lambda info: info.header_offset)
        ends = (*(info.header_offset for info in infos[1:]), self.archive.start_dir)
        self.entries = {DATA.sub("", info.filename, count=1): info for info in infos if not info.is_dir()}
        self.ends = dict(zip((info.header_offset for info in infos), ends, strict=False))
        self.folders: dict[str, set[str]] = {}
        for path in self.entries:
            if len(path) > LONGEST:
                raise Unreadable(root, f"has a path of {len(path)} characters")
            for mark in (0, *(found.end() for found in re.finditer("/", path))):
                self.folders.setdefault(path[: max(0, mark - 1)], set()).add(path[mark:].partition("/")[0])

    def ready(self, glob: str) -> None:
        """See Files.ready: all is known from the start."""

    def names(self, folder: str) -> set[str]:
        """See Files.names."""
        return self.folders.get(folder, set())

    def has(self, path: str) -> bool:
        """See Files.has."""
        return path in self.entries or path.removesuffix("/") in self.folders

    def each(self, paths: Sequence[str]) -> Iterator[tuple[str, Reader]]:
        """See Files.each."""
        self.fetch(paths)
        for path in paths:
            if path in self.entries:
                with _explained(path):
                    if self.entries[path].compress_type not in METHODS:
                        raise ValueError("compressed as no wheel is")
                    member = self.archive.open(self.entries[path])
                with member:
                    yield path, _Content(path, member)

    def fetch(self, paths: Sequence[str]) -> None:
        """Get what the archive has of these files, from each header to the next."""
        infos = (self.entries[path] for path in paths if path in self.entries)
        self.file.get((info.header_offset, self.ends[info.header_offset]) for info in infos)


class _Content:
    """The bytes of one file, whose checksum zipfile compares at its end."""

    def __init__(self, path: str, member: IO[bytes]) -> None:
        self.path, self.member = path, member

    def read(self, size: int, /) -> bytes:
        """See Reader. Raises Unreadable."""
        with _explained(self.path):
            return self.member.read(min(size, CHUNK))


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except BROKEN as broken:
        raise Unreadable(path, f"can't be unpacked: {broken or type(broken).__name__}") from None
