"""Readings of docker or podman, of what containers may do there, and of bascule's own ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bascule.core.machine import DockerFacts
from bascule.remote.docker import image_arch
from bascule.remote.reading import Reading, shortened, word

# When the daemon is out of reach, some clients exit with 0 and tell it in their JSON. What docker needs to give GPUs to
# a container: the runtime in its JSON, or nvidia-container-runtime-hook, or a CDI description (which podman takes too).
# Images of the containerd store lie under containerd's root, unless dockerd started that containerd itself.
# sed picks what later commands need: a shell takes 20 ms to find it in the whole JSON.
_DOCKER = r"""
tool=; images=; store=; busy=unknown; newline='
'
for try in docker "sudo -n docker" podman; do
  command -v "${try%% *}" >/dev/null 2>&1 || { echo "no $try: not installed"; continue; }
  info=$(timeout -k 1 8 $try info --format '{{json .}}' 2>&1 </dev/null); status=$?
  why=
  while read -r key value; do
    case "$key" in
      error) why=$value ;;
      root) images=$value ;;
      store) store=$store$value ;;
      ranks) case "$busy $value" in *[1-9]*) busy=1 ;; *) busy=0 ;; esac ;;
    esac
  done <<PICKED
$(printf '%s\n' "$info" | sed -n '
  h; s/.*"ServerErrors":\["\([^]]*\)"\].*/error \1/p
  g; s/.*"DockerRootDir":"\([^"]*\)".*/root \1/p
  g; s/.*"graphRoot": *"\([^"]*\)".*/root \1/p
  g; s/.*io\.containerd\.snapshotter.*/store containerd/p
  g; s/.*\/docker\/containerd\/.*/store own/p
  g; s/.*"ContainersRunning":\([0-9]*\),"ContainersPaused":\([0-9]*\).*/ranks \1 \2/p
  g; s/.*"running": *\([0-9]*\).*/ranks \1/p
  g; s/.*"paused": *\([0-9]*\).*/ranks \1/p')
PICKED
  case "$status $why" in
    "0 ") case "$info" in *"{"*) tool=$try; echo "ok $try"; printf '%s\n' "$info"; break ;; esac ;;
    "124 "* | "137 "*) why="no answer within 8 s" ;;
  esac
  printf '%s\n' "no $try: ${why:-${info##*"$newline"}}"
