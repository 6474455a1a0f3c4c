"""Readings of the machine itself: name, system, CPU, memory, limits, python3."""

from __future__ import annotations

import ipaddress
import re

from bascule.remote.reading import Reading, number, shortened, status_and_rest, word

# The place of run folders, as this shell sees it: the recipe's, else the one of the XDG base directories.
_RUN_DIR = r"""
asked=${1:-}
case "$asked" in
  "") run_dir="${XDG_STATE_HOME:-$HOME/.local/state}/bascule/ranks" ;;
  "~/"*) run_dir="$HOME/${asked#"~/"}" ;;
  *) run_dir=$asked ;;
esac
printf '%s\n' "$run_dir"
"""

_OWN_NAME = r"""
if command -v getent >/dev/null 2>&1; then
  told=$(timeout -k 1 2 getent ahostsv4 "${machine%% *}" 2>&1 </dev/null); echo "status $?"; printf '%s\n' "$told"
else echo "status missing"; fi
"""

_CGROUP = r"""
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo 2
elif [ -d /sys/fs/cgroup/memory ] || [ -d /sys/fs/cgroup/cpu ]; then echo 1; fi
"""

_PYTHON = "if command -v python3 >/dev/null 2>&1; then timeout -k 1 5 python3 -V 2>&1 </dev/null; else echo none; fi"


def _memory(text: str, key: str) -> int:
    """Bytes behind a key of /proc/meminfo, which counts in KiB."""
    for line in text.splitlines():
        if line.startswith(f"{key}:"):
            return number(line.removeprefix(f"{key}:").removesuffix("kB").strip()) * 1024
    raise ValueError(f"/proc/meminfo has no {key}")


def _uname(text: str, place: int) -> str:
    words = text.split()
    if len(words) != 3:
        raise ValueError(f"uname said {shortened(text)!r}" if text else "nothing was printed")
    return words[place]


def _pretty_name(text: str) -> str:
    return word(text.removeprefix("PRETTY_NAME=").strip().strip("\"'"))


def _own_name_ip(text: str) -> str:
    """The first IPv4 address of `getent ahostsv4`; it ends with 2 when there is none."""
    status, rest = status_and_rest(text)
    match status:
        case "0":
            return str(ipaddress.IPv4Address(word(rest).split()[0]))
        case "2":
            return ""
        case "missing":
            raise ValueError("getent is not installed")
        case "124" | "137":
            raise ValueError("its name servers did not answer within 2 s")
    raise ValueError(shortened(rest) or "nothing was printed")


def _memlock(text: str) -> int:
    """`ulimit -l` counts in KiB."""
    return -1 if text == "unlimited" else number(text) * 1024


def _cgroup(text: str) -> int:
    if text not in ("1", "2"):
        raise ValueError("/sys/fs/cgroup holds neither version")
    return int(text)


def _python(text: str) -> str:
    found = re.fullmatch(r"Python (\d+\.\d+\S*)", text)
    if found:
        return found[1]
    if text == "none":
        return ""
    raise ValueError(shortened(text) or "nothing was printed")


READINGS = (
    Reading(
        "uname",
        "machine=$(uname -nrm); printf '%s\\n' \"$machine\"",
        {
            "hostname": lambda text: _uname(text, 0),
            "kernel": lambda text: _uname(text, 1),
            "arch": lambda text: _uname(text, 2),
        },
    ),
    Reading("os", "grep -s ^PRETTY_NAME= /etc/os-release", {"os": _pretty_name}),
    Reading("cores", "nproc 2>/dev/null || getconf _NPROCESSORS_ONLN", {"cores": number}),
    Reading(
        "memory",
        "cat /proc/meminfo",
        {
            "memory_bytes": lambda text: _memory(text, "MemTotal"),
            "memory_free_bytes": lambda text: _memory(text, "MemAvailable"),
        },
    ),
    Reading("run_dir", _RUN_DIR, {"run_dir": word}),
    Reading("machine_id", "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/net", {"machine_id": word}),
    Reading("ulimit", "ulimit -l", {"user_memlock_bytes": _memlock}),
    Reading("cgroup", _CGROUP, {"cgroup": _cgroup}),
    Reading("python3", _PYTHON, {"python3": _python}),
    Reading("own_name", _OWN_NAME, {"own_name_ip": _own_name_ip}),
)
