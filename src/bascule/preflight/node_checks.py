"""What a person should know of the nodes before anything is started: pure checks over their facts, each a Notice."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from bascule.core.machine import Disk
from bascule.core.notices import Notice
from bascule.core.nouns import Evidence, Fate, Finding, Node, Step

CLOCK_MAY_BE_OFF = 2.0  # seconds; logs of several ranks are merged by time
FEW_GPU_BYTES = 1024**3  # a desktop session holds less
# NCCL registers its buffers, NCCL_BUFFSIZE (4 MiB) and less for each channel and peer: some hundred MiB in all.
LOCKED_ENOUGH = 1024**3
PYTHON_NEEDED = (3, 9)  # by the helpers that are sent to nodes
Needs = Mapping[str, Mapping[str, int]]  # node -> place (docker, cache, run) -> bytes that it must still take in
_GB, _GIB, _MIB = 1e9, 2**30, 2**20
_GPU_WORDS = {
    "gpus": "the GPUs",
    "gpus.sm": "the compute capability",
    "driver": "the NVIDIA driver",
    "cuda": "the CUDA version",
    "gpu_processes": "the GPU processes",
}
_MATTER = ("addresses", "interfaces", "memory_free_bytes", "disks", "disks.docker", "disks.cache", "rdma", "memlock")


def node_checks(nodes: Sequence[Node], needs: Needs, at: datetime) -> list[Notice]:
    """Everything to know, node by node, then what is about several of them."""
    found = [notice for node in nodes for check in _CHECKS if (notice := check(node, at))]
    rooms = [notice for node in nodes for notice in room(node, needs.get(node.name, {}), at)]
    several = [notice for node in nodes if (notice := own_name_is_loopback(node, at))] if len(nodes) > 1 else []
    differ = stores_differ(nodes, at)
    return [*rooms, *found, *several, *([differ] if differ else [])]


def blocker(notices: Sequence[Notice]) -> Finding | None:
    """The first notice that keeps every candidate from starting, as the finding of the preflight."""
    for one in notices:
        if one.weight == "blocker":
            return Finding(Step.PREFLIGHT, Fate.CLUSTER, one.code, one.says, one.evidence, advice=one.advice)
    return None


def room(node: Node, needs: Mapping[str, int], at: datetime) -> Iterator[Notice]:
    """What is still to come fits on the disks; places on one volume share what is free there."""
    disks = {disk.what: disk for disk in node.facts.disks or ()}
    for volume in dict.fromkeys(disk.volume for what, disk in disks.items() if what in needs):
        shared = [disk for what, disk in disks.items() if disk.volume == volume and what in needs]
        wanted, free = sum(needs[disk.what] for disk in shared), min(disk.free_bytes for disk in shared)
        if wanted > free:
            yield _too_small(node, shared, wanted, at)


def clock_is_off(node: Node, at: datetime) -> Notice | None:
    """Its clock and ours differ by more than logs can be merged with."""
    offset, error = node.facts.clock_offset_s, node.facts.clock_error_s
    if offset is None or error is None or abs(offset) - error <= CLOCK_MAY_BE_OFF:
        return None
    seen = Evidence(node.name, "date", at, f"{offset:+.3f} s, give or take {error:.3f} s")
    way = "ahead of" if offset > 0 else "behind"
    return Notice(
        node.name,
        "clock-off",
        f"the clock of {node.name} is {_seconds(abs(offset))} {way} this machine's",
        (seen,),
        advice=f"switch on its time synchronization (timedatectl set-ntp true on {node.name})",
    )


def own_name_is_loopback(node: Node, at: datetime) -> Notice | None:
    """Programs that tell their peers what their own name resolves to would tell an address that leads nowhere."""
    ip = node.facts.own_name_ip
    if not ip or not ipaddress.ip_address(ip).is_loopback:
        return None
    return Notice(
        node.name,
        "own-name-loopback",
        f"{node.name} resolves its own name to {ip} (Gloo would use it; bascule sets GLOO_SOCKET_IFNAME)",
        (Evidence(node.name, f"getent ahostsv4 {node.facts.hostname or ''}".strip(), at, ip),),
        advice=f"for other programs: take its name from the line of {ip} in /etc/hosts of {node.name}",
    )


def memory_can_be_locked(node: Node, at: datetime) -> Notice | None:
    """RDMA registers memory, which the limit on locked memory must allow: `ulimit -l` for processes, dockerd's for
    containers.
    """
    facts = node.facts
    if not any(port.active for port in facts.rdma or ()):
        return None
    limit = facts.user_memlock_bytes
    low = [f"ulimit -l is {limit // 1024} KiB"] if limit is not None and 0 <= limit < LOCKED_ENOUGH else []
    low += ["containers can't lift it"] if facts.docker and facts.memlock is False else []
    if not low:
        return None
    return Notice(
        node.name,
        "memlock-low",
        f"{node.name} has RDMA ports, and memory that may be locked is limited: {', '.join(low)}",
        (Evidence(node.name, "ulimit -l, /proc/PID/limits", at, "; ".join(low)),),
        advice=f"on {node.name}: memlock unlimited in /etc/security/limits.d, LimitMEMLOCK=infinity for docker.service",
    )


def docker_is_usable(node: Node, at: datetime) -> Notice | None:
    """Images need docker or podman; without either, engines in Python environments still run."""
    why = node.facts.unknown.get("docker.denied" if node.facts.docker else "docker")
    if why is None:
        return None
    seen = (Evidence(node.name, "docker info, sudo -n docker info, podman info", at, why),)
    if "permission denied" in why.lower():
        instead = f"; {' '.join(node.facts.docker.command)} is used in its place" if node.facts.docker else ""
        says, advice = f"the SSH user may not use docker on {node.name}{instead}", "usermod -aG docker USER"
        return Notice(node.name, "docker-denied", says, seen, advice=f"as root on {node.name}: {advice}")
    if all("not installed" in part for part in why.split("; ")):
        says = f"{node.name} has neither docker nor podman: it runs no images"
        return Notice(
            node.name, "docker-missing", says, seen, weight="note", advice=f"install docker or podman on {node.name}"
        )
    return Notice(
        node.name, "docker-silent", f"docker on {node.name} does not answer", seen, advice=f"start it on {node.name}"
    )


def containers_get_gpus(node: Node, at: datetime) -> Notice | None:
    """With GPUs and docker, but without NVIDIA's container toolkit, `--gpus all` fails."""
    docker = node.facts.docker
    if not (docker and node.facts.gpus and docker.nvidia is False):
        return None
    looked = "docker info (Runtimes), nvidia-container-runtime-hook, /etc/cdi"
    return Notice(
        node.name,
        "no-nvidia-runtime",
        f"{' '.join(docker.command)} on {node.name} can't give its GPUs to containers",
        (Evidence(node.name, looked, at, "none of them is there"),),
        advice=f"on {node.name}: install nvidia-container-toolkit, nvidia-ctk runtime configure, restart docker",
    )


