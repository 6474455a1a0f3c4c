"""A view of an engine's files, wherever they lie: what every kind of view can do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from bascule.core.reading import Spot
from bascule.probe.kernels.fatbin import Library

TEXT_LIMIT = 16 * 1024 * 1024  # bytes; a longer file is no source text
HITS_PER_FILE = 20


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gave: the lines, and how many files were searched; 0 means that nothing was checked."""

    files: int
    hits: tuple[Spot, ...]


class View(Protocol):
    """Files of one engine, by paths relative to its site-packages. Each method raises Unreadable.

    A view reads only what is asked and counts the bytes that came from the target; no size or path that an archive
    names is trusted.
    """

    root: str  # how evidence and messages name the place

    @property
    def bytes_read(self) -> int:
        """What came from the target so far."""
        ...

    async def read(self, path: str) -> bytes | None:
        """A whole text file; None when it isn't there."""
        ...

    async def head(self, path: str, size: int) -> bytes | None:
        """The first bytes of a file; None when it isn't there."""
        ...

    async def find(self, *globs: str) -> tuple[str, ...]:
        """The paths that match, sorted."""
        ...

    async def search(self, pattern: str, *globs: str) -> Found:
        """The lines that match a POSIX extended regular expression."""
        ...

    async def words(self, pattern: str, *globs: str) -> Found:
        """The same over binary files: what matches between two NUL bytes; the line numbers are None."""
        ...

    async def libraries(self, *globs: str) -> tuple[Library, ...]:
        """The GPU code that each shared library carries, of those that match."""
        ...


def ere(text: str) -> str:
    """A text as an extended regular expression that matches just it."""
    return re.sub(r"([.\[\]{}()*+?^$|\\])", r"\\\1", text)


def word(text: str) -> str:
    """The same, where it is no part of a longer name."""
    return f"(^|[^A-Za-z0-9_]){ere(text)}([^A-Za-z0-9_]|$)"
