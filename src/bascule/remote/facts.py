"""What is read from a node once: one short POSIX script, and pure parsers of its sections."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bascule.core.machine import Address, NodeFacts
from bascule.core.nouns import Node
from bascule.remote.docker import parse_docker
from bascule.remote.runner import Runner

SECTION = "=== "
WITHIN = 20.0  # seconds

# Each section prints its facts or nothing. Interfaces: iproute2 where it is, else an ioctl through python3.
SCRIPT = r"""
asked=${1:-}
case "$asked" in
  "") run_dir="${XDG_STATE_HOME:-$HOME/.local/state}/bascule/ranks" ;;
  "~/"*) run_dir="$HOME/${asked#"~/"}" ;;
  *) run_dir=$asked ;;
esac
near=$run_dir; while [ ! -d "$near" ]; do near=$(dirname "$near"); done
echo "=== hostname"; uname -n
echo "=== arch"; uname -m
echo "=== cores"; nproc 2>/dev/null || getconf _NPROCESSORS_ONLN
echo "=== memory"; cat /proc/meminfo
echo "=== run_dir"; echo "$run_dir"
echo "=== run_dir_free"; df -Pk "$near" | tail -n 1
echo "=== machine_id"; cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/net
echo "=== gpus"
if command -v nvidia-smi >/dev/null 2>&1; then nvidia-smi --query-gpu=name --format=csv,noheader 2>&1
else echo none; fi
echo "=== infiniband"; if [ -d /dev/infiniband ]; then echo yes; else echo no; fi
echo "=== docker"
for tool in docker "sudo -n docker" podman; do
  command -v "${tool%% *}" >/dev/null 2>&1 || { echo "no $tool: not installed"; continue; }
  told=$(timeout 10 $tool info --format '{{json .}}' 2>/dev/null </dev/null); status=$?
  case "$status $told" in # when the daemon is out of reach, some clients exit with 0 and tell it in their JSON
    *'"ServerErrors":["'*) echo "no $tool: $(echo "$told" | sed 's/.*"ServerErrors":\["//; s/"\].*//')" ;;
    "0 {"*) echo "ok $tool"; echo "$told" | tr -d '\n'; echo; break ;; # podman prints it over many lines
    *) echo "no $tool: $(timeout 10 $tool info 2>&1 >/dev/null </dev/null | tail -n 1)" ;;
  esac
done
echo "=== memlock"
pid=$(cat /run/docker.pid 2>/dev/null) || pid=self  # podman has no daemon: its limits are ours
grep -hE '^(CapEff|Max locked)' "/proc/$pid/status" "/proc/$pid/limits"
echo "=== addresses"
if command -v ip >/dev/null 2>&1; then ip -o -4 addr show
elif command -v python3 >/dev/null 2>&1; then python3 - <<'PY'
import fcntl, socket, struct
for _, name in socket.if_nameindex():
    def ask(number):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return socket.inet_ntoa(fcntl.ioctl(s.fileno(), number, struct.pack("256s", name.encode()))[20:24])
    try:
        address, mask = ask(0x8915), int.from_bytes(socket.inet_aton(ask(0x891b)), "big")
        print("0:", name, "inet", f"{address}/{bin(mask).count('1')}")
    except OSError:
        pass
