"""What can be probed: an environment, wheels, an archive, an image or a container on a node, an image in a registry."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from bascule.core.nouns import Candidate, Fate, Finding, Model, Node
from bascule.core.reading import Spot, Unreadable
from bascule.errors import ProbeError
from bascule.probe.gather import finding, look_in
from bascule.probe.image import report_on
from bascule.probe.readers import READERS
from bascule.probe.verdict import IMAGE_ARCHITECTURE, Judgement, Question, Report, Word, all_alike, missing, undecided
from bascule.probe.views.archive import open_archive
from bascule.probe.views.base import View
from bascule.probe.views.container import NoSuchTarget, Target, describe, find
from bascule.probe.views.folder import open_folder
from bascule.probe.views.registry import RegistryView, open_registry
from bascule.probe.views.wheel import open_wheel, wheels_in
from bascule.registry.access import Access
from bascule.registry.oci import ImageFacts, asked_for
from bascule.registry.troubles import RegistryTrouble
from bascule.remote.runner import Runner

KINDS = ("venv", "wheel", "archive", "image", "container", "registry")
MOST_LAYER = 128 << 20  # bytes of a layer that is read without being asked for
FOLDERS = tuple(reader.folder for reader in READERS.values())


class Probed(Protocol):
    """Something with an engine in it."""

    name: str

    @property
    def bytes_read(self) -> int:
        """What came from it so far."""
        ...

    async def engines(self) -> tuple[str, ...]:
        """The engines in it, by their names here. Raises Unreadable."""
        ...

    async def report(self, question: Question) -> Report:
        """What it says to a question. Raises Unreadable."""
        ...


@dataclass
class Files:
    """An environment, or wheels: one view for every engine."""

    name: str
    view: View

    @property
    def bytes_read(self) -> int:
        """See Probed."""
        return self.view.bytes_read

    async def engines(self) -> tuple[str, ...]:
        """See Probed."""
        return engines_among(await self.view.find(*FOLDERS))

    async def report(self, question: Question) -> Report:
        """See Probed."""
        return await look_in(self.view, question)


@dataclass
class OnNode:
    """An image or a container on a node."""

    name: str
    target: Target
    runner: Runner
    platform: str = ""  # that is asked for; "" = whatever it is
    bytes_read: int = 0

    async def engines(self) -> tuple[str, ...]:
        """See Probed; where nothing is in the usual places, each engine is looked for everywhere."""
        found = await find(self.runner, self.target, FOLDERS)
        self.target = replace(self.target, roots=found)
        return engines_among(found)

    async def report(self, question: Question) -> Report:
        """See Probed."""
        if refusal := other_platform(self.name, self.target.platform, self.platform):
            return all_alike(question, refusal)
        return await report_on(self.target, question, self.runner, self._count)

    def _count(self, size: int) -> None:
        self.bytes_read += size


@dataclass
class Layered:
    """An image in a file or in a registry; its layers are read for one engine at a time."""

    name: str
    platform: str
    access: Access | None = None  # None: a file
    views: dict[str, View] = field(default_factory=dict)

    @property
    def bytes_read(self) -> int:
        """See Probed."""
        return sum(view.bytes_read for view in self.views.values())

    async def engines(self) -> tuple[str, ...]:
        """See Probed; an image in a registry is asked by its configuration alone, as long as that names one."""
        if self.access is not None:
            view = await self._view(FOLDERS[0])
            assert isinstance(view, RegistryView)
            if named := _named_in(self.name, view.facts):
                return named
        for engine, reader in READERS.items():
            view = await self._view(reader.folder)
            if await view.find(reader.folder):
                return (engine,)
        return ()

    async def report(self, question: Question) -> Report:
        """See Probed."""
        view = await self._view(READERS[question.candidate.engine].folder)
        facts: ImageFacts = view.facts  # type: ignore[attr-defined]
        if refusal := other_platform(self.name, facts.platform, self.platform):
            return all_alike(question, refusal)
        return await look_in(view, question)

    async def _view(self, folder: str) -> View:
        if folder not in self.views:
            self.views[folder] = await self._open(folder)
        return self.views[folder]

    async def _open(self, folder: str) -> View:
        if self.access is None:
            return await asyncio.to_thread(open_archive, self.name, folder, self.platform)
        return await open_registry(self.name, folder, self.platform or "linux/amd64", self.access)


async def open_target(
    text: str, node: Node, runner: Runner, platform: str = "", access: Access | None = None
) -> Probed:
    """What the words of a command line mean; `KIND:` before it says so, else it follows from what is there.

    Raises ProbeError when there is no such thing, Unreadable, NodeUnreachable.
    """
    kind, name = _kind_of(text, node)
    if kind in ("wheel", "archive") and not node.is_local:
        raise ProbeError("usage", f"{kind}: is read where bascule runs", seen=text, advice="leave --node out")
    if kind == "venv":
        return await _environment(name, node, runner)
    if kind == "wheel":
        path = Path(name).expanduser()
        return Files(name, await asyncio.to_thread(wheels_in if path.is_dir() else open_wheel, path))
    if kind == "archive":
        return Layered(str(Path(name).expanduser()), platform)
    if kind == "registry":
        return Layered(name, platform, access or Access())
    return await _image(kind, name, node, runner, (platform, access))


async def probe_registry(candidate: Candidate, model: Model, node: Node, now: Callable[[], datetime]) -> Finding:
    """Does the engine in an image that nobody has pulled know this model? UNKNOWN where reading it costs too much."""
    question = Question(candidate, model)
    docker = node.facts.docker
    platform = f"linux/{docker.arch}" if docker else ""
    target = Layered(asked_for(candidate.artefact.ref), platform, Access(most=MOST_LAYER))
    prefix = f"{candidate.artefact.ref} "
    try:
        return finding(await target.report(question), node.name, now(), prefix)
    except Unreadable as trouble:
        return unread(question, trouble, node.name, now(), prefix)


def unread(question: Question, trouble: Unreadable, node: str, seen_at: datetime, prefix: str) -> Finding:
    """The finding that an image could not be read: what the registry's trouble is called, and what cures it."""
    made = finding(all_alike(question, undecided(question, trouble.why, (trouble.spot,))), node, seen_at, prefix)
    if not isinstance(trouble, RegistryTrouble):
        return made
    fate = Fate.HOPELESS if trouble.hopeless else Fate.UNKNOWN
    return replace(made, fate=fate, code=trouble.code, advice=trouble.advice)


