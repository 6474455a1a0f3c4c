"""Small ELF files with fat binaries, byte by byte."""

import struct

ZSTD = 0x8000
SECTION_HEADER = "<IIQQQQIIQQ"
Section = tuple[bytes, int, bytes, int]  # name, type, content, link


def elf(*sections: Section, machine: int = 62, many: bool = False) -> bytes:
    """A 64-bit ELF file. `many`: its number of sections stands in the first header, as if 16 bits were too few."""
    table = [(b"", 0, b"", 0), *sections, (b".shstrtab", 3, b"", 0)]
    names = b"".join(name + b"\0" for name, *_ in table)
    table[-1] = (b".shstrtab", 3, names, 0)
    body, headers, place = b"", b"", 0
    for name, kind, content, link in table:
        first = (len(table), len(table) - 1) if many and not headers else (len(content), link)
        headers += struct.pack(SECTION_HEADER, place, kind, 0, 0, 64 + len(body), first[0], first[1], 0, 1, 0)
        body += content
        place += len(name) + 1
    ident = b"\x7fELF\2\1\1" + bytes(9)
    counts = (0, 0xFFFF) if many else (len(table), len(table) - 1)
    head = struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, *counts)
    return ident + head + body + headers


def library(*fat_binaries: bytes, gap: int = 0, **how) -> bytes:
    """A shared library whose .nv_fatbin holds these, with `gap` zeros between them."""
    return elf((b".text", 1, b"\x90" * 8, 0), nv_fatbin(*fat_binaries, gap=gap), **how)


def nv_fatbin(*fat_binaries: bytes, gap: int = 0) -> Section:
    return (b".nv_fatbin", 1, bytes(gap).join(fat_binaries), 0)


def fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def entry(arch: str, payload: bytes = bytes(64), header: int = 64, flags: int = 0, kind: int | None = None) -> bytes:
    """`sm_120a` is a cubin, `compute_80` PTX of ISA 8.8; headers longer than 64 bytes are real too."""
    number = int("".join(filter(str.isdigit, arch)))
    flags |= {"a": 0x100000, "f": 0x200000}.get(arch[-1], 0) | 0x11
    ptx = arch.startswith("compute")
    minor, major = (8, 8) if ptx else (1, 7)
    kind = kind or (1 if ptx else 2)
    fixed = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, header, len(payload), 0, 0, minor, major, number, 0, 0, flags, 0, 0
    )
    return fixed + bytes(header - 64) + payload


def cubin(*kernels: bytes) -> bytes:
    """A cubin with these kernels, a device function and an object among its symbols."""
    texts = b"\0helper\0thing\0" + b"".join(name + b"\0" for name in kernels)
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, 8) + struct.pack("<IBBHQQ", 8, 0x11, 0x10, 1, 0, 8)
    for name in kernels:
        symbols += struct.pack("<IBBHQQ", texts.index(b"\0" + name + b"\0") + 1, 0x12, 0x10, 1, 0, 8)
    return elf((b".strtab", 3, texts, 0), (b".symtab", 2, symbols, 1), machine=190)


def simple(*archs: str, kernels: tuple[bytes, ...] = ()) -> bytes:
    """A fat binary with code for these."""
    payload = cubin(*kernels) if kernels else bytes(64)
    return fat_binary(*(entry(arch, payload if arch.startswith("sm") else bytes(64)) for arch in archs))
