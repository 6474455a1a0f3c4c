"""The archive of an image out of a pipe: all its parts are looked through once, and only then it says what they are."""

from __future__ import annotations

import itertools
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from bascule.core.reading import Unreadable
from bascule.probe.views.layers import Source, indexed, keeps_for, kept
from bascule.probe.views.stack import Budget, Layer, inside
from bascule.probe.views.streams import CHUNK, Checked, Meter, Reader, Segment, Tally, drain, explained, unpacked
from bascule.probe.views.tar import Body, Kind, Member, members
from bascule.registry.oci import LONGEST_JSON

# What the first entry of an image's archive may be called; any other one begins a root file system.
PARTS = re.compile(r"blobs(/.*)?|[0-9a-f]{64}([./].*)?|manifest\.json|index\.json|oci-layout|repositories")
SPOOL_LIMIT = 8 << 30  # bytes of libraries that are put aside


class Bundle(Protocol):
    """The parts of an image's archive, by their names."""

    def has(self, name: str) -> bool:
        """Whether it has this part."""
        ...

    def text(self, name: str) -> bytes:
        """A small part. Raises Unreadable."""
        ...

    def layer(self, name: str, digest: str) -> Source:
        """A part that is a layer; digest "" = not known. Raises Unreadable."""
        ...


def streamed(stream: Reader, name: str, package: str) -> PipedBundle | Indexed:
    """The parts of an image, or the one layer of a root file system. Raises Unreadable or ValueError."""
    keep = Keeper(package)
    bundle = PipedBundle(name)
    with unpacked(stream) as plain:
        rows = members(plain)
        first = next(rows, None)
        if first is None:
            raise Unreadable(name, "is empty")
        if not PARTS.fullmatch(inside(first[0].path) or "blobs"):
            layer = indexed(itertools.chain([first], rows), keep.take, keep.budget)
            drain(plain)
            return Indexed(name, layer, keep.places_of(name))
        for member, body in itertools.chain([first], rows):
            bundle.take(member, body, keep)
        drain(plain)
    return bundle


class Keeper:
    """Keeps texts in memory, and the engine's libraries in a temporary file, which only this process sees."""

    def __init__(self, package: str) -> None:
        self.keeps = keeps_for(package)
        self.libraries = re.compile(rf"-packages/{re.escape(package)}(\.libs)?/.*\.so[^/]*$")
        self.budget = Budget()
        self.file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the view lives
        self.places: dict[str, tuple[int, int]] = {}

    def take(self, member: Member, body: Body) -> bytes | None:
        """The bytes of a text to be kept; of a library, None."""
        if member.kind is not Kind.FILE or not self.libraries.search(f"/{member.path}"):
            return kept(member, body, self.keeps)
        start = self.file.seek(0, 2)
        if member.size <= SPOOL_LIMIT - start:
            while data := body.read(CHUNK):
                self.file.write(data)
            self.places[member.path] = start, member.size
        return None

    def places_of(self, name: str) -> Spooled:
        """Where the libraries of the layer are that was just read."""
        places, self.places = self.places, {}
        return Spooled(self.file, places)


@dataclass(frozen=True)
class Spooled:
    """Libraries that were put aside: the path of the member -> start and size."""

    file: BinaryIO
    places: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Indexed:
    """A layer that went by; see Source."""

    name: str
    layer: Layer | Unreadable
    spooled: Spooled

    def index(self, keeps: re.Pattern[str], budget: Budget) -> Layer:
        """See Source.index."""
        if isinstance(self.layer, Unreadable):
            raise self.layer
        return self.layer

    def bodies(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, Reader]]:
        """See Source.bodies."""
        for member, path in wanted.items():
            if member not in self.spooled.places:
                raise Unreadable(path, "was not kept while the pipe ran by: save the image to a file first")
            start, size = self.spooled.places[member]
            yield path, Segment(self.spooled.file, start, size, Meter())


@dataclass(frozen=True)
class PipedBundle:
    """Parts that went by; see Bundle."""

    name: str
    texts: dict[str, bytes] = field(default_factory=dict)
    layers: dict[str, Indexed] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """See Bundle.has."""
        return name in self.texts or name in self.layers

    def text(self, name: str) -> bytes:
        """See Bundle.text."""
        if name not in self.texts:
            raise Unreadable(self.name, f"has no part {name}, or not as a small one")
        return self.texts[name]

    def layer(self, name: str, digest: str) -> Source:
        """See Bundle.layer; its digest was compared when it went by."""
        if name not in self.layers:
            raise Unreadable(self.name, f"has no layer {name}")
        return self.layers[name]

    def take(self, member: Member, body: Body, keep: Keeper) -> None:
        """Look through one part. Raises Unreadable or ValueError."""
        path = inside(member.path)
        if member.kind in (Kind.LINK, Kind.SAME):
            before = posixpath.dirname(path) if member.kind is Kind.LINK else ""
            target = posixpath.normpath(posixpath.join(before, member.target))
            if target in self.layers:
                self.layers[path] = self.layers[target]
        if member.kind is not Kind.FILE:
            return
        head = body.read(min(member.size, CHUNK))
        if head.lstrip()[:1] in (b"{", b"[") or not head:
            if member.size > LONGEST_JSON:
                return
            self.texts[path] = head + b"".join(iter(lambda: body.read(CHUNK), b""))
            keep.budget.take(member.size + 500)
            return
        self.layers[path] = _layer(path, Tally(body, head), keep)


def _layer(path: str, packed: Reader, keep: Keeper) -> Indexed:
    """A part that is taken for a layer; where it is none, that only matters when the manifest calls it one."""
    folder, _, name = path.rpartition("/")
    checked = Checked(packed, f"sha256:{name}") if folder == "blobs/sha256" else packed
    try:
        with explained(path), unpacked(checked) as stream:
            layer: Layer | Unreadable = indexed(members(stream), keep.take, keep.budget)
            drain(stream)
            drain(checked)
    except Unreadable as trouble:
        layer = trouble
    return Indexed(path, layer, keep.places_of(path))
