"""Docker's and podman's words: pure builders of command lines, and parsers of what they print of containers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bascule.core.machine import NodeFacts
from bascule.core.nouns import RECENT, Glimpse, RankPlan, RankState

PREFIX = "bascule"  # of names and labels
FOLDER = "/run/bascule"  # in the container: files of the rank
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/sh")
_TIME = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8})\.[0-9]{9}(Z|[+-][0-9:]{5}) ")  # as both print it
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # uname -m -> as images name it


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image says of itself on one node."""

    id: str
    arch: str
    layers: tuple[str, ...]  # diff ids, bottom first
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    size: int | None = field(default=None, compare=False)  # bytes, as this node's store counts them


def run_words(plan: RankPlan, name: str, image: str, facts: NodeFacts, label: Mapping[str, str]) -> tuple[str, ...]:
    """`docker create` of a rank without its command: host network, no restart policy, never privileged."""
    options = [
        ("--name", f"{PREFIX}.{name}"),
        ("--network", "host"),
        ("--ipc", "host"),
        *(("--ulimit", "memlock=-1") for _ in range(facts.memlock is not False)),  # refused where dockerd may not
        ("--cap-add", "IPC_LOCK"),
        ("--restart", "no"),
        ("--log-driver", "json-file"),
        ("--log-opt", "max-size=64m"),
        ("--log-opt", "max-file=4"),
        *(("--device", "/dev/infiniband") for _ in range(bool(facts.infiniband))),
        *_gpu_options(plan, facts),
        *(("--volume", f"{path}:{path}:ro") for path in plan.mounts),
        *(("--label", f"{PREFIX}.{key}={value}") for key, value in label.items()),
        *(("--env", f"{key}={value}") for key, value in plan.env.items()),
    ]
    return ("create", *(word for option in options for word in option), image)


def _gpu_options(plan: RankPlan, facts: NodeFacts) -> list[tuple[str, str]]:
    """All GPUs, or those that the rank gets; the inner quotes are docker's, which reads the value as CSV.

    Podman takes one device of the Container Device Interface each (podman-run(1), --device).
    """
    if not facts.gpus:
        return []
    if plan.gpus is None:
        return [("--gpus", "all")]
    if facts.docker and facts.docker.command[-1] == "podman":
        return [("--device", f"nvidia.com/gpu={index}") for index in plan.gpus]
    return [("--gpus", f'"device={",".join(map(str, plan.gpus))}"')]


def command_words(entrypoint: Sequence[str], argv: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """How to start the engine in an image so that it is the first process: an entrypoint to set or None, and a command.

    A wrapper (a script that ends in `exec "$@"`, such as nvidia_entrypoint.sh) is kept, since it prepares the
    environment; a shell, or an entrypoint that is the engine itself, is replaced by the engine's whole command line.
    """
    if entrypoint and _is_wrapper(entrypoint):
        return None, tuple(argv)
    return argv[0], tuple(argv[1:])


def parse_image(text: str) -> ImageFacts:
    """The answer of `docker image inspect`. ValueError when it is none."""
    found = json.loads(text)[0]
    config = found.get("Config") or {}
    env = dict(pair.split("=", 1) for pair in config.get("Env") or [] if "=" in pair)
    layers = tuple((found.get("RootFS") or {}).get("Layers") or ())
    words, size = tuple(config.get("Entrypoint") or ()), found.get("Size")
    return ImageFacts(found["Id"], found.get("Architecture", ""), layers, words, env, size or None)


def parse_states(text: str, node: str) -> list[RankState]:
    """The answer of `docker inspect` of containers with our labels."""
    return [_state(found, node) for found in json.loads(text or "[]")]


def parse_glimpses(out: bytes) -> list[Glimpse]:
    """Blocks of `=== NAME STATUS EXIT OOM CURSOR BYTES`, so many bytes of new lines with their times, and a newline."""
    glimpses = []
    while out.startswith(b"=== "):
        head, _, rest = out.partition(b"\n")
        name, status, code, oom, cursor, size = head.decode().split()[1:]
        told, out = rest[: int(size)], rest[int(size) + 1 :]
        gained, behind = _new_lines(told, "" if cursor in ("-", RECENT) else cursor)
        alive = status in ("running", "paused", "restarting", "created")
        exit_code = int(code) if not alive and code.lstrip("-").isdigit() and status != "missing" else None
        glimpses.append(Glimpse(name, alive, exit_code, gained, behind, oom == "true"))
    return glimpses


def first_error(stderr: bytes) -> bytes:
    """What docker complains of, without its last line that only says which container it failed to start."""
    lines = [line for line in stderr.splitlines() if not line.startswith(b"Error: failed to start containers")]
    return b"\n".join(lines)


def image_arch(machine: str) -> str:
    """What images call the architecture that `uname -m` prints."""
    return _ARCHITECTURES.get(machine, machine)


def _is_wrapper(entrypoint: Sequence[str]) -> bool:
    program = entrypoint[0]
    return len(entrypoint) == 1 and program not in SHELLS and bool(re.search(r"entry_?point[^/]*(\.sh)?$", program))


def _state(found: Mapping[str, Any], node: str) -> RankState:
    labels = {
        key.removeprefix(f"{PREFIX}."): value
        for key, value in (found["Config"].get("Labels") or {}).items()
        if key.startswith(f"{PREFIX}.")
    }
    state = found["State"]
    alive = state.get("Status") in ("running", "paused", "restarting")
    began = labels.get("started_at", "")
    return RankState(
        labels.get("service", ""),
        labels.get("generation", ""),
        int(labels.get("rank", -1)),
        labels.get("node", node),
        alive,
        None if alive else state.get("ExitCode"),
        state.get("Pid") or None,
        float(began) if began else None,
        labels,
        "image",
    )


def _new_lines(told: bytes, cursor: str) -> tuple[bytes, str]:
    """Whole lines without their times, and where they end: `SECOND,LINES`, with so many lines since that second began.

    A time alone is no place in a log. Podman gives all lines that were written at once the same time, and those of a
    time are not in `--since` it; docker's times of two streams are not in order, and after the first line that is not
    too old its `--since` gives all. Both read long output in pieces, and put a time before each, within a line.
    """
    second, _, known = cursor.partition(",")
    lines = int(known or 0)
    gained: list[bytes] = []
    *whole, _ = told.split(b"\n")
    for line in whole:
        at = "".join(part.decode() for part in (_TIME.findall(line) or [()])[-1])
        if at > second:
            second, lines = at, 0
        lines += 1
        gained.append(_TIME.sub(b"", line) + b"\n")
    return b"".join(gained), f"{second},{lines}" if second else ""
