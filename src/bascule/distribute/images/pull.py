"""An image that no node has is pulled by one of them from its registry; the others get it from there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources

from bascule.core.nouns import Evidence, Fate, Finding, Node, Step
from bascule.core.reading import Unreadable
from bascule.distribute.images.troubles import of_helper
from bascule.registry.access import Access
from bascule.registry.aside import aside
from bascule.registry.image import RemoteImage, fetch
from bascule.registry.oci import asked_for, reference_of
from bascule.registry.repository import Repository
from bascule.remote.runner import Result, Runner

EVERY = 2.0  # seconds between two looks
WITHIN = 6 * 3600.0  # seconds; 30 GB at 1.5 MB/s
# Bytes on disk for each one that travels: packed and unpacked side by side; gzip packs layers of engines to 0.46.
ROOM = 3.2


@dataclass(frozen=True, slots=True)
class Sign:
    """What docker or podman says when a pull fails, and the row of troubles.toml that it means."""

    id: str
    words: str = ""


# The first that matches counts.
_SIGNS = (
    Sign("pull-disk-full", r"no space left"),
    Sign("pull-busy", r"toomanyrequests|429 Too Many"),
    Sign("pull-architecture", r"no matching manifest|no image found in (manifest list|image index)"),
    Sign("pull-denied", r"unauthorized|authentication required|access to the resource is denied|denied:|403"),
    Sign("pull-missing", r"manifest unknown|not found|name unknown|404"),
    Sign(
        "pull-unreachable",
        r"no such host|dial tcp|i/o timeout|connection refused|deadline|Temporary failure|TLS handshake|unreachable",
    ),
    Sign("pull-failed"),
)
FAILED = _SIGNS[-1]


@dataclass(frozen=True, slots=True)
class Pull:
    """What is pulled where, for the journal."""

    target: str
    phase: str
    done: int  # layers
    total: int
    rate: float = 0.0


def is_pullable(ref: str) -> bool:
    """Whether a name can be one of a registry, and not just the id of an image."""
    if re.fullmatch(r"(sha256:)?[0-9a-f]{12,64}", ref):
        return False
    try:
        reference_of(ref)
    except Unreadable:
        return False
    return True


async def pull(
    ref: str, node: Node, runner: Runner, report: Callable[[Pull], None], access: Access | None = None
) -> Finding | None:
    """Pull it on this node; None when the node has it then under this name. Raises NodeUnreachable."""
    assert node.facts.docker is not None
    name, docker = asked_for(ref), " ".join(node.facts.docker.command)
    size = await _size(name, node, access or Access())
    if size is not None and (small := await too_small(name, node, runner, size)):
        return small
    began = await _call(runner, "begin", docker, name)
    folder = began.text.strip()
    if not folder.startswith("/"):
        return of_helper(FAILED.id, began.complaint, node.name, name, datetime.now(UTC))
    try:
        status, log = await _wait(runner, folder, node.name, report)
    finally:
        await asyncio.shield(_call(runner, "finish", folder))
    if status:
        return of_helper(sign_of(log).id, _last_line(log), node.name, name, datetime.now(UTC))
    if name != ref:
        tagged = await runner.run((*node.facts.docker.command, "tag", name, ref))
        if not tagged.ok:
            return of_helper(FAILED.id, tagged.complaint, node.name, name, datetime.now(UTC))
    return None


def layers_of(log: str) -> tuple[int, int]:
    """Layers that are there and all that docker named, from its lines without a terminal."""
    named = set(re.findall(r"^([0-9a-f]{12}): ", log, re.MULTILINE))
    done = set(re.findall(r"^([0-9a-f]{12}): (?:Pull complete|Already exists)", log, re.MULTILINE))
    return len(done), len(named)


def sign_of(log: str) -> Sign:
    """What a pull that failed has printed means."""
    return next(sign for sign in _SIGNS if re.search(sign.words, log, re.IGNORECASE))


async def described(name: str, node: Node, access: Access) -> RemoteImage:
    """What the registry says of the image that this node would pull. Raises Unreadable."""
    docker = node.facts.docker
    return await aside(fetch, Repository(reference_of(name), access), f"linux/{docker.arch}" if docker else "")


async def _size(name: str, node: Node, access: Access) -> int | None:
    """Bytes that travel; None: the registry did not tell."""
    try:
        return (await described(name, node, access)).size
    except Unreadable:
        return None


async def too_small(name: str, node: Node, runner: Runner, size: int) -> Finding | None:
    """A finding when the disk has no room to pull so many bytes; what can't be told is not taken for too small."""
    assert node.facts.docker is not None
    told = await _call(runner, "room", node.facts.docker.root or "/var/lib/docker")
    free = int(told.text) if told.text.strip().isdecimal() else None
    need = int(size * ROOM)
    if free is None or need <= free:
        return None
    says = f"{node.name} has {free / 1e9:.2f} GB free and needs {need / 1e9:.2f} GB to pull {name}"
    seen = f"{size / 1e9:.2f} GB travel, packed and unpacked side by side; df {node.facts.docker.root}: {free} bytes"
    evidence = (Evidence(node.name, "manifest of the registry, df", datetime.now(UTC), seen),)
    advice = f"make room on {node.name}, as with docker image prune"
    return Finding(Step.DISTRIBUTE, Fate.CLUSTER, "image-no-room", says, evidence, advice=advice)


async def _wait(runner: Runner, folder: str, node: str, report: Callable[[Pull], None]) -> tuple[int, str]:
    """The status and the log's end, once it has ended."""
    log = ""
    for _ in range(int(WITHIN / EVERY)):
        seen = await _call(runner, "look", folder)
        status, _, log = seen.text.partition("\n")
        if status.strip().isdecimal():
            return int(status), log
        report(Pull(node, "pull", *layers_of(log)))
        await asyncio.sleep(EVERY)
    return 124, f"{log}\ntook more than {WITHIN:.0f} s"


def _last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "docker pull printed nothing"


async def _call(runner: Runner, *words: str) -> Result:
    library = resources.files("bascule.distribute.images").joinpath("pull.sh").read_text()
    return await runner.run(("sh", "-s", "--", *words), stdin=library, within=60)
