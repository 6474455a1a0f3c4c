"""What is to be copied, as a pure value: every file and link below a root, and how each file is verified.

This module is also sent to the nodes: standard library only, Python 3.9.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
FULL_UP_TO = 16 << 30  # bytes; a file beyond it is verified by sampled blocks, unless `full` is asked for
BLOCK = MIB  # bytes of one sampled block
RANDOM_BLOCKS = 64  # beside the first and the last one
SHA256_DIGITS = 64

Span = tuple[int, int]  # offset and length in bytes


@dataclass(frozen=True)
class Entry:
    """One file or link, by its path below the root."""

    path: str
    size: int = 0
    mtime_ns: int = 0
    executable: bool = False
    link: str | None = None  # what a link says; None = a file
    sha256: str | None = None  # when the file's name tells it: blobs of a Hugging Face cache
    spans: tuple[Span, ...] | None = None  # where a sparse file has data; None = everywhere

    @property
    def identity(self) -> str:
        """Says whether a half copy is one of this very file."""
        return self.sha256 or f"{self.size}:{self.mtime_ns}"

    @property
    def data(self) -> tuple[Span, ...]:
        """Where there is something to send."""
        return ((0, self.size),) if self.spans is None else self.spans


@dataclass(frozen=True)
class Manifest:
    """Everything below a root."""

    kind: str  # folder, file or hub (an entry of a Hugging Face cache)
    entries: tuple[Entry, ...]
    left_out: int = 0  # hidden files and unfinished downloads

    @property
    def files(self) -> tuple[int, ...]:
        """Numbers of the entries that are files."""
        return tuple(number for number, entry in enumerate(self.entries) if entry.link is None)

    @property
    def bytes(self) -> int:
        """What the files hold; holes don't count."""
        return sum(length for entry in self.entries if entry.link is None for _, length in entry.data)


def to_plain(manifest: Manifest) -> dict[str, Any]:
    """As JSON carries it."""
    rows = [[e.path, e.size, e.mtime_ns, e.executable, e.link, e.sha256, e.spans] for e in manifest.entries]
    return {"kind": manifest.kind, "entries": rows, "left_out": manifest.left_out}


def from_plain(raw: dict[str, Any]) -> Manifest:
    """The manifest that to_plain() wrote."""
    return Manifest(raw["kind"], tuple(_entry(*row) for row in raw["entries"]), raw["left_out"])


def _entry(path: str, *row: Any) -> Entry:
    size, mtime_ns, executable, link, sha256, spans = row
    data = None if spans is None else tuple((offset, length) for offset, length in spans)
    return Entry(path, size, mtime_ns, executable, link, sha256, data)


def split_hub(path: str) -> tuple[str, str | None] | None:
    """Root and revision when a path is an entry of a Hugging Face cache, or a snapshot in one; else None."""
    head, _, name = path.rstrip("/").rpartition("/")
    if _is_repository(name):
        return path.rstrip("/"), None
    root, _, folder = head.rpartition("/")
    if folder == "snapshots" and _is_repository(root.rpartition("/")[2]):
        return root, name
    return None


def known_sha256(path: str) -> str | None:
    """The checksum that the name of a blob tells; small files there are named otherwise."""
    folder, _, name = path.rpartition("/")
    told = folder == "blobs" and len(name) == SHA256_DIGITS and all(letter in "0123456789abcdef" for letter in name)
    return name if told else None


def is_sampled(entry: Entry, verify: str) -> bool:
    """True for files that are verified by blocks alone."""
    return verify != "full" and entry.size > FULL_UP_TO


def sampled_blocks(entry: Entry, seed: int, count: int = RANDOM_BLOCKS) -> tuple[Span, ...]:
    """The first block, the last one, and some between them by the seed: half of them where a sparse file has data."""
    starts = {0, max(0, entry.size - BLOCK)}
    for number in range(count):
        drawn = _draw(f"{seed}:{entry.path}:{number}")
        if entry.spans and number % 2:
            offset, length = entry.spans[drawn % len(entry.spans)]
            starts.add(offset + (drawn >> 64) % max(1, length - BLOCK + 1))
        else:
            starts.add(drawn % max(1, entry.size - BLOCK + 1))
    return tuple((start, min(BLOCK, entry.size - start)) for start in sorted(starts))


def _draw(text: str) -> int:
    """A large number that depends on the text alone, in every version of Python."""
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogateescape")).digest(), "big")


def _is_repository(name: str) -> bool:
    kind, dashes, rest = name.partition("--")
    return kind in ("models", "datasets", "spaces") and bool(dashes and rest)


def summary(manifest: Manifest, verify: str, seed: int) -> str:
    """How the files of a manifest are verified, for a receipt."""
    files = [manifest.entries[number] for number in manifest.files]
    sampled = [entry for entry in files if is_sampled(entry, verify)]
    parts: Sequence[str] = (
        f"sha256 of {len(files) - len(sampled)} files" if len(files) > len(sampled) else "",
        f"{len(sampled)} files over {FULL_UP_TO >> 30} GiB by {RANDOM_BLOCKS + 2} blocks of 1 MiB each, seed {seed}"
        if sampled
        else "",
    )
    return "; ".join(part for part in parts if part)
