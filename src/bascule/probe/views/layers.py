"""The view of an image's layers, which are read from the top down and only until a question is decided."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from bascule.core.reading import Unreadable
from bascule.probe.views.base import TEXT_LIMIT
from bascule.probe.views.patterns import glob_of, is_glob
from bascule.probe.views.stack import Budget, Layer, Stack
from bascule.probe.views.streams import CHUNK, Checked, Meter, Reader, drain, explained, unpacked
from bascule.probe.views.tar import Body, Kind, Member, members
from bascule.probe.views.tree import TreeView
from bascule.registry.oci import ImageFacts

DISTRIBUTIONS = "*.dist-info"
LONGEST_RECORD = 8 << 20  # bytes; the one of torch has 2 MB
# Kept when they pass by: what every distribution says of itself, path files, and which CUDA and torch there are.
KEPT = r"-info/(METADATA|entry_points\.txt|RECORD)$|-packages/[^/]*\.pth$|/_?version\.(py|json)$"


class Source(Protocol):
    """One layer of an image, and where its bytes come from."""

    def index(self, keeps: re.Pattern[str], budget: Budget) -> Layer:
        """All that it has, with the files of these paths kept. Raises Unreadable."""
        ...

    def bodies(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, Reader]]:
        """The files of these members: member -> the path that is asked. Raises Unreadable."""
        ...


@dataclass(frozen=True, slots=True)
class Blob:
    """A layer that can be read again and again."""

    name: str
    open: Callable[[], AbstractContextManager[Reader]]
    digest: str = ""  # of its bytes as they are stored; "" = not known
    size: int | None = None

    def index(self, keeps: re.Pattern[str], budget: Budget) -> Layer:
        """See Source.index; its digest is compared at its end."""
        with explained(self.name), self.open() as raw:
            checked: Reader = Checked(raw, self.digest, self.size) if self.digest else raw
            with unpacked(checked) as stream:
                layer = indexed(members(stream), lambda member, body: kept(member, body, keeps), budget)
                drain(stream)
            drain(checked)
        return layer

    def bodies(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, Reader]]:
        """See Source.bodies; its rest isn't read when all were seen."""
        left = dict(wanted)
        with explained(self.name), self.open() as raw, unpacked(raw) as stream:
            for member, body in members(stream):
                if member.path in left:
                    yield left.pop(member.path), body
                if not left:
                    return
        raise Unreadable(self.name, f"{next(iter(left))} isn't there any more")


def indexed(rows: Iterable[tuple[Member, Body]], keep: Callable[[Member, Body], bytes | None], budget: Budget) -> Layer:
    """A layer of these members. Raises Unreadable or ValueError."""
    layer = Layer()
    for member, body in rows:
        layer.add(member, keep(member, body), budget)
    return layer


def kept(member: Member, body: Body, keeps: re.Pattern[str]) -> bytes | None:
    """The bytes of a file that is to be kept; None for one that is too large, or not wanted."""
    if member.kind is not Kind.FILE or member.size > TEXT_LIMIT or not keeps.search(f"/{member.path}"):
        return None
    return b"".join(iter(lambda: body.read(CHUNK), b""))


def keeps_for(package: str) -> re.Pattern[str]:
    """Which files a reader of this engine may ask for."""
    return re.compile(rf"{KEPT}|/({re.escape(package)}|transformers)/.*\.py$")


class LayeredView(TreeView):
    """A view of an image; see View. `facts` are what its config says."""

    def __init__(self, files: LayeredFiles, facts: ImageFacts) -> None:
        super().__init__(files)
        self.facts = facts


