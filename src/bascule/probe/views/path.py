"""Folders of packages one behind another, as an interpreter has them on its path: the first that has a package wins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from bascule.core.reading import Unreadable
from bascule.probe.kernels.fatbin import Library
from bascule.probe.packages import normal
from bascule.probe.views.base import Found, View
from bascule.probe.views.folder import FolderView
from bascule.remote.runner import Runner

MOST = 8  # folders of an interpreter that are read
# What Python itself brings is left out: no engine is there, and reading it costs most.
_PATHS = """
import sys, sysconfig
own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
for path in sys.path[1:]:
    if path and path not in own and not path.endswith((".zip", "lib-dynload")): print(path)
"""


class PathView:
    """Views of folders, the first on the path first; see View. A package of several folders is read in all of them."""

    def __init__(self, views: Sequence[View]) -> None:
        self.views = views
        self.root = views[0].root
        self._hides: list[frozenset[str]] = []

    @property
    def bytes_read(self) -> int:
        """What came from all of them."""
        return sum(view.bytes_read for view in self.views)

    async def read(self, path: str) -> bytes | None:
        """See View.read."""
        return await self._first("read", path)

    async def head(self, path: str, size: int) -> bytes | None:
        """See View.head."""
        return await self._first("head", path, size)

    async def find(self, *globs: str) -> tuple[str, ...]:
        """See View.find."""
        found: set[str] = set()
        for number, view in enumerate(self.views):
            if shown := await self._shown(number, globs):
                found |= {path for path in await view.find(*shown) if await self._shown(number, [path])}
        return tuple(sorted(found))

    async def search(self, pattern: str, *globs: str) -> Found:
        """See View.search."""
        return await self._all("search", pattern, globs)

    async def words(self, pattern: str, *globs: str) -> Found:
        """See View.words."""
        return await self._all("words", pattern, globs)

    async def libraries(self, *globs: str) -> tuple[Library, ...]:
        """See View.libraries; the paths of those that are not in the first folder are absolute."""
        found = list(await self.views[0].libraries(*globs))
        for number, view in enumerate(self.views[1:], 1):
            if shown := await self._shown(number, globs):
                more = [one for one in await view.libraries(*shown) if await self._shown(number, [one.path])]
                found += [replace(one, path=f"{view.root}/{one.path}") for one in more]
        return tuple(found)

    async def _first(self, how: str, path: str, *more: int) -> bytes | None:
        for number, view in enumerate(self.views):
            if await self._shown(number, [path]):
                content: bytes | None = await getattr(view, how)(path, *more)
                if content is not None:
                    return content
        return None

    async def _all(self, how: str, pattern: str, globs: Sequence[str]) -> Found:
        files, hits = 0, []
        for number, view in enumerate(self.views):
            if shown := await self._shown(number, globs):
                found: Found = await getattr(view, how)(pattern, *shown)
                files += found.files
                hits += [hit for hit in found.hits if await self._shown(number, [hit.path])]
        return Found(files, tuple(hits))

    async def _shown(self, number: int, paths: Sequence[str]) -> list[str]:
        """Those paths or globs whose package no folder before this one hides."""
        while len(self._hides) < number:
            self._hides.append(await _packages(self.views[len(self._hides)]))
        hidden = frozenset[str]().union(*self._hides[:number])
        return [path for path in paths if path.startswith("/") or _package(path) not in hidden]


async def open_path(runner: Runner, first: FolderView, python: str) -> View:
    """The folder, and behind it those that its interpreter has on its own path; nothing of an engine is imported.

    Raises Unreadable.
    """
    result = await runner.run((python, "-c", _PATHS), within=30)
    if not result.ok:
        why = "took more than 30 s" if result.timed_out else result.complaint
        raise Unreadable(python, f"where {python} has packages of its own could not be asked: {why}")
    paths = [line for line in result.text.splitlines() if line.startswith("/") and line != first.root]
    return PathView([first, *(FolderView(runner, path) for path in await _there(first, paths))])


async def _there(first: FolderView, paths: Sequence[str]) -> Sequence[str]:
    """Folders that are there; a path may name some that are not, and files."""
    globs = [re.sub(r"([\[*?])", r"[\1]", f"{path}/.") for path in dict.fromkeys(paths)]
    found = await first.find(*globs)
    return [path for path in dict.fromkeys(paths) if f"{path}/." in found][:MOST]


async def _packages(view: View) -> frozenset[str]:
    """What hides its like in later folders: packages, modules and distributions. Folders without __init__ add up."""
    found = await view.find("*/__init__.py", "*.py", "*.so", "*.dist-info")
    return frozenset(map(_package, found))


def _package(path: str) -> str:
    """The first part of a path, as Python and its installers know it: `torch`, or `torch.dist-info`."""
    top = path.partition("/")[0]
    if top.endswith(".dist-info"):
        return f"{normal(re.split(r'-(?=[0-9])', top)[0])}.dist-info"
    return top.partition(".")[0] if top.endswith((".py", ".so")) else top
