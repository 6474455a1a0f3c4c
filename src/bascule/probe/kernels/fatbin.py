"""The fat binaries of a shared library: for which GPU architectures each of them carries code.

Read by headers alone: nothing is decompressed, and no offset that a file names is trusted. The file is also sent to
nodes on the standard input of `python3 -` (3.8 or newer, standard library only); the answers of that are read by wire.

The format is NVIDIA's and not documented; the layout below was checked against cuobjdump 13.5.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

# Bounds for one file. A real library of 1.1 GB needs 6700 reads and 9 MB.
READS = 100_000
BYTES = 128 * 1024 * 1024
NAME_BYTES = 32 * 1024 * 1024  # when so much was read, no more names of kernels are looked for
SECTIONS = 300_000
SECTION_NAMES = 16 * 1024 * 1024  # bytes of all names of sections
SYMBOLS = 4096  # of one cubin
KERNELS = 8  # names kept of one fat binary
KERNEL_NAME = 2048  # bytes kept of one name: CUTLASS names its number formats behind byte 1000
LIBRARIES = 300  # of one call as a script

SECTION = b".nv_fatbin\0"  # `__nv_relfatbin` holds objects from before linking: nothing runs from there
MAGIC = 0xBA55ED50
ARCH_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000  # flags of an entry

_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, align, entry
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_FAT_BINARY = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes behind it
# kind, -, bytes of this header, bytes behind it, compressed size, options, minor, major, SM, name, its length, flags,
# -, uncompressed size
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")


@dataclass(frozen=True)
class Code:
    """One entry of a fat binary: machine code (cubin) for an SM, or PTX that a driver compiles."""

    kind: str  # "cubin" or "ptx"
    sm: int  # 121
    suffix: str = ""  # "", "a" (this SM alone) or "f" (its family)
    isa: tuple[int, int] | None = None  # of PTX, e.g. (8, 8) = CUDA 12.9


@dataclass(frozen=True)
class FatBinary:
    """What one compilation unit carries."""

    codes: tuple[Code, ...]
    kernels: tuple[str, ...] = ()  # mangled names, where its cubins are stored uncompressed


@dataclass(frozen=True)
class Library:
    """One shared library."""

    path: str
    size: int  # bytes
    binaries: tuple[FatBinary, ...] = ()
    trouble: str = ""  # why it could not be read


def read_library(path: str, file: BinaryIO, size: int) -> Library:
    """The GPU code of a library; what can't be read is told in its trouble, and what was read before that is kept."""
    source = _Source(file, size)
    binaries: list[FatBinary] = []
    try:
        for start, end in _code_sections(source):
            binaries.extend(_fat_binaries(source, start, end))
    except _Broken as broken:
        return Library(path, size, tuple(binaries), str(broken))
    except OSError as error:
        return Library(path, size, tuple(binaries), f"can't be read: {error.strerror or error}")
    return Library(path, size, tuple(binaries))


class _Broken(Exception):
    """The file isn't what it should be, or asks for too much."""


class _Source:
    """A file that is read in pieces, as long as the bounds allow."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size
        self.spent = 0  # bytes
        self._reads = 0

    def at(self, offset: int, length: int) -> bytes:
        """These bytes; raises _Broken when they aren't all there."""
        self._reads += 1
        self.spent += length
        if self._reads > READS or self.spent > BYTES:
            raise _Broken(f"too much to read: more than {READS} pieces or {BYTES} bytes of headers")
        if offset + length > self.size:
            raise _Broken(f"ends at byte {self.size}, before something that should be at byte {offset}")
        self._file.seek(offset)
        data = self._file.read(length)
        if len(data) != length:
            raise _Broken(f"ends before byte {offset + length}, earlier than its size says")
        return data


@dataclass(frozen=True)
class _Elf:
    """A 64-bit ELF file, whole or inside another one; its offsets count from `base`."""

    source: _Source
    base: int
    end: int
    headers: int = 0  # offset of the first section header
    count: int = 0
    names: int = 0  # the section that holds the names of the sections

    def at(self, offset: int, length: int) -> bytes:
        if self.base + offset + length > self.end:
            raise _Broken(f"ends at byte {self.end}, before something that should be at byte {self.base + offset}")
        return self.source.at(self.base + offset, length)

    def section(self, number: int) -> tuple[int, ...]:
        if number >= self.count:
            raise _Broken(f"names section {number} of {self.count}")
        return _SECTION_HEADER.unpack(self.at(self.headers + number * _SECTION_HEADER.size, _SECTION_HEADER.size))

    def sections(self) -> Iterator[tuple[int, ...]]:
        for first in range(0, self.count, 1024):
            length = min(1024, self.count - first) * _SECTION_HEADER.size
            yield from _SECTION_HEADER.iter_unpack(self.at(self.headers + first * _SECTION_HEADER.size, length))


def _open_elf(source: _Source, base: int, end: int) -> _Elf:
    elf = _Elf(source, base, end)
    head = elf.at(0, 64) if end - base >= 64 else b""
    if head[:4] != b"\x7fELF":
        raise _Broken("is no ELF file")
    if head[4:6] != b"\2\1":
        raise _Broken("is no 64-bit little-endian ELF file")
    headers, entry, count, names = struct.unpack("<40xQ10xHHH", head)
    if headers == 0 or entry != _SECTION_HEADER.size:
        raise _Broken("has no section headers")
    if count == 0 or names == 0xFFFF:  # more than 16 bits can count: the real numbers are in the first header
        first = _SECTION_HEADER.unpack(elf.at(headers, entry))
        count, names = count or first[5], first[6] if names == 0xFFFF else names
    if count > SECTIONS:
        raise _Broken(f"says that it has {count} sections")
    return _Elf(source, base, end, headers, count, names)