def gpus_are_whole(node: Node, at: datetime) -> Notice | None:
    """A GPU that is cut into MIG instances is told; ranks take whole GPUs."""
    cut = [gpu for gpu in node.facts.gpus or () if gpu.mig]
    if not cut:
        return None
    numbers = ", ".join(str(gpu.index) for gpu in cut)
    return Notice(
        node.name,
        "mig-on",
        f"GPU {numbers} of {node.name} is cut into instances (MIG)",
        (Evidence(node.name, "nvidia-smi --query-gpu=mig.mode.current", at, f"Enabled: {numbers}"),),
        weight="note",
        advice=f"nvidia-smi -i {numbers.replace(' ', '')} -mig 0 on {node.name} makes it whole again",
    )


def gpus_are_free(node: Node, at: datetime) -> Notice | None:
    """Memory that processes of others hold is missing to the ranks."""
    foreign = node.facts.foreign_processes
    if not foreign:
        return None
    held = sum(one.memory_bytes or 0 for one in foreign)
    told = [f"{one.name} (pid {one.pid}{_held(one.memory_bytes)})" for one in foreign]
    much = held >= FEW_GPU_BYTES or any(one.memory_bytes is None for one in foreign)
    unsure = "" if all(one.rank == "" for one in foreign) else " (whose they are can't be told for all)"
    return Notice(
        node.name,
        "gpu-in-use",
        f"GPU memory of {node.name} is held by {', '.join(told[:4])}{' …' if told[4:] else ''}{unsure}",
        (Evidence(node.name, "nvidia-smi --query-compute-apps", at, "; ".join(told)),),
        weight="warning" if much else "note",
        advice=f"end them, or give the engine less of the GPU on {node.name}",
    )


