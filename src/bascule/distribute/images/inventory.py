"""What each end of a copy is read for: one script, and a pure parser of what it printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from bascule.distribute.images.content import Content, name_of, parse_content
from bascule.remote.runner import Runner

WITHIN = 60  # seconds

Store = Literal["overlay2", "containerd", "other"]


@dataclass(frozen=True, slots=True)
class Room:
    """Free bytes, and which file system they are on."""

    device: str
    free: int


@dataclass(frozen=True, slots=True)
class Link:
    """An IPv4 address of a node with what is known of its interface."""

    interface: str
    ip: str
    prefix: int
    speed: int = -1  # Mbit/s, as the kernel says; -1 when it doesn't
    kind: str = "real"  # lo, bridge, default (carries the default route), real


@dataclass(frozen=True, slots=True)
class Inventory:
    """One node's facts for a copy."""

    docker: tuple[str, ...] = ()  # words that reach it; () when nothing does
    docker_said: str = ""  # why nothing does
    user: str = ""
    root: str = ""  # "root", "sudo", or "" when root is not to be had
    arch: str = ""  # as uname -m
    boot: str = ""  # equal for nodes that share one kernel, and so its cores
    cores: int = 0  # 0: not known
    python: tuple[int, int] | None = None
    spool: str = ""
    spool_room: Room | None = None
    root_dir: str = ""
    root_room: Room | None = None
    version: str = ""  # of the engine
    store: Store = "other"
    rootless: bool = False
    links: tuple[Link, ...] = ()
    wanted: Content | None = None  # the image in question; None when it is not there
    chains: tuple[tuple[str, ...], ...] = field(default=())  # diff ids of every image there

    @property
    def helper(self) -> bool:
        """True when the helper can run there."""
        return self.python is not None and self.python >= (3, 9)


def script() -> str:
    """What is run on a node, with the image as its argument."""
    return resources.files("bascule.distribute.images").joinpath("inventory.sh").read_text()


async def take(runner: Runner, image: str) -> Inventory:
    """One node's inventory; an image by digest is also found under the name that a copy of it has.

    Raises NodeUnreachable.
    """
    result = await runner.run(("sh", "-s", "--", image, name_of(image)), stdin=script(), within=WITHIN)
    return parse(result.text)


def parse(text: str) -> Inventory:
    """The inventory that the script printed."""
    said = _sections(text)
    info = _json(said.get("info", ""))
    store = _store(info)
    wanted = _json(said.get("wanted", ""))
    return Inventory(
        docker=tuple(said.get("docker", "").split()),
        docker_said=said.get("said", ""),
        user=said.get("user", ""),
        root=said.get("root", ""),
        arch=said.get("arch", ""),
        boot=said.get("boot", ""),
        cores=int(said.get("cores", "") or 0),
        python=_version(said.get("python", "")),
        spool=said.get("spool", ""),
        spool_room=_room(said.get("spool_free", "")),
        root_dir=str(info.get("DockerRootDir", "")),
        root_room=_room(said.get("root_free", "")),
        version=str(info.get("ServerVersion", "")),
        store=store,
        rootless=any("rootless" in str(option) for option in info.get("SecurityOptions") or ()),
        links=tuple(_each(said.get("links", ""), _link)),
        wanted=parse_content(wanted, by_config=store != "containerd") if wanted else None,
        chains=tuple(tuple(json.loads(line) or ()) for line in said.get("images", "").splitlines() if line[:1] == "["),
    )


def _sections(text: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("=== "):
            current = found.setdefault(line.removeprefix("=== ").strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text.splitlines()[0])
    except (ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def _store(info: dict[str, Any]) -> Store:
    if any("io.containerd.snapshotter" in str(row) for row in info.get("DriverStatus") or ()):
        return "containerd"
    return "overlay2" if info.get("Driver") == "overlay2" else "other"


def _version(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def _room(text: str) -> Room | None:
    """A device number, then the last line of `df -Pk`."""
    lines = text.splitlines()
    found = re.search(r"\s\d+\s+\d+\s+(\d+)\s+\d+%\s", lines[-1]) if len(lines) == 2 else None
    return Room(lines[0].strip(), int(found[1]) * 1024) if found else None


def _link(line: str) -> Link:
    name, address, speed, kind = line.split()
    ip, _, prefix = address.partition("/")
    return Link(name, ip, int(prefix or 32), int(speed), kind)


def _each(text: str, parse_line: Callable[[str], Link]) -> list[Link]:
    return [parse_line(line) for line in text.splitlines() if line.strip()]
