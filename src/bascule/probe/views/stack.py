"""The layers of an image, merged from the top down: what an upper layer has or hides, a lower one no longer shows.

Whiteouts are those of the OCI image layer specification: `.wh.x` hides x, `.wh..wh..opq` all that lower layers have in
its folder.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from bascule.core.reading import Unreadable
from bascule.probe.views.tar import Kind, Member

HIDES, HIDES_ALL = ".wh.", ".wh..wh..opq"
MOST_LINKS = 40  # that one path may follow, as in Linux


@dataclass(slots=True)
class Budget:
    """Bytes of memory that an image may still take, by a rough count."""

    left: int = 1 << 30

    def take(self, size: int) -> None:
        """Raises Unreadable when that is too much."""
        self.left -= size
        if self.left < 0:
            raise Unreadable("the image", "has too many or too large files to keep track of")


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a layer."""

    kind: Kind
    member: str  # its path in the layer's archive, or that of the file of which it is another name
    size: int = 0
    target: str = ""  # of a link
    data: bytes | None = None  # where it was kept
    layer: int = 0  # 0 = the uppermost


@dataclass(slots=True)
class Layer:
    """What one layer has, and what it hides of those below."""

    entries: dict[str, Entry] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)

    def add(self, member: Member, data: bytes | None, budget: Budget) -> None:
        """Take in a member of its archive. Raises Unreadable or ValueError."""
        path = inside(member.path)
        budget.take(500 + 2 * len(path) + len(member.target) + len(data or b""))
        folder, _, name = path.rpartition("/")
        if name == HIDES_ALL:
            self.opaque.add(folder)
        elif name.startswith(HIDES):
            if not name.startswith(".wh..wh."):  # aufs's own books
                self.hidden.add(posixpath.join(folder, name.removeprefix(HIDES)))
        elif member.kind is Kind.SAME:
            other = self.entries.get(inside(member.target))
            self.entries[path] = other or Entry(Kind.OTHER, path)
        elif path in self.entries and member.kind is Kind.FILE:
            self.entries[path] = Entry(Kind.OTHER, member.path)  # which of the two is meant?
        elif path:
            self.entries[path] = Entry(member.kind, member.path, member.size, member.target, data)


class Stack:
    """The layers seen so far."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.entries: dict[str, Entry] = {}
        self.folders: dict[str, set[str]] = {"": set()}
        self.hidden: set[str] = set()
        self.opaque: set[str] = set()
        self.depth = 0

    def add(self, layer: Layer) -> None:
        """Put a layer below the others."""
        for path, entry in layer.entries.items():
            if path not in self.entries and not self.covered(path):
                self._link(path, replace(entry, layer=self.depth))
        self.hidden |= layer.hidden
        self.opaque |= layer.opaque
        self.depth += 1

    def covered(self, path: str) -> bool:
        """Whether no lower layer can show anything at this path."""
        if path in self.hidden:
            return True
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            entry = self.entries.get(folder)
            if folder in self.hidden or folder in self.opaque or (entry and entry.kind is not Kind.FOLDER):
                return True
        return False

    def settles(self, path: str) -> bool:
        """Whether lower layers can't change what is at this path."""
        place = self.resolve(path)
        return place in self.entries or self.covered(place)

    def resolve(self, path: str) -> str:
        """Where a path leads through links, as far as it is known; never out of the image. Raises Unreadable."""
        place: list[str] = []
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del place[-1:]
                continue
            place.append(part)
            entry = self.entries.get("/".join(place))
            if entry is None or entry.kind is not Kind.LINK:
                continue
            links += 1
            if links > MOST_LINKS or len(todo) > 10_000:
                raise Unreadable(path, "leads in a circle of links")
            place = [] if entry.target.startswith("/") else place[:-1]
            todo += entry.target.split("/")[::-1]
        return "/".join(place)

    def entry(self, path: str) -> Entry | None:
        """What is at a path, links followed."""
        return self.entries.get(self.resolve(path))

    def names(self, path: str) -> set[str]:
        """The names in a folder."""
        return self.folders.get(self.resolve(path), set())

    def _link(self, path: str, entry: Entry) -> None:
        self.entries[path] = entry
        if entry.kind is Kind.FOLDER:
            self.folders.setdefault(path, set())
        for folder, name in _parents(path):
            known = folder in self.folders
            self.folders.setdefault(folder, set()).add(name)
            if known:
                return
            self.budget.take(500 + 2 * len(folder))
            if folder not in self.entries:
                self.entries[folder] = Entry(Kind.FOLDER, folder, layer=entry.layer)


def inside(path: str) -> str:
    """A path of an archive below the root of the image. Raises ValueError."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise ValueError(f"a path that leads out of the image: {ascii(path)[:100]}")
    return "/".join(parts)


def _parents(path: str) -> Iterator[tuple[str, str]]:
    while path:
        path, _, name = path.rpartition("/")
        yield path, name