def _code_sections(source: _Source) -> Iterator[tuple[int, int]]:
    """Where the fat binaries lie: first byte, and first byte behind."""
    elf = _open_elf(source, 0, source.size)
    _, _, _, _, offset, length, *_ = elf.section(elf.names)
    if length > SECTION_NAMES:
        raise _Broken(f"says that the names of its sections take {length} bytes")
    names = elf.at(offset, length)
    for name, kind, flags, _, start, size, *_ in elf.sections():
        if names[name : name + len(SECTION)] == SECTION:
            if kind == 8 or flags & 0x800:  # SHT_NOBITS, SHF_COMPRESSED
                raise _Broken("its .nv_fatbin is compressed or elsewhere: a file of debug information?")
            yield start, start + size


def _fat_binaries(source: _Source, start: int, end: int) -> Iterator[FatBinary]:
    if end > source.size:
        raise _Broken(f"ends at byte {source.size}, its .nv_fatbin only at byte {end}")
    position = _behind_zeros(source, start, end)
    while position < end:
        magic, version, header, length = _FAT_BINARY.unpack(source.at(position, _FAT_BINARY.size))
        if (magic, version) != (MAGIC, 1) or header < _FAT_BINARY.size:
            raise _Broken(f"no fat binary of a known kind at byte {position}, where one should begin")
        stop = position + header + length
        if stop > end:
            raise _Broken(f"the fat binary at byte {position} is longer than its section")
        yield _fat_binary(source, position + header, stop)
        position = _behind_zeros(source, stop, end)


def _behind_zeros(source: _Source, position: int, end: int) -> int:
    """The first byte that isn't zero: linkers pad between fat binaries."""
    step = 256
    while position < end:
        piece = source.at(position, min(step, end - position))
        rest = piece.lstrip(b"\0")
        if rest:
            return position + len(piece) - len(rest)
        position += len(piece)
        step = 65536
    return end


def _fat_binary(source: _Source, position: int, stop: int) -> FatBinary:
    codes: list[Code] = []
    kernels: tuple[str, ...] = ()
    while position + _ENTRY.size <= stop:
        entry = _ENTRY.unpack(source.at(position, _ENTRY.size))
        kind, header, length = entry[0], entry[2], entry[3]
        start = position + header
        if header < _ENTRY.size or start + length > stop:
            raise _Broken(f"the entry at byte {position} is longer than its fat binary")
        if kind in (1, 2):  # others are not run: e.g. 8, for a linker
            codes.append(_code(entry))
        if kind == 2 and not kernels and source.spent < NAME_BYTES:
            kernels = _kernels(source, start, length)
        position = start + length
    return FatBinary(tuple(codes), kernels)


def _code(entry: tuple[int, ...]) -> Code:
    kind, minor, major, sm, flags = entry[0], entry[6], entry[7], entry[8], entry[11]
    if not 10 <= sm < 1000:
        raise _Broken(f"names an architecture {sm}")
    suffix = "a" if flags & ARCH_SPECIFIC else "f" if flags & FAMILY_SPECIFIC else ""
    return Code("ptx", sm, suffix, (major, minor)) if kind == 1 else Code("cubin", sm, suffix)


def _kernels(source: _Source, start: int, length: int) -> tuple[str, ...]:
    """The first kernels of a cubin; none when it is compressed, or no ELF file of a known kind."""
    if source.at(start, min(4, length)) != b"\x7fELF":
        return ()
    try:
        elf = _open_elf(source, start, start + length)
        tables = [header for header in elf.sections() if header[1] == 2]  # SHT_SYMTAB
        return _names(elf, tables[0]) if tables else ()
    except _Broken:
        return ()


def _names(elf: _Elf, table: tuple[int, ...]) -> tuple[str, ...]:
    _, _, _, _, texts, length, *_ = elf.section(table[6])
    symbols = elf.at(table[4], min(table[5] // _SYMBOL.size, SYMBOLS) * _SYMBOL.size)
    names: list[str] = []
    for name, info, other, *_ in _SYMBOL.iter_unpack(symbols):
        if info & 15 == 2 and other & 0x10 and name < length:  # STT_FUNC, STO_CUDA_ENTRY
            text = elf.at(texts + name, min(KERNEL_NAME, length - name))
            names.append(text.partition(b"\0")[0].decode("ascii", "replace"))
            if len(names) == KERNELS:
                break
    return tuple(names)


def main(root: str, globs: list[str]) -> None:
    """Print one line of JSON per library under `root` that matches, and a last one that tells how many there were."""
    top = Path(root)
    paths = sorted({path for glob in globs for path in top.glob(glob) if path.is_file()})
    for path in paths[:LIBRARIES]:
        relative, size = str(path.relative_to(top)), 0
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                library = read_library(relative, file, size)
        except OSError as error:
            library = Library(relative, size, (), f"can't be read: {error.strerror or error}")
        sys.stdout.write(json.dumps(_plain(library), separators=(",", ":")) + "\n")
    sys.stdout.write(json.dumps({"libraries": len(paths)}) + "\n")


def _plain(library: Library) -> dict[str, object]:
    binaries = [
        [[[code.kind, code.sm, code.suffix, code.isa] for code in binary.codes], binary.kernels]
        for binary in library.binaries
    ]
    return {"path": library.path, "size": library.size, "trouble": library.trouble, "binaries": binaries}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