def gpus_are_read(node: Node, at: datetime) -> Notice | None:
    """What of the GPUs could not be read is not known; it is no sign that there are none."""
    unread = _unread(node, tuple(_GPU_WORDS))
    if not unread:
        return None
    what = "the GPUs" if "gpus" in unread else ", ".join(_GPU_WORDS[name] for name in unread)
    return Notice(
        node.name,
        "gpu-unread",
        f"{what} of {node.name} could not be read: {next(iter(unread.values()))}",
        (Evidence(node.name, "nvidia-smi", at, _reasons(unread)),),
        weight="unknown",
        advice=f"nvidia-smi must work on {node.name}",
    )


def facts_are_read(node: Node, at: datetime) -> Notice | None:
    """Facts that choices rest on, and that the node did not give."""
    unread = _unread(node, (*_MATTER, "clock_offset_s", "own_name_ip"))
    if not unread:
        return None
    says = f"{', '.join(unread)} could not be read on {node.name}"
    return Notice(
        node.name,
        "facts-unread",
        says,
        (Evidence(node.name, "the script of facts", at, _reasons(unread)),),
        weight="unknown",
    )


def python_is_there(node: Node, at: datetime) -> Notice | None:
    """Copies are made by helpers that python3 runs on the node; nothing else needs it."""
    version = node.facts.python3
    if version is None or _version(version) >= PYTHON_NEEDED:
        return None
    needed = ".".join(map(str, PYTHON_NEEDED))
    says = f"{node.name} has python3 {version}" if version else f"{node.name} has no python3"
    return Notice(
        node.name,
        "python3-missing",
        f"{says}: weights are not copied to it, and links are not proven by it",
        (Evidence(node.name, "python3 -V", at, version or "not installed"),),
        weight="note",
        advice=f"install Python {needed} or newer on {node.name}",
    )


def stores_differ(nodes: Sequence[Node], at: datetime) -> Notice | None:
    """Docker's stores name one image differently; it is compared by its contents then."""
    stores = {node.name: node.facts.docker.store for node in nodes if node.facts.docker}
    if len(set(stores.values())) < 2:
        return None
    told = {store: [name for name, one in stores.items() if one == store] for store in dict.fromkeys(stores.values())}
    says = "; ".join(f"{store} on {', '.join(names)}" for store, names in told.items())
    seen = tuple(Evidence(name, "docker info", at, store) for name, store in stores.items())
    return Notice("", "stores-differ", f"docker keeps images differently: {says}; ids will differ", seen, weight="note")


_CHECKS: tuple[Callable[[Node, datetime], Notice | None], ...] = (
    clock_is_off,
    memory_can_be_locked,
    docker_is_usable,
    containers_get_gpus,
    gpus_are_whole,
    gpus_are_free,
    gpus_are_read,
    facts_are_read,
    python_is_there,
)


def _too_small(node: Node, shared: Sequence[Disk], wanted: int, at: datetime) -> Notice:
    places = ", ".join(disk.path for disk in shared)
    free = min(disk.free_bytes for disk in shared)
    seen = tuple(
        Evidence(node.name, f"df {disk.path}", at, f"{disk.free_bytes} bytes free on {disk.mount}") for disk in shared
    )
    return Notice(
        node.name,
        "disk-too-small",
        f"{_gb(wanted)} are still to come to {places} on {node.name}, and {_gb(free)} are free there",
        seen,
        weight="blocker",
        advice=f"free {_gb(wanted - free)} there",
    )


def _gb(size: int) -> str:
    return f"{size / _GB:.0f} GB" if size >= 10 * _GB else f"{size / _GB:.2g} GB"


def _unread(node: Node, names: Sequence[str]) -> dict[str, str]:
    return {name: node.facts.unknown[name] for name in names if name in node.facts.unknown}


def _reasons(unread: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in unread.items())


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"


def _held(held: int | None) -> str:
    if held is None:
        return ""
    return f", {held / _GIB:.1f} GiB" if held >= _GIB else f", {held / _MIB:.0f} MiB"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
