"""What must hold on the nodes before anything is started: pure checks over facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from bascule.core.nouns import Evidence, Fate, Finding, Node, Step

RUN_DIR_NEEDS = 64 * 1024 * 1024  # bytes, for logs and run folders


@dataclass(frozen=True, slots=True)
class Listener:
    """A TCP port somebody listens on."""

    address: str  # 0.0.0.0 and :: mean every address
    port: int
    pid: int | None
    owner: str  # command and user as far as they can be seen


def run_folder_has_space(node: Node, at: datetime) -> Finding | None:
    """Logs have room under the run folder."""
    free = node.facts.run_dir_free_bytes
    if free is None or free >= RUN_DIR_NEEDS:
        return None
    seen = Evidence(node.name, f"df {node.facts.run_dir}", at, f"{free} bytes free")
    return Finding(
        Step.PREFLIGHT,
        Fate.CLUSTER,
        "disk-full",
        f"the disk under {node.facts.run_dir} on {node.name} has {free // 1024} KiB left",
        (seen,),
        advice=f"free some space there, or give {node.name} another `run_dir`",
    )


def gpus_are_there(node: Node, at: datetime) -> Finding | None:
    """The GPUs that the recipe gives a node are in its machine; nothing is said where they could not be read."""
    if node.gpus is None or node.facts.gpus is None:
        return None
    missing = sorted(set(node.gpus) - {gpu.index for gpu in node.facts.gpus})
    if not missing:
        return None
    there = ", ".join(f"{gpu.index} {gpu.name}" for gpu in node.facts.gpus) or "none of these"
    return Finding(
        Step.PREFLIGHT,
        Fate.CLUSTER,
        "gpu-missing",
        f"{node.name} has no GPU {', '.join(map(str, missing))}",
        (Evidence(node.name, "nvidia-smi", at, f"asked for {', '.join(map(str, node.gpus))}: {there}"),),
        advice=f"`nvidia-smi -L` there lists them; mend `gpus` of {node.name} in the recipe",
    )


def ports_are_free(
    head: Node, address: str, ports: Sequence[tuple[str, int]], listening: Iterable[Listener], at: datetime
) -> Finding | None:
    """Nobody on the head listens where the service or the rendezvous will; ports are (recipe key, number)."""
    for key, port in ports:
        for listener in listening:
            if listener.port == port and _clashes(listener.address, address):
                return _taken(head, key, listener, at)
    return None


def _clashes(theirs: str, ours: str) -> bool:
    return theirs in ("0.0.0.0", "::", ours)


def _taken(head: Node, key: str, listener: Listener, at: datetime) -> Finding:
    """Every candidate answers on the API's port, but only those on several nodes meet at the rendezvous."""
    meeting = key == "rendezvous_port"
    code = "rendezvous-port-taken" if meeting else "api-port-taken"
    fate = Fate.HOPELESS if meeting else Fate.CLUSTER
    who = f"{listener.owner} (pid {listener.pid})" if listener.pid else (listener.owner or "a process of another user")
    seen = Evidence(head.name, "/proc/net/tcp", at, f"LISTEN {listener.address}:{listener.port} {who}")
    return Finding(
        Step.PREFLIGHT,
        fate,
        code,
        f"port {listener.port} on {head.name} is held by {who}",
        (seen,),
        advice=f"stop that process, or choose another `{key}`",
        scope="candidate",
    )
