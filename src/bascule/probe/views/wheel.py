"""Wheels: one, or those of a folder side by side, as pip would unpack them; nothing is unpacked."""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bascule.core.reading import Unreadable
from bascule.probe.views.streams import CHUNK, Meter, Reader
from bascule.probe.views.tree import TreeView

MOST_WHEELS = 1000
DEEPEST = 32  # folders within folders
LONGEST_INDEX = 8 << 20  # bytes of a wheel's central directory; the one of torch has 2 MB
TROUBLES = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    struct.error,
)
# PEP 427: what lies here is installed into site-packages too.
DATA = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")


class WheelView(TreeView):
    """A view of wheels; see View."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a wheel; `why` says why it can't be read."""

    wheel: Path
    info: zipfile.ZipInfo
    why: str = ""


def open_wheel(path: str | Path) -> WheelView:
    """A view of one wheel. Raises Unreadable."""
    return _view(str(path), [Path(path)])


def wheels_in(folder: str | Path) -> WheelView:
    """A view of all wheels of a folder, like an environment that has just these. Raises Unreadable."""
    try:
        wheels = sorted(path for path in Path(folder).iterdir() if path.suffix == ".whl" and path.is_file())
    except OSError as trouble:
        raise Unreadable(str(folder), trouble.strerror or str(trouble)) from trouble
    if not wheels:
        raise Unreadable(str(folder), "no wheel (*.whl) is in it")
    if len(wheels) > MOST_WHEELS:
        raise Unreadable(str(folder), f"more than {MOST_WHEELS} wheels")
    return _view(str(folder), wheels)


def _view(root: str, wheels: Sequence[Path]) -> WheelView:
    meter = Meter()
    entries: dict[str, Entry] = {}
    for wheel in wheels:
        for path, entry in _entries(wheel, meter):
            other = entries.get(path)
            entries[path] = _twice(other, entry) if other else entry
    return WheelView(WheelFiles(root, entries, meter))


class WheelFiles:
    """The files of wheels; see Files. A wheel is only open while it is read."""

    def __init__(self, root: str, entries: Mapping[str, Entry], meter: Meter) -> None:
        self.root, self.meter, self.entries = root, meter, entries
        self.folders: dict[str, set[str]] = {"": set()}
        for path in entries:
            parts = path.split("/")
            for depth in range(len(parts)):
                self.folders.setdefault("/".join(parts[:depth]), set()).add(parts[depth])

    def ready(self, glob: str) -> None:
        """See Files.ready: all is known from the start."""

    def names(self, folder: str) -> set[str]:
        """See Files.names."""
        return self.folders.get(folder, set())

    def has(self, path: str) -> bool:
        """See Files.has."""
        path = path.removesuffix("/")
        return path in self.folders or path in self.entries

    def each(self, paths: Sequence[str]) -> Iterator[tuple[str, Reader]]:
        """See Files.each."""
        by_wheel: dict[Path, list[str]] = {}
        for path in paths:
            if path in self.entries and path not in self.folders:
                by_wheel.setdefault(self.entries[path].wheel, []).append(path)
            elif path in self.entries:
                raise Unreadable(path, "is a file and a folder")
        for wheel, inside in by_wheel.items():
            with _opened(wheel, self.meter) as archive:
                for path in inside:
                    yield path, _Content(archive, self.entries[path])


class _Counted:
    """The file of a wheel: counts what is read, and refuses to read much at once, whatever its index says."""

    def __init__(self, file: IO[bytes], meter: Meter) -> None:
        self.file, self.meter = file, meter
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > LONGEST_INDEX:
            raise ValueError(f"its index has {size} bytes")
        return self.meter.count(self.file.read(LONGEST_INDEX if size < 0 else size))


@contextmanager
def _opened(wheel: Path, meter: Meter) -> Iterator[zipfile.ZipFile]:
    with _explained(str(wheel)), wheel.open("rb") as file:
        counted: Any = _Counted(file, meter)  # all that zipfile needs in order to read
        with zipfile.ZipFile(counted) as archive:
            yield archive


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except TROUBLES as trouble:
        raise Unreadable(path, str(trouble) or type(trouble).__name__) from trouble


def _entries(wheel: Path, meter: Meter) -> Iterator[tuple[str, Entry]]:
    with _opened(wheel, meter) as archive:
        infos = archive.infolist()
    for info in infos:
        name = info.orig_filename
        parts = name.removesuffix("/").split("/")
        if not name.isprintable() or "\\" in name or {"", ".", ".."} & set(parts):
            raise Unreadable(str(wheel), f"an entry that leads out of it, or has no plain name: {ascii(name)[:100]}")
        if len(parts) > DEEPEST:
            raise Unreadable(str(wheel), f"more than {DEEPEST} folders within folders: {name[:100]}")
        if not name.endswith("/"):
            yield DATA.sub("", name, count=1), Entry(wheel, info, _why_not(info))


def _why_not(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is compressed by method {info.compress_type}, which no wheel uses"
    mode = stat.S_IFMT(info.external_attr >> 16)
    return "" if mode in (0, stat.S_IFREG) else "is a link or something else that is no file"


def _twice(one: Entry, other: Entry) -> Entry:
    names = " and ".join(dict.fromkeys((one.wheel.name, other.wheel.name)))
    return Entry(one.wheel, one.info, f"is there twice, in {names}")


class _Content:
    """The bytes of one entry; its length and its checksum are compared at its end. Raises Unreadable."""

    def __init__(self, archive: zipfile.ZipFile, entry: Entry) -> None:
        self.archive, self.entry = archive, entry
        self.path = entry.info.filename
        self.file: IO[bytes] | None = None
        self.total = 0

    def read(self, size: int, /) -> bytes:
        """See Reader."""
        if self.entry.why:
            raise Unreadable(self.path, self.entry.why)
        with _explained(self.path):
            self.file = self.file or self.archive.open(self.entry.info)
            data = self.file.read(min(size, CHUNK))
            self.total += len(data)
            if not data and self.total != self.entry.info.file_size:
                raise ValueError(f"ends after {self.total} of {self.entry.info.file_size} bytes")
            return data
