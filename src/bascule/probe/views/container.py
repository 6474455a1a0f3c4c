"""An image that a node has, or a container there: its files are read without starting anything.

Where root is to be had and the store is overlay2, the image's own layers are mounted read-only for each command, in a
mount namespace that ends with the command. Elsewhere the paths that readers ask for first are copied out of a
container that is never started; when those don't decide it, the whole image goes by once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import resources

from bascule.core.reading import Unreadable
from bascule.probe.views.folder import FolderView
from bascule.remote.runner import Result, Runner

WITHIN = 900.0  # seconds in which an image of tens of GB goes by once
MOUNT_OPTIONS = 3500  # bytes; the kernel takes one page of them

_MOUNTED = (
    'cd "$1" && mount -t overlay overlay -o "ro,nosymfollow,lowerdir=$2" /mnt && shift 2 && exec "$@"'  # /mnt of ours
)


class NoSuchTarget(Unreadable):
    """The node has neither an image nor a container of this name."""


@dataclass(frozen=True, slots=True)
class Target:
    """What docker or podman says of an image or a container."""

    docker: str  # words that reach it
    kind: str  # image or container
    id: str
    platform: str  # linux/arm64; of a container linux alone
    root: str  # root, sudo, or "" when it is not to be had
    top: str = ""  # the folder of overlay2
    layers: tuple[str, ...] = ()  # as short names in it, top first
    roots: Mapping[str, str] = field(default_factory=dict)  # package -> its folder in the image, where that is known

    @property
    def mountable(self) -> bool:
        """True when its layers can be mounted as one tree."""
        return bool(self.root) and len(self.layers) > 1 and len(":".join(self.layers)) < MOUNT_OPTIONS


class Missing(Unreadable):
    """All of it was looked at, and the package is nowhere."""

    def __init__(self, target: str, package: str) -> None:
        super().__init__(target, f"no folder *-packages/{package} in it")


class MountedRunner:
    """Runs commands where the image's files are under /mnt, for as long as each command lasts."""

    def __init__(self, runner: Runner, target: Target) -> None:
        self._runner = runner
        unshare = ("unshare", "--mount", "sh", "-c", _MOUNTED, "sh", target.top, ":".join(target.layers))
        self._prefix = ("sudo", "-n", *unshare) if target.root == "sudo" else unshare

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """See Runner.run."""
        return await self._runner.run((*self._prefix, *argv), stdin=stdin, within=within)


async def describe(runner: Runner, docker: Sequence[str], name: str) -> Target:
    """What a name stands for on a node. Raises NoSuchTarget, Unreadable, NodeUnreachable."""
    words = " ".join(docker)
    result = await _call(runner, "describe", words, name)
    facts = [line.split(" ") for line in result.text.splitlines()]
    said = {row[0]: row[1] for row in facts if len(row) == 2}
    if result.status == 4:
        raise NoSuchTarget(name, result.text.strip() or "no such image and no such container")
    if not result.ok or "id" not in said:
        raise Unreadable(name, "took more than 30 s" if result.timed_out else result.complaint)
    layers = [(row[1], row[2]) for row in facts if row[0] == "layer" and len(row) == 3]
    tops = {top for top, _ in layers}
    top = tops.pop() if len(tops) == 1 else ""
    short = tuple(layer for _, layer in layers) if top else ()
    return Target(words, said["kind"], said["id"], said.get("platform", ""), said.get("root", ""), top, short)


async def find(runner: Runner, target: Target, packages: Sequence[str]) -> Mapping[str, str]:
    """Which of these packages it has, and in which folder (of the image): first in the usual places, then everywhere.

    Raises Unreadable.
    """
    if target.mountable:
        found = await _find_mounted(MountedRunner(runner, target), ("find_roots", "search_roots"), packages)
        if found is not None:
            return found
    for search, within in (("find_copied", 120.0), ("list_all", WITHIN)):
        words = (target.docker, target.kind, target.id, *packages)
        result = await _call(runner, search, *words, within=within)
        if not result.ok:
            raise Unreadable(target.id, "took too long" if result.timed_out else result.complaint)
        if found := _roots(result.text):
            return found
    return {}


async def mounted(runner: Runner, target: Target, package: str) -> FolderView | None:
    """A view of the folder that holds the package; None when the image can't be mounted. Raises Missing, Unreadable."""
    if not target.mountable:
        return None
    inside = MountedRunner(runner, target)
    found = await _find_mounted(inside, ("find_roots", "search_roots"), (package,))
    if found is None:
        return None
    if not found:
        raise Missing(target.id, package)
    return FolderView(inside, found[package])


@asynccontextmanager
async def copied(
    runner: Runner, target: Target, package: str, distributions: Sequence[str], paths: Sequence[str]
) -> AsyncIterator[FolderView | None]:
    """A view of just these paths, for a while; None when the package isn't in a usual place. Raises Unreadable."""
    words = ("copy_out", package, target.roots.get(package, ""), " ".join(distributions), *paths)
    async with _folder(runner, target, words) as view:
        yield view


@asynccontextmanager
async def unpacked(runner: Runner, target: Target, package: str, patterns: Sequence[str]) -> AsyncIterator[FolderView]:
    """A view of all that matches, for a while; the whole image goes by once. Raises Missing, Unreadable."""
    async with _folder(runner, target, ("unpack", package, *patterns)) as view:
        if view is None:
            raise Missing(target.id, package)
        yield view


async def _find_mounted(
    inside: MountedRunner, searches: Sequence[str], packages: Sequence[str]
) -> Mapping[str, str] | None:
    """The folders; None when the mount is refused, as where `mount` is too old for nosymfollow (util-linux 2.38)."""
    for search in searches:
        result = await _call(inside, search, "/mnt", *packages, within=60)
        if result.timed_out:
            raise Unreadable("/mnt", "the search for packages took more than 60 s")
        if not result.ok:
            return None
        if found := _roots(result.text):
            return found
    return {}


def _roots(text: str) -> Mapping[str, str]:
    """The first folder of each package, from lines `PACKAGE FOLDER`."""
    rows = [line.split(" ", 1) for line in text.splitlines() if " /" in line]
    return dict(reversed([(package, folder) for package, folder in rows]))


@asynccontextmanager
async def _folder(runner: Runner, target: Target, words: Sequence[str]) -> AsyncIterator[FolderView | None]:
    function, *others = words
    result = await _call(runner, function, target.docker, target.kind, target.id, *others, within=WITHIN)
    folder, _, roots = result.text.strip().partition("\n")
    try:
        if not result.ok or not folder:
            raise Unreadable(target.id, result.complaint)
        found = list(_roots(roots).values())
        yield FolderView(runner, found[0]) if found else None
    finally:
        if folder.startswith("/"):
            await runner.run(("rm", "-rf", folder), within=60)


async def _call(runner: Runner, function: str, *words: str, within: float = 30) -> Result:
    library = resources.files("bascule.probe.views").joinpath("container.sh").read_text()
    return await runner.run(("sh", "-s", "--", function, *words), stdin=library, within=within)