async def _environment(name: str, node: Node, runner: Runner) -> Probed:
    path = str(Path(name).expanduser()) if node.is_local else name
    view = await open_folder(runner, path)
    if view is None:
        raise ProbeError(
            "target-missing", f"there is no folder {name} on {node.name}", seen=f"ls {path}: no such folder"
        )
    return Files(name, view)


async def _image(kind: str, name: str, node: Node, runner: Runner, more: tuple[str, Access | None]) -> Probed:
    """An image or container that the node has; without a kind, an image that it lacks is looked for in its registry."""
    platform, access = more
    docker = node.facts.docker
    if docker is not None:
        try:
            return OnNode(name, await describe(runner, docker.command, name), runner, platform)
        except NoSuchTarget as absent:
            why = absent.why
    else:
        why = node.facts.unknown.get("docker", "docker was not asked")
    if kind:
        raise ProbeError("target-missing", f"{node.name} has no {kind} {name}", seen=why)
    if not re.fullmatch(r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?", name):
        raise ProbeError(
            "target-missing", f"there is no {name}", seen=why, advice=f"{', '.join(KINDS)}: say what it is"
        )
    arch = platform or (f"linux/{docker.arch}" if docker else "")
    return Layered(name, arch, access or Access())


def engines_among(folders: Container[str]) -> tuple[str, ...]:
    """The engines whose packages these are; transformers beside another one is not the engine."""
    found = tuple(name for name, reader in READERS.items() if reader.folder in folders)
    return tuple(name for name in found if name != "transformers") or found


def other_platform(name: str, made: str, asked: str) -> Judgement | None:
    """A no when the image is made for another processor; None when it isn't, or when nobody can tell."""
    if not asked or "/" not in made or made.split("/")[:2] == asked.split("/")[:2]:
        return None
    says = f"{name} is made for {made}, not for {asked}"
    return Judgement(Word.NO, says, (Spot("config of the image", None, made),), code=IMAGE_ARCHITECTURE)


def no_engine(question: Question, name: str) -> Report:
    """The report about something in which no engine was found."""
    seen = Spot(name, None, f"none of {', '.join(FOLDERS)}")
    return all_alike(question, missing(f"there is no engine in {name}", seen))


def _named_in(name: str, facts: ImageFacts) -> tuple[str, ...]:
    """Engines that a registry's name or an image's configuration mentions: which to look for, not what is there."""
    words = " ".join((name, *facts.entrypoint, *facts.env, *facts.labels.values(), *facts.history)).lower()
    return tuple(engine for engine in READERS if engine != "transformers" and engine in words)[:1]


def is_docker_asked(text: str, node: Node) -> bool:
    """True when it takes the docker of the node to tell what is meant: an image or a container."""
    return _kind_of(text, node)[0] in ("", "image", "container")


def _kind_of(text: str, node: Node) -> tuple[str, str]:
    """Its kind and its name; no kind where docker has to tell it."""
    kind, colon, rest = text.partition(":")
    if colon and kind in KINDS and rest:
        return kind, rest
    path = Path(text).expanduser()
    if node.is_local and path.exists():
        return _kind_of_path(path), text
    return "venv" if text.startswith(("/", "~", "./", "../")) else "", text


def _kind_of_path(path: Path) -> str:
    if path.is_dir():
        if (path / "index.json").is_file() and (path / "oci-layout").is_file():
            return "archive"
        return "wheel" if any(path.glob("*.whl")) else "venv"
    return "wheel" if path.suffix == ".whl" else "archive"
