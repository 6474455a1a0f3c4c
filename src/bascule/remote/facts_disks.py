"""The reading of free space where it matters: images, the hub's model cache, run folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bascule.core.machine import Disk
from bascule.remote.reading import Reading, shortened, word

# The cache as huggingface_hub finds it (its docs, "Environment variables"). A folder that is not there yet will lie
# on the disk of the nearest one above it. One df for all; one each when it fails, so that one can't hide the others.
_COMMAND = r"""
cache=${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub}}
case "$cache" in "~/"*) cache=$HOME/${cache#"~/"} ;; esac
nearest() {
  near=$1
  while [ ! -d "$near" ]; do
    case "$near" in */?*) near=${near%/*} ;; *) near=. ;; esac
    [ -n "$near" ] || near=/
  done
}
printf 'run %s\ncache %s\n' "$run_dir" "$cache"
nearest "$run_dir"; set -- "$near"
nearest "$cache"; set -- "$1" "$near"
if [ -n "${images:-}" ]; then printf 'docker %s\n' "$images"; set -- "$1" "$2" "$images"; fi
echo "df"
if told=$(timeout -k 1 5 df -Pk "$@" 2>/dev/null </dev/null); then printf '%s\n' "$told"
else for place; do timeout -k 1 3 df -Pk "$place" 2>&1 </dev/null | tail -n 1; done; fi
"""
_HEAD = re.compile(r"Filesystem\s.*(1024-blocks|1K-blocks)")
_ROW = re.compile(r"(?P<source>.*?)\s+\d+\s+\d+\s+(?P<free>\d+)\s+(?:\d+%|-)\s+(?P<mount>/.*)", re.ASCII)


def _disks(text: str) -> tuple[Disk, ...]:
    """The places that `df -Pk` knows; it counts in KiB."""
    found = tuple(disk for disk in _read(text).values() if isinstance(disk, Disk))
    if not found:
        raise ValueError("; ".join(str(why) for why in _read(text).values()) or "nothing was printed")
    return found


def _run_free(text: str) -> int:
    run = _read(text).get("run")
    if isinstance(run, Disk):
        return run.free_bytes
    raise ValueError(run or "nothing was printed")


def _doubts(text: str) -> Mapping[str, str]:
    return {f"disks.{what}": why for what, why in _read(text).items() if isinstance(why, str)}


def _read(text: str) -> dict[str, Disk | str]:
    """What is to be placed -> its disk, or why it is not known."""
    places, _, printed = text.partition("\ndf")
    rows = [line for line in printed.splitlines() if line.strip() and not _HEAD.match(line)]
    wanted = [line.partition(" ") for line in places.splitlines()]
    named = [(what, path) for what, _, path in wanted if what in ("docker", "cache", "run") and path]
    if len(rows) != len(named):
        return dict.fromkeys((what for what, _ in named), shortened(printed) or "df printed nothing")
    return dict(_placed(named, rows))


def _placed(named: list[tuple[str, str]], rows: list[str]) -> Iterator[tuple[str, Disk | str]]:
    for (what, path), row in zip(named, rows, strict=True):
        found = _ROW.fullmatch(row.strip())
        if found is None:
            yield what, shortened(word(row))
        else:
            yield what, Disk(what, path, found["mount"], int(found["free"]) * 1024, found["source"])  # type: ignore[arg-type]


READINGS = (Reading("disks", _COMMAND, {"disks": _disks, "run_dir_free_bytes": _run_free}, _doubts),)
