"""The members of a tar stream, read strictly and within bounds.

tarfile is not used: it takes a damaged header for the end of the archive, and reads a name of any length into memory.
The format is POSIX.1-2017 pax, and the GNU tar manual's "Basic Tar Format" for long names, sparse files and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bascule.probe.views.streams import CHUNK, Reader, Segment

BLOCK = 512  # bytes
LONGEST_PATH = 4096  # bytes, PATH_MAX of Linux
LONGEST_EXTRA = 1 << 20  # bytes of one pax header
MOST_EXTRAS = 8  # headers before one member


class Kind(StrEnum):
    """What a path is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"  # symbolic
    SAME = "same"  # another name of a file of the same archive
    OTHER = "other"  # a device, a pipe, a sparse file: something whose bytes are not read


KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"1": Kind.SAME,
    b"2": Kind.LINK,
    b"5": Kind.FOLDER,
}


@dataclass(frozen=True, slots=True)
class Member:
    """One entry; its paths are as the archive has them, its size is how many bytes follow."""

    path: str
    kind: Kind
    size: int
    target: str = ""


class Body:
    """The bytes of one member. Raises ValueError."""

    def __init__(self, stream: Reader, size: int) -> None:
        self.stream, self.left = stream, size

    def read(self, size: int, /) -> bytes:
        """See Reader."""
        if not self.left:
            return b""
        data = self.stream.read(min(size, self.left, CHUNK))
        if not data:
            raise ValueError(f"the archive ends {self.left} bytes too early")
        self.left -= len(data)
        return data


def members(stream: Reader) -> Iterator[tuple[Member, Body]]:
    """Each member with its bytes, which may be read before the next one is asked for. Raises ValueError."""
    extra: dict[str, str] = {}
    extras = 0
    while (block := exactly(stream, BLOCK)) != bytes(BLOCK):
        size = _checked_size(block)
        letter = block[156:157]
        if letter in b"LKxg":
            extras += 1
            if extras > MOST_EXTRAS or size > LONGEST_EXTRA:
                raise ValueError("a name or an extended header has no end")
            data = exactly(stream, size + -size % BLOCK)[:size]
            extra |= _extra(letter, data)
            continue
        member = _member(block, size, extra)
        if letter == b"S":
            _skip_sparse_map(stream, block)
        body = Body(stream, member.size)
        yield member, body
        _skip(stream, body.left + -member.size % BLOCK)
        extra, extras = {}, 0


def exactly(stream: Reader, size: int) -> bytes:
    """So many bytes. Raises ValueError."""
    found = b""
    while len(found) < size:
        more = stream.read(size - len(found))
        if not more:
            raise ValueError("the archive ends without its end mark")
        found += more
    return found


def _checked_size(block: bytes) -> int:
    if sum(block[:148]) + sum(block[156:]) + 8 * ord(" ") != _number(block[148:156]):
        raise ValueError("a header's checksum is wrong: damaged, or no tar archive")
    return _number(block[124:136])


def _number(field: bytes) -> int:
    """Octal text, or with its first bit set a big-endian number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.split(b"\0")[0].strip()
    if text.strip(b"01234567"):
        raise ValueError("a header has a number that is none: damaged, or no tar archive")
    return int(text or b"0", 8)


def _extra(letter: bytes, data: bytes) -> dict[str, str]:
    """What a long name or a pax header says of the next member; a global pax header never names one."""
    if letter == b"g":
        return {}
    if letter in b"LK":
        return {"path" if letter == b"L" else "linkpath": _text(data)}
    found = {}
    while data:
        length = data.split(b" ", 1)[0]
        if not (length.isdigit() and len(length) < 8 and len(length) + 3 <= int(length) <= len(data)):
            raise ValueError("an extended header is damaged")
        key, equals, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        found[key.decode(errors="replace") if equals else ""] = _text(value)
        data = data[int(length) :]
    return found


def _text(data: bytes) -> str:
    return data.split(b"\0")[0].decode(errors="replace")


def _member(block: bytes, size: int, extra: Mapping[str, str]) -> Member:
    path, target = _text(block[:100]), _text(block[157:257])
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        path = f"{prefix}/{path}"
    path, target = extra.get("path", path), extra.get("linkpath", target)
    if len(path) > LONGEST_PATH or len(target) > LONGEST_PATH:
        raise ValueError(f"a path of more than {LONGEST_PATH} bytes")
    kind = KINDS.get(block[156:157], Kind.OTHER)
    if "size" in extra:
        if not (extra["size"].isascii() and extra["size"].isdigit() and len(extra["size"]) < 20):
            raise ValueError("a size in an extended header is no number")
        size = int(extra["size"])
    if any(key.startswith("GNU.sparse.") for key in extra):
        path, kind = extra.get("GNU.sparse.name", path), Kind.OTHER
    if kind is Kind.FILE and path.endswith("/"):
        kind = Kind.FOLDER  # as before POSIX
    has_bytes = kind in (Kind.FILE, Kind.OTHER)
    return Member(path, kind, size if has_bytes else 0, target)


def _skip_sparse_map(stream: Reader, block: bytes) -> None:
    more = block[482]
    while more:
        more = exactly(stream, BLOCK)[504]


def _skip(stream: Reader, size: int) -> None:
    if isinstance(stream, Segment):
        if size > stream.left:
            raise ValueError(f"the archive ends {size - stream.left} bytes too early")
        stream.skip(size)
        return
    while size:
        data = stream.read(min(size, CHUNK))
        if not data:
            raise ValueError(f"the archive ends {size} bytes too early")
        size -= len(data)