class LayeredFiles:
    """The packages of an image; see Files. Absolute paths are those of the image.

    What is decided: a path that a layer has or hides; and below the folder of a package, whatever the RECORD of its
    distribution lists, since no other file is part of it. Which other distributions lower layers have is not looked up
    for `*.dist-info` once the engine's own RECORD was seen.
    """

    def __init__(self, name: str, sources: Sequence[Source], package: str, facts: ImageFacts, meter: Meter) -> None:
        self.name, self.package, self.facts, self.meter = name, package, facts, meter
        self.root = name
        self.site: str | None = None  # the site-packages, once it was found
        self.sources = list(sources)  # the uppermost first
        self.budget = Budget()
        self.stack = Stack(self.budget)
        self.trouble: Unreadable | None = None
        self._records: dict[str, frozenset[str]] = {}

    def ready(self, glob: str) -> None:
        """See Files.ready."""
        if self.site is None:
            self._until(lambda: bool(self._roots()))
            self.site = next(iter(self._roots()), most_packages(self.stack, self.package))
            self.root = f"{self.name}:/{self.site}"
        self._until(lambda: self._is_decided(glob))

    def names(self, folder: str) -> set[str]:
        """See Files.names."""
        return self.stack.names(self._full(folder))

    def has(self, path: str) -> bool:
        """See Files.has."""
        place = self.stack.resolve(self._full(path))
        return not place or place in self.stack.entries

    def each(self, paths: Sequence[str]) -> Iterator[tuple[str, Reader]]:
        """See Files.each; what wasn't kept is looked for in its layer once more."""
        later: dict[tuple[int, int], dict[str, str]] = {}
        for path in paths:
            entry = self.stack.entry(self._full(path))
            if entry is None or entry.kind is Kind.FOLDER:
                continue
            if entry.kind is not Kind.FILE:
                raise Unreadable(path, "is a device, a sparse file, a link to nowhere, or twice in its layer")
            if entry.data is not None:
                yield path, io.BytesIO(entry.data)
            else:
                again = 0  # a file of two names is read twice
                while entry.member in later.setdefault((entry.layer, again), {}):
                    again += 1
                later[entry.layer, again][entry.member] = path
        for (layer, _), wanted in sorted(later.items()):
            yield from self.sources[layer].bodies(wanted)

    def _roots(self) -> tuple[str, ...]:
        return roots(self.stack, self.package, self.facts.env)

    def _full(self, path: str) -> str:
        return path[1:] if path.startswith("/") else f"{self.site or ''}/{path}".strip("/")

    def _until(self, decided: Callable[[], bool]) -> None:
        while self.stack.depth < len(self.sources) and not decided():
            if self.trouble:
                raise self.trouble
            try:
                source = self.sources[self.stack.depth]
                self.stack.add(source.index(keeps_for(self.package), self.budget))
            except Unreadable as trouble:
                self.trouble = trouble
                raise

    def _is_decided(self, glob: str) -> bool:
        top, _, rest = glob.partition("/")
        if glob == DISTRIBUTIONS:
            return self._files_of(self.package) is not None
        if not is_glob(glob) and self.stack.settles(self._full(glob)):
            return True
        if not top or not rest or is_glob(top):
            return False
        files, wanted = self._files_of(top), glob_of(glob)
        return files is not None and all(self.stack.settles(self._full(path)) for path in files if wanted.match(path))

    def _files_of(self, package: str) -> frozenset[str] | None:
        """The files of a package, by the RECORD of its distribution; None when no such RECORD was seen."""
        for name in sorted(self.names("")) if package not in self._records else ():
            record = self.stack.entry(self._full(f"{name}/RECORD")) if name.endswith(".dist-info") else None
            files = record_files(record.data or b"", package) if record else frozenset()
            if files:
                self._records[package] = files
                break
        return self._records.get(package)


def record_files(record: bytes, package: str) -> frozenset[str]:
    """The files of a package in a RECORD, whose rows are path, hash and size; none where it isn't the package's own."""
    rows = record.decode(errors="replace").splitlines() if len(record) < LONGEST_RECORD else ()
    mine = (row.rsplit(",", 2)[0].strip('"') for row in rows if row.lstrip('"').startswith(f"{package}/"))
    files = frozenset(mine)
    return files if f"{package}/__init__.py" in files else frozenset()


def roots(stack: Stack, package: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of packages that hold this one, in the order in which this environment finds their Pythons."""
    folders = (folder for folder in stack.folders if folder.endswith("-packages"))
    own = [folder for folder in folders if package in stack.folders[folder]]
    return tuple(sorted(own, key=lambda folder: _rank(folder, env)))


def most_packages(stack: Stack, package: str) -> str:
    """Where no folder holds it: one with its dist-info (an editable install), or else the largest one; "" = none."""
    infos = re.compile(rf"{re.escape(package)}([-_.]\w+)?-\d[^/]*\.dist-info", re.IGNORECASE)
    folders = [folder for folder in stack.folders if folder.endswith("-packages")]
    edited = (folder for folder in folders if any(infos.fullmatch(name) for name in stack.folders[folder]))
    return next(edited, max(folders, key=lambda folder: len(stack.folders[folder]), default=""))


def _rank(folder: str, env: Mapping[str, str]) -> tuple[int, int, str]:
    """Its place in PATH; the environment that is in force comes first."""
    search = [f"{env.get('VIRTUAL_ENV', '')}/bin", *env.get("PATH", "").split(":")]
    prefix = "/" + folder.split("/lib/", maxsplit=1)[0]
    place = next((place for place, path in enumerate(search) if path.rstrip("/") == f"{prefix}/bin"), len(search))
    return place, folder.count("/"), folder
