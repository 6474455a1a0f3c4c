"""Readings of NVIDIA GPUs: what there is, its driver, and whose processes hold its memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

from bascule.core.machine import Gpu, GpuProcess
from bascule.remote.reading import Reading, shortened, status_and_rest

# Drivers that don't know a field say so and print nothing else: the younger fields come last and are left out then.
# Without nvidia-smi, the kernel is asked whether there is an NVIDIA GPU at all: class 0300 or 0302, vendor 10de.
_GPUS = r"""
smi() { timeout -k 1 10 nvidia-smi "$@" 2>&1 </dev/null; }
if command -v nvidia-smi >/dev/null 2>&1; then
  for more in ,mig.mode.current,compute_cap ,mig.mode.current ""; do
    fields=index,name,uuid,memory.total,memory.free,driver_version$more
    told=$(smi "--query-gpu=$fields" --format=csv,noheader,nounits); smi=$?
    case "$told" in *"not a valid field"*) ;; *) break ;; esac
  done
  echo "status $smi"; printf '%s\n' "$told"
else
  smi=none; echo "status none"
  for gpu in /proc/driver/nvidia/gpus/*; do [ -e "$gpu" ] && echo "$gpu"; done
  for device in /sys/bus/pci/devices/*; do
    read -r vendor 2>/dev/null <"$device/vendor" && [ "$vendor" = 0x10de ] || continue
    read -r class <"$device/class"
    case "$class" in 0x0300* | 0x0302*) echo "$device" ;; esac
  done
fi
"""

_CUDA = r"""
echo "status $smi"
if [ "$smi" = 0 ]; then
  told=$(smi --version)
  case "$told" in *CUDA*) ;; *) told=$(smi | grep CUDA) ;; esac
  printf '%s\n' "$told"
fi
"""

# Of each process that computes: it and those above it, with their sessions, and its control groups, which name its
# container; then bascule's own ranks. /proc tells these to every user unless it is mounted with hidepid.
_PROCESSES = r"""
if [ "$smi" = 0 ]; then
  told=$(smi --query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv,noheader,nounits)
  echo "status $?"; printf '%s\n' "$told"
  echo "owners"
  for app in $(printf '%s\n' "$told" | cut -d , -f 2); do
    pid=$app; depth=0
    while [ "$pid" -gt 1 ] 2>/dev/null && [ $depth -lt 16 ] && read -r stat 2>/dev/null <"/proc/$pid/stat"; do
      set -- ${stat##*) }
      echo "process $app $pid ${4:-0}"
      pid=${2:-0}; depth=$((depth + 1))
    done
    while read -r group; do printf '%s\n' "group $app $group"; done 2>/dev/null <"/proc/$app/cgroup"
  done
  printf '%s\n' "$ranks"
else echo "status $smi"; fi
"""

_NOT_TOLD = ("[N/A]", "N/A", "[Not Supported]", "Not Supported", "[Insufficient Permissions]")
_NONE = "No devices were found"
_DRIVER_ASKED, _MIG_ASKED, _SM_ASKED = 6, 7, 8  # fields of a row
_MIB = 1024 * 1024


def _gpus(text: str) -> tuple[Gpu, ...]:
    return tuple(_gpu(row) for row in _rows(text))


def _driver(text: str) -> str:
    rows = _rows(text)
    return rows[0][5] if rows else ""


def _doubts(text: str) -> Mapping[str, str]:
    """Whether the compute capability was told; older drivers don't know the question."""
    try:
        untold = [row[0] for row in _rows(text) if _sm(row) is None]
    except ValueError:
        return {}
    return {"gpus.sm": f"this nvidia-smi does not tell compute_cap of GPU {', '.join(untold)}"} if untold else {}


def _rows(text: str) -> list[list[str]]:
    """The fields of each GPU; none where there is none. ValueError when nvidia-smi, or a GPU, is not well."""
    status, rest = status_and_rest(text)
    if status == "none":
        return _without_tool(rest)
    if _NONE in rest:
        return []
    if status in ("124", "137"):
        raise ValueError("nvidia-smi did not answer within 10 s")
    rows = [[part.strip() for part in line.split(",")] for line in rest.splitlines() if line.strip()]
    if status != "0" or not rows or any(not _is_gpu(row) for row in rows):
        raise ValueError(shortened(rest) or "nothing was printed")
    return rows


def _without_tool(rest: str) -> list[list[str]]:
    if rest:
        raise ValueError(f"nvidia-smi is not installed, and the kernel has a GPU at {rest.splitlines()[0]}")
    return []


def _is_gpu(row: list[str]) -> bool:
    numbers = (row[3:5]) if _DRIVER_ASKED <= len(row) <= _SM_ASKED else ["?"]
    return _is_number(row[0]) and all(part in _NOT_TOLD or _is_number(part) for part in numbers)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _gpu(row: list[str]) -> Gpu:
    """Memory is told in MiB, and not at all where it is the machine's own."""
    total, free = (int(part) * _MIB if _is_number(part) else None for part in row[3:5])
    mig = len(row) >= _MIG_ASKED and row[6] == "Enabled"
    return Gpu(int(row[0]), row[1], _sm(row), total, free, row[2], mig)


def _sm(row: list[str]) -> str | None:
    """12.1 is sm_121."""
    found = re.fullmatch(r"(\d+)\.(\d)", row[7], re.ASCII) if len(row) >= _SM_ASKED else None
    return f"sm_{found[1]}{found[2]}" if found else None


def _cuda(text: str) -> str:
    """From `nvidia-smi --version` or the head of its table; drivers from 610 on write CUDA UMD version."""
    status, rest = status_and_rest(text)
    if status == "none":
        return ""
    found = re.search(r"CUDA(?: UMD)? version\s*:\s*(\d+\.\d+)", rest, re.IGNORECASE | re.ASCII)
    if status == "0" and found:
        return found[1]
    raise ValueError(shortened(rest) or (f"nvidia-smi ended with {status}" if status else "nothing was printed"))


def _processes(text: str) -> tuple[GpuProcess, ...]:
    status, rest = status_and_rest(text)
    if status == "none":
        return ()
    told, _, owners = rest.partition("owners")
    if status != "0":
        raise ValueError(shortened(told) or (f"nvidia-smi ended with {status}" if status else "nothing was printed"))
    return tuple(_process(line, owners) for line in told.splitlines() if line.strip() and _NONE not in line)


def _process(line: str, owners: str) -> GpuProcess:
    parts = [part.strip() for part in line.split(",", 3)]
    if len(parts) != 4 or not _is_number(parts[1]):
        raise ValueError(shortened(line))
    memory = int(parts[2]) * _MIB if _is_number(parts[2]) else None
    return GpuProcess(parts[0], int(parts[1]), parts[3], memory, _rank_of(parts[1], owners))


def _rank_of(pid: str, owners: str) -> str | None:
    """The rank that it belongs to: by a process above it or its session, or by the container in its control group."""
    rows = [line.split() for line in owners.splitlines()]
    processes = set(chain.from_iterable(row[2:] for row in rows if row[:2] == ["process", pid]))
    groups = " ".join(" ".join(row[2:]) for row in rows if row[:2] == ["group", pid])
    for name, mark, kind in _ranks(rows):
        if mark in processes if kind == "folder" else mark in groups:
            return name
    return "" if processes and (groups or not any(kind == "container" for *_, kind in _ranks(rows))) else None


def _ranks(rows: list[list[str]]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        if len(row) == 3 and row[0] in ("container", "folder"):
            yield row[1].removeprefix("bascule."), row[2], row[0]


READINGS = (
    Reading("gpus", _GPUS, {"gpus": _gpus, "driver": _driver}, _doubts),
    Reading("cuda", _CUDA, {"cuda": _cuda}),
    Reading("gpu_processes", _PROCESSES, {"gpu_processes": _processes}),
)
