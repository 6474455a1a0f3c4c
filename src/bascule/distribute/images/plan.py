"""Who gets what, from whom and how, as frozen values with their reasons; decided from facts alone (pure)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bascule.distribute.images.content import difference
from bascule.distribute.images.inventory import Inventory, Link, Room

Method = Literal["nothing", "load", "pull", "stream"]
Mode = Literal["graph", "content", "save"]

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}  # uname -> image
AT_ONCE = 3  # layers that docker downloads at once; each lies in its tmp folder until it is unpacked
ONE_CHAIN = 8  # targets; more are divided into two chains
ALIKE = 0.5  # of the best rate: targets that reach it stand before slower ones in a chain
CORES_OF_A_PULL = 2  # that a pull keeps busy: it unpacks one layer while it checks the next ones
WORTHWHILE = 1.3  # times that compression must speed a link up


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no byte is sent to a target."""

    code: str
    says: str
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens for one target."""

    target: str
    method: Method
    missing: tuple[int, ...]  # indexes of the layers that travel, bottom first
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as it travels."""

    digest: str
    size: int  # bytes
    media: str


def refuse(image: str, source: Inventory, name: str, target: Inventory) -> Refusal | None:
    """Why this target can't have the image, or None."""
    assert source.wanted is not None
    if not target.docker:
        return no_docker(name, target)
    ours = ARCHITECTURES.get(target.arch, target.arch)
    if (source.wanted.os, source.wanted.architecture) != ("linux", ours):
        made = f"{source.wanted.os}/{source.wanted.architecture}"
        says = f"{image} is made for {made}, and {name} is {target.arch}"
        return Refusal("image-architecture", says, f"{made} against {target.arch}", f"find the image for linux/{ours}")
    return None


def no_docker(name: str, node: Inventory) -> Refusal:
    """Docker is not there, or not for this user."""
    if "permission denied" in node.docker_said.lower():
        advice = f"as root on {name}: usermod -aG docker {node.user}"
        return Refusal("docker-denied", f"{node.user} may not use docker on {name}", node.docker_said, advice)
    advice = f"start or install docker on {name}"
    return Refusal("docker-missing", f"{name} has no docker that answers", node.docker_said, advice)


def source_mode(source: Inventory, distrust: bool = False) -> tuple[Mode, str]:
    """How the source's layers are read; distrust when what lies in its folders turned out to be damaged."""
    if source.root and not distrust:
        if source.store == "overlay2":
            return "graph", "the layers are read from overlay2, without a copy on the source's disk"
        if source.store == "containerd":
            return "content", "the layers are read from containerd's content store"
    why = "its folders gave wrong bytes" if distrust else "root is not to be had on the source"
    return "save", f"docker save writes the image to the source's disk first: {why}"


def step(source: Inventory, name: str, target: Inventory, *, hollow: bool = False, neighbours: int = 1) -> Step:
    """The method for one target that is not refused; hollow when a pull left it without the bytes of shared layers.

    `neighbours` is how many targets, itself included, run on its kernel. A load computes less than a pull, which
    hashes each layer twice (12 against 19 CPU seconds for 1.2 GB with docker 20.10), but can't begin to unpack before
    all has come.
    """
    wanted = source.wanted
    assert wanted is not None
    everything = tuple(range(len(wanted.diff_ids)))
    there = shared_layers(wanted.diff_ids, target)
    lower = f"it has the lower {there} of {len(everything)} layers"
    missing = everything[there:]
    method: Method = "pull"
    if target.wanted and not difference(wanted, target.wanted):
        method, missing, why = "nothing", (), "it has the same layers and config"
    elif not source.helper or not target.helper:
        which = name if source.helper else "the source"
        why = f"python3 (3.9 or newer) is missing on {which}: docker save is piped into docker load"
        method, missing = "stream", everything
    elif hollow:
        method, missing = "load", everything
        why = "its containerd keeps shared layers only in packed form: all of them are loaded"
    elif target.store == "containerd":
        why = f"{lower} in containerd, whose pull skips them"
    elif there:
        method, why = "load", f"{lower}: docker load of the others alone"
    elif target.rootless:
        method, why = "load", "its docker is rootless: it can't pull from 127.0.0.1"
    elif neighbours > 1 and target.cores < CORES_OF_A_PULL * neighbours:
        method, why = "load", f"{neighbours} targets share {target.cores} cores: a load computes less than a pull"
    else:
        why = "it has no layer of it: a pull unpacks while the layers come"
    return Step(name, method, missing, (why,))