PY
fi
"""


async def read_facts(runner: Runner, node: Node, within: float = WITHIN) -> Node:
    """The node with its facts. Raises NodeUnreachable."""
    result = await runner.run(("sh", "-s", "--", node.run_dir or ""), stdin=SCRIPT, within=within)
    if result.timed_out:  # what was being read is not known
        before, _, broken = result.text.rpartition(SECTION)
        facts = parse_facts(before)
        late = dict.fromkeys(facts.unknown, f"not read within {within:g} s: stopped at {broken.split(None, 1)[0]}")
        return replace(node, facts=replace(facts, unknown=late))
    return replace(node, facts=parse_facts(result.text))


def parse_facts(text: str) -> NodeFacts:
    """Facts from what SCRIPT printed; what is missing or unreadable is named in `unknown`."""
    sections = _sections(text)
    found: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, (section, parse) in _PARSERS.items():
        try:
            found[name] = parse(sections.get(section, ""))
        except ValueError as trouble:
            unknown[name] = str(trouble)
    return NodeFacts(**found, unknown=unknown)


def interface_of(facts: NodeFacts, ip: str) -> str | None:
    """The interface that carries this address: by the very address first, else by its network."""
    for address in facts.addresses:
        if address.ip == ip:
            return address.interface
    wanted = ipaddress.ip_address(ip)
    for address in facts.addresses:
        if wanted in ipaddress.ip_network(f"{address.ip}/{address.prefix}", strict=False):
            return address.interface
    return None


def _sections(text: str) -> dict[str, str]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith(SECTION):
            current = sections.setdefault(line.removeprefix(SECTION).strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in sections.items()}


def _word(text: str) -> str:
    if not text:
        raise ValueError("nothing was printed")
    return text


def _number(text: str) -> int:
    if not _word(text).isdigit():
        raise ValueError(f"{text!r} is no number")
    return int(text)


def _memory(text: str, key: str) -> int:
    """Bytes behind a key of /proc/meminfo, which counts in KiB."""
    for line in text.splitlines():
        if line.startswith(f"{key}:"):
            return _number(line.removeprefix(f"{key}:").removesuffix("kB").strip()) * 1024
    raise ValueError(f"/proc/meminfo has no {key}")


def _disk_free(text: str) -> int:
    """Bytes from the last line of `df -Pk`: file system, KiB, used, free, percent, mount point."""
    found = re.search(r"\s\d+\s+\d+\s+(\d+)\s+\d+%\s", text)
    if not found:
        raise ValueError(text or "nothing was printed")
    return int(found[1]) * 1024


def _gpus(text: str) -> tuple[str, ...]:
    if text in ("none", "No devices were found"):
        return ()
    if not text or "failed" in text.lower() or "error" in text.lower():
        raise ValueError(text or "nothing was printed")
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _memlock(text: str) -> bool:
    """From CapEff and `Max locked memory` of dockerd, or of ourselves for podman: whether it may lift the limit.

    CAP_SYS_RESOURCE is bit 24.
    """
    for line in _word(text).splitlines():
        words = line.split()
        if words[0] == "CapEff:" and int(words[1], 16) >> 24 & 1:
            return True
        if words[:3] == ["Max", "locked", "memory"] and words[4] == "unlimited":
            return True
    return False


def _addresses(text: str) -> tuple[Address, ...]:
    """Lines of `ip -o -4 addr show`: index, interface, inet, address/prefix, …"""
    rows = [line.split() for line in _word(text).splitlines()]
    found = []
    for row in rows:
        if "inet" not in row[:-1]:
            raise ValueError(" ".join(row))
        ip, _, prefix = row[row.index("inet") + 1].partition("/")
        found.append(Address(row[1].rstrip(":"), ip, int(prefix or 32)))
    return tuple(found)


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {  # field -> section and its parser
    "hostname": ("hostname", _word),
    "arch": ("arch", _word),
    "cores": ("cores", _number),
    "memory_bytes": ("memory", lambda text: _memory(text, "MemTotal")),
    "memory_free_bytes": ("memory", lambda text: _memory(text, "MemAvailable")),
    "run_dir": ("run_dir", _word),
    "run_dir_free_bytes": ("run_dir_free", _disk_free),
    "machine_id": ("machine_id", _word),
    "gpus": ("gpus", _gpus),
    "infiniband": ("infiniband", lambda text: _word(text) == "yes"),
    "docker": ("docker", parse_docker),
    "memlock": ("memlock", _memlock),
    "addresses": ("addresses", _addresses),
}
