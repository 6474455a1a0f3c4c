"""Images in files: what `docker save` writes (a pipe too), an OCI layout, and the tar of a root file system."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bascule.core.reading import Unreadable
from bascule.probe.views.layers import Blob, LayeredFiles, LayeredView, Source
from bascule.probe.views.piped import PARTS, Bundle, Indexed, streamed
from bascule.probe.views.stack import inside
from bascule.probe.views.streams import CHUNK, GZIP, ZSTD, Meter, Pipe, Reader, Segment, explained
from bascule.probe.views.tar import Kind, members
from bascule.registry.oci import (
    LONGEST_JSON,
    ImageFacts,
    choose,
    facts_of,
    json_object,
    json_value,
    parts_of,
)

MOST_PARTS = 20_000
DEEPEST_INDEX = 3  # indexes within indexes
Opener = Callable[[], AbstractContextManager[BinaryIO]]


def open_archive(source: str | Path | BinaryIO, package: str, platform: str = "") -> LayeredView:
    """A view of the image in a file, a folder (OCI layout) or a pipe, which is read to its end at once.

    `package` is the folder of the engine; `platform` (linux/arm64) chooses one image of several. Raises Unreadable.
    """
    meter = Meter()
    name = str(source) if isinstance(source, str | Path) else "the image's stream"
    bundle = _bundle(source, name, package, meter)
    facts, layers = ImageFacts(), list[Source]()
    if isinstance(bundle, Blob | Indexed):
        layers = [bundle]
    elif bundle.has("manifest.json"):
        facts, layers = _saved(bundle, name)
    elif bundle.has("index.json"):
        facts, layers = _layout(bundle, name, platform)
    else:
        raise Unreadable(name, "has neither manifest.json nor index.json")
    return LayeredView(LayeredFiles(name, layers[::-1], package, facts, meter), facts)


def _saved(bundle: Bundle, name: str) -> tuple[ImageFacts, list[Source]]:
    """What `docker save` writes: manifest.json names the config and the layers, the lowest first."""
    rows = json_value(bundle.text("manifest.json"), "manifest.json")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if len(rows) != 1:
        tags = [str(tag) for row in rows for tag in row.get("RepoTags") or ()][:10]
        raise Unreadable(name, f"it holds {len(rows)} images, save one alone: {', '.join(tags)}"[:300])
    config, layers = rows[0].get("Config"), rows[0].get("Layers")
    if not isinstance(config, str) or not isinstance(layers, list) or not all(isinstance(x, str) for x in layers):
        raise Unreadable("manifest.json", "names no config and layers")
    facts = facts_of(json_object(bundle.text(config), config), "")
    return facts, [bundle.layer(layer, _digest_of(layer)) for layer in layers]


def _layout(bundle: Bundle, name: str, platform: str) -> tuple[ImageFacts, list[Source]]:
    """An OCI layout: index.json leads to manifests, by platform."""
    found = json_object(bundle.text("index.json"), "index.json")
    path, digest = "index.json", ""
    for _ in range(DEEPEST_INDEX):
        if "manifests" not in found:
            break
        digest = choose(found, platform, path).digest
        path = _path_of(digest)
        found = json_object(bundle.text(path), path)
    config, layers = parts_of(found, path)
    facts = facts_of(json_object(bundle.text(_path_of(config.digest)), name), digest)
    return facts, [bundle.layer(_path_of(layer.digest), layer.digest) for layer in layers]


def _path_of(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest_of(path: str) -> str:
    """Newer archives name each part by its digest."""
    folder, _, name = path.rpartition("/")
    return f"sha256:{name}" if folder == "blobs/sha256" else ""


def _bundle(source: str | Path | BinaryIO, name: str, package: str, meter: Meter) -> Bundle | Blob | Indexed:
    if isinstance(source, str | Path):
        if Path(source).is_dir():
            return FolderBundle(Path(source), meter)
        source = Path(source)
    opener = partial(_file, source)
    with explained(name), opener() as file:
        if not file.seekable():
            return streamed(Pipe(file, meter), name, package)
        whole = Segment(file, 0, file.seek(0, 2), meter)
        if Segment(file, 0, 4, meter).read(4).startswith((GZIP, ZSTD)):
            return streamed(whole, name, package)
        return _seekable(whole, opener, name)


@contextmanager
def _file(source: Path | BinaryIO) -> Iterator[BinaryIO]:
    """The file of a path for a while, or the file that the caller has open."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield file
    else:
        yield source


def _seekable(whole: Segment, opener: Opener, name: str) -> Bundle | Blob | Indexed:
    """Where the parts are; of a root file system, the one layer that it is."""
    meter, size = whole.meter, whole.left
    parts: dict[str, tuple[int, int]] = {}
    links: dict[str, str] = {}
    for member, _ in members(whole):
        path = inside(member.path)
        if path and not parts and not links and not PARTS.fullmatch(path):
            return Blob(name, partial(_opened, opener, 0, size, meter))
        if len(parts) + len(links) > MOST_PARTS:
            raise ValueError(f"more than {MOST_PARTS} parts")
        if member.kind is Kind.FILE:
            parts[path] = whole.at, member.size
        elif member.kind is Kind.LINK:
            links[path] = posixpath.normpath(posixpath.join(posixpath.dirname(path), member.target))
    return FileBundle(name, opener, parts, links, meter)


@contextmanager
def _opened(opener: Opener, start: int, size: int, meter: Meter) -> Iterator[Reader]:
    with opener() as file:
        yield Segment(file, start, size, meter)


@dataclass(frozen=True)
class FileBundle:
    """Parts of a seekable file; see Bundle."""

    name: str
    opener: Opener
    parts: Mapping[str, tuple[int, int]]  # start and size
    links: Mapping[str, str]  # docker save of 1.10 to 24 links a layer that two images share
    meter: Meter

    def has(self, name: str) -> bool:
        """See Bundle.has."""
        return self.links.get(name, name) in self.parts

    def text(self, name: str) -> bytes:
        """See Bundle.text."""
        start, size = self._place(name)
        with explained(name), _opened(self.opener, start, min(size, LONGEST_JSON + 1), self.meter) as reader:
            return b"".join(iter(lambda: reader.read(CHUNK), b""))

    def layer(self, name: str, digest: str) -> Source:
        """See Bundle.layer."""
        start, size = self._place(name)
        return Blob(name, partial(_opened, self.opener, start, size, self.meter), digest)

    def _place(self, name: str) -> tuple[int, int]:
        if not self.has(name):
            raise Unreadable(self.name, f"has no part {name}")
        return self.parts[self.links.get(name, name)]


@dataclass(frozen=True)
class FolderBundle:
    """An OCI layout that is a folder; see Bundle."""

    root: Path
    meter: Meter

    def has(self, name: str) -> bool:
        """See Bundle.has; what names other places is not there."""
        return ".." not in name.split("/") and not name.startswith("/") and (self.root / name).is_file()

    def text(self, name: str) -> bytes:
        """See Bundle.text."""
        with explained(name), self._open(name, LONGEST_JSON + 1) as reader:
            return b"".join(iter(lambda: reader.read(CHUNK), b""))

    def layer(self, name: str, digest: str) -> Source:
        """See Bundle.layer."""
        return Blob(name, partial(self._open, name, None), digest)

    @contextmanager
    def _open(self, name: str, limit: int | None) -> Iterator[Reader]:
        if not self.has(name):
            raise Unreadable(str(self.root), f"has no part {name}")
        with (self.root / name).open("rb") as file:
            size = file.seek(0, 2)
            yield Segment(file, 0, size if limit is None else min(size, limit), self.meter)