done
for way in /etc/cdi/*nvidia* /var/run/cdi/*nvidia*; do [ -e "$way" ] && echo "gpus $way"; done
command -v nvidia-container-runtime-hook >/dev/null 2>&1 && echo "gpus nvidia-container-runtime-hook"
[ "$store" = containerd ] && [ -d /var/lib/containerd ] && images=/var/lib/containerd
"""

_MEMLOCK = r"""
pid=; [ -r /run/docker.pid ] && read -r pid </run/docker.pid
pid=${pid:-self} # podman has no daemon: its limits are ours
grep -hsE '^(CapEff|Max locked)' "/proc/$pid/status" "/proc/$pid/limits"
"""

# A rank is a container with our label, or a run folder whose leader lives: that very process, of this very boot.
_RANKS = r"""
read -r boot </proc/sys/kernel/random/boot_id
ranks=$(
  if [ -n "$tool" ] && [ "$busy" != 0 ]; then
    timeout -k 1 8 $tool ps --no-trunc --filter label=bascule.service --format 'container {{.Names}} {{.ID}}' \
      2>&1 </dev/null || echo "failed"
  fi
  for folder in "$run_dir"/*.r*; do
    read -r pid began then 2>/dev/null <"$folder/pid" && [ "$then" = "$boot" ] || continue
    read -r stat 2>/dev/null <"/proc/$pid/stat" || continue
    set -- ${stat##*) }
    [ "$1" != Z ] && [ "${20:-}" = "$began" ] && echo "folder ${folder##*/} $pid"
  done
)
printf '%s\nlisted\n' "$ranks"
"""


def parse_docker(text: str) -> DockerFacts:
    """Lines `no TOOL: why`, then `ok TOOL`, the JSON of its info, and `gpus WAY` for each way to give it GPUs."""
    head, _, told = f"\n{text}".partition("\nok ")
    tool, _, rest = told.partition("\n")
    if not tool:
        raise ValueError("; ".join(_refusals(head)) or shortened(text) or "nothing was printed")
    ways = [line for line in rest.splitlines() if line.startswith("gpus ")]
    return _engine(tuple(tool.split()), _first_object(rest), bool(ways))


def _doubts(text: str) -> Mapping[str, str]:
    """Docker that is there and denied, where podman took its place."""
    refused = [line for line in _refusals(text) if line.startswith("docker: ") and "permission denied" in line.lower()]
    return {"docker.denied": refused[0]} if refused and "\nok podman" in text else {}


def _refusals(text: str) -> Iterator[str]:
    return (line.removeprefix("no ") for line in text.splitlines() if line.startswith("no "))


def _first_object(text: str) -> Mapping[str, Any]:
    """The JSON object in it; clients may print warnings before."""
    start = text.find("{")
    if start < 0:
        raise ValueError(f"its info is no JSON: {shortened(text)}")
    return dict(json.JSONDecoder(strict=False).raw_decode(text, start)[0])


def _engine(command: tuple[str, ...], info: Mapping[str, Any], ways: bool) -> DockerFacts:
    host, store = info.get("host"), info.get("store")
    if isinstance(host, dict) and isinstance(store, dict):  # podman
        about = info.get("version")
        version = str(about.get("Version", "")) if isinstance(about, dict) else ""
        driver, root, arch = *_texts(store, "graphDriverName", "graphRoot"), *_texts(host, "arch")
        return DockerFacts(command, version, driver, root, arch, nvidia=ways)
    if errors := info.get("ServerErrors"):
        raise ValueError(f"{' '.join(command)}: {errors[0] if isinstance(errors, list) else errors}")
    version, driver, root, arch = _texts(info, "ServerVersion", "Driver", "DockerRootDir", "Architecture")
    containerd = "io.containerd.snapshotter" in str(info.get("DriverStatus"))
    gives = ways or "nvidia" in str(info.get("Runtimes")) or "nvidia.com/gpu" in str(info.get("DiscoveredDevices"))
    return DockerFacts(command, version, "containerd" if containerd else driver, root, image_arch(arch), gives)


def _texts(found: Mapping[str, Any], *keys: str) -> list[str]:
    return [str(found.get(key) or "") for key in keys]


def _memlock(text: str) -> bool:
    """From CapEff and `Max locked memory` of dockerd, or of ourselves for podman: whether it may lift the limit.

    CAP_SYS_RESOURCE is bit 24.
    """
    for line in word(text).splitlines():
        match line.split():
            case ["CapEff:", mask, *_] if int(mask, 16) >> 24 & 1:
                return True
            case ["Max", "locked", "memory", _, "unlimited", *_]:
                return True
    return False


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(shortened(text) or "nothing was printed")
    return text == "yes"


def _ranks(text: str) -> tuple[str, ...]:
    """Names without the `bascule.` that containers have before them."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or lines.pop() != ["listed"] or not all(_is_rank(line) for line in lines):
        raise ValueError(shortened(text.removesuffix("listed").strip().removesuffix("failed")) or "nothing was printed")
    return tuple(sorted(name.removeprefix("bascule.") for _, name, _ in lines))


def _is_rank(words: list[str]) -> bool:
    return len(words) == 3 and words[0] in ("container", "folder")


# NCCL needs one of these; where there is none, the folder alone is nothing to give to a container.
_VERBS = 'for one in /dev/infiniband/uverbs*; do [ -c "$one" ] && echo yes || echo no; break; done'

READINGS = (
    Reading("docker", _DOCKER, {"docker": parse_docker}, _doubts),
    Reading("memlock", _MEMLOCK, {"memlock": _memlock}),
    Reading("infiniband", _VERBS, {"infiniband": _yes}),
    Reading("ranks", _RANKS, {"ranks": _ranks}),
)