def shared_layers(diff_ids: Sequence[str], target: Inventory) -> int:
    """How many of the lowest of these layers an image of the target has as well."""
    return max((_common(diff_ids, chain) for chain in target.chains), default=0)


def docker_checks(method: Method, target: Inventory) -> bool:
    """Whether docker compares each layer with the digest in the config itself, so that we need not hash it before.

    `docker load` with overlay2 does ("invalid diffID for layer"); containerd's unpacks what it gets.
    """
    return method == "load" and target.store == "overlay2"


def lacks_room(name: str, target: Inventory, method: Method, sizes: Sequence[int]) -> Refusal | None:
    """Why the disk is too small, with numbers, or None. A room that could not be read is not taken for too small."""
    missing = sum(sizes)
    beside = missing if method == "load" or target.store == "containerd" else sum(sorted(sizes)[-AT_ONCE:])
    asked: dict[str, tuple[Room, int, list[str]]] = {}
    for what, room, size in (
        (f"docker in {target.root_dir}", target.root_room, missing + beside),
        (f"the spool {target.spool}", target.spool_room, missing if method != "stream" else 0),
    ):
        if room is not None:
            _, before, whats = asked.get(room.device, (room, 0, []))
            asked[room.device] = (room, before + size, [*whats, f"{size / 1e9:.2f} GB for {what}"])
    for room, need, whats in asked.values():
        if need > room.free:
            says = f"{name} has {room.free / 1e9:.2f} GB free and needs {need / 1e9:.2f} GB for the copy"
            return Refusal("image-no-room", says, ", ".join(whats), f"make room on {name}, as with docker image prune")
    return None


def serving_link(own: Sequence[Link], others: Sequence[Sequence[Link]], preferred: str | None) -> Link | None:
    """Where a node serves the others: the address it is known for, else the fastest network that most of them share."""
    usable = [link for link in own if link.kind not in ("lo", "bridge")]
    rank = {
        link: (
            link.ip == preferred,
            sum(any(_same_network(link, each) for each in links) for links in others),
            link.speed,
            link.kind == "real",
        )
        for link in usable
    }
    return max(usable, key=lambda link: rank[link], default=None)


def chain(rates: Mapping[str, float], bytes_missing: Mapping[str, int]) -> tuple[str, ...]:
    """The order of a chain: slow links last, and among alike ones who lacks more first, since it can pass more on."""
    best = max(rates.values(), default=0.0)
    return tuple(sorted(rates, key=lambda name: (rates[name] < ALIKE * best, -bytes_missing[name], name)))


def above(order: Sequence[str], name: str) -> tuple[str, ...]:
    """The targets that this one asks, nearest first; after them comes the source."""
    at = order.index(name)
    stride = 1 if len(order) <= ONE_CHAIN else 2
    return tuple(reversed(order[at % stride : at : stride]))


def codec(link: float, measured: Mapping[str, tuple[float, float]], both: Sequence[str], cores: int) -> tuple[str, str]:
    """Which compression for a link of so many bytes a second, and why; "" is none.

    Docker unpacks with one or two cores meanwhile; with fewer than four, packing takes what unpacking needs.
    """
    gains = {}
    for name in both:
        if name in measured:
            speed, left = measured[name]
            gains[name] = min(speed, link / left) / link if left < 1 else 0.0
    best = max(gains, key=lambda name: gains[name], default="")
    rate = f"the link gives {link / 1e6:.0f} MB/s"
    if not best or gains[best] < WORTHWHILE:
        return "", f"{rate}: compression would not speed it up"
    if cores < 4 and link > 30e6:
        return "", f"{rate}, and {cores} cores are needed for unpacking: no compression"
    return best, f"{rate}: {best} makes it {gains[best]:.1f} times as fast"


def _common(wanted: Sequence[str], chain_there: Sequence[str]) -> int:
    """Length of the common beginning."""
    count = 0
    for one, other in zip(wanted, chain_there, strict=False):
        if one != other:
            break
        count += 1
    return count


def _same_network(one: Link, other: Link) -> bool:
    network = ipaddress.ip_network(f"{one.ip}/{one.prefix}", strict=False)
    return one.prefix < 32 and other.kind not in ("lo", "bridge") and ipaddress.ip_address(other.ip) in network
