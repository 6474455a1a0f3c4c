"""A folder on a node, read by short commands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bascule.core.reading import EXCERPT, Spot, Unreadable
from bascule.probe.kernels import wire
from bascule.probe.kernels.fatbin import Library
from bascule.probe.views.base import HITS_PER_FILE, TEXT_LIMIT, Found
from bascule.remote.runner import Result, Runner

NO_COMMAND = 127  # exit status of a shell, and of timeout

# POSIX shell and utilities only; LC_ALL=C, so that `No such file` is said in English and bytes are bytes.
_ROOTS = r"""
export LC_ALL=C
if [ -e "$1" ] && ! [ -d "$1" ]; then echo "not $1: Not a directory"; exit; fi
if ! { [ -d "$1" ] && [ -r "$1" ] && [ -x "$1" ]; }; then echo "not $(ls -ldL -- "$1" 2>&1)"; exit; fi
for folder in "$1"/lib "$1"/lib/python3*; do
  if [ -d "$folder" ] && ! { [ -r "$folder" ] && [ -x "$folder" ]; }; then echo "not $(ls -ldL -- "$folder")"; exit; fi
done
for folder in "$1"/lib/python3*/site-packages; do
  [ -d "$folder" ] || continue
  python=${folder%/site-packages}; python=${python##*/}
  if [ -e "$1/bin/$python" ]; then echo "own $folder"; else echo "other $folder"; fi
done
echo "plain $1"
"""
_READ = r"""
export LC_ALL=C
if ! { [ -f "$1" ] && [ -r "$1" ]; }; then echo "not $(ls -ldL -- "$1" 2>&1)"; exit; fi
size=$(wc -c < "$1")
if [ "$3" = whole ] && [ "$size" -gt "$2" ]; then echo "large $size"; else echo file; head -c "$2" -- "$1"; fi
"""
_FIND = r"""
cd -- "$1" && [ -r . ] || exit 3
shift; IFS=
for path in $@; do if [ -e "$path" ]; then printf '%s\n' "$path"; fi; done
"""
_SEARCH = r"""
export LC_ALL=C
cd -- "$1" && [ -r . ] || exit 3
pattern=$2 most=$3 options=$4; shift 4; IFS=
for glob in "$@"; do
  shift
  for path in $glob; do if [ -f "$path" ]; then set -- "$@" "$path"; fi; done
done
echo "files $#"
[ $# -gt 0 ] || exit 0
grep "$options" -m "$most" -e "$pattern" -- "$@" /dev/null
[ $? -le 1 ]
"""


class FolderView:
    """A folder on a node; see View."""

    def __init__(self, runner: Runner, root: str) -> None:
        self.runner = runner
        self.root = root
        self.bytes_read = 0

    async def read(self, path: str) -> bytes | None:
        """See View.read; more than TEXT_LIMIT bytes are refused."""
        return await self._read(path, TEXT_LIMIT, "whole")

    async def head(self, path: str, size: int) -> bytes | None:
        """See View.head."""
        return await self._read(path, size, "part")

    async def find(self, *globs: str) -> tuple[str, ...]:
        """See View.find."""
        result = await self._run(_FIND, (self.root, *globs), self.root)
        return tuple(sorted(line for line in result.text.splitlines() if line))

    async def search(self, pattern: str, *globs: str) -> Found:
        """See View.search."""
        result = await self._search(pattern, "-nE", globs)
        lines = result.text.splitlines()[1:]
        hits = (re.match(r"(.*?):(\d+):(.*)", line) for line in lines)
        return Found(_files(result), tuple(Spot(m[1], int(m[2]), m[3].strip()[:EXCERPT]) for m in hits if m))

    async def words(self, pattern: str, *globs: str) -> Found:
        """See View.words."""
        result = await self._search(pattern, "-azoE", globs)
        rest = result.stdout.partition(b"\n")[2]
        hits = (row.decode(errors="replace").partition(":") for row in rest.split(b"\0") if row)
        return Found(_files(result), tuple(Spot(path, None, text[:EXCERPT]) for path, _, text in hits))

    async def libraries(self, *globs: str) -> tuple[Library, ...]:
        """See View.libraries; the node's python3 reads them, so that only some headers are read and little is sent."""
        words = (*wire.PYTHON, self.root, *globs)
        result = await self.runner.run(words, stdin=wire.script(), within=60)
        self.bytes_read += len(result.stdout)
        if result.ok:
            try:
                return wire.parse(result.stdout)
            except wire.Garbled as bad:
                raise Unreadable(self.root, f"its libraries could not be read: {bad}") from bad
        why = f"the node's python3 could not read its libraries: {result.complaint}"
        if result.status == NO_COMMAND:
            why = "the node has no python3, and libraries are read with it"
        raise Unreadable(self.root, "reading its libraries took more than 60 s" if result.timed_out else why)

    async def _read(self, path: str, size: int, how: str) -> bytes | None:
        full = path if path.startswith("/") else f"{self.root}/{path}"
        result = await self._run(_READ, (full, str(size), how), path)
        said, _, body = result.stdout.partition(b"\n")
        if said == b"file":
            return body
        if said.startswith(b"large "):
            raise Unreadable(path, f"{said.split()[1].decode()} bytes, more than {TEXT_LIMIT}")
        if _is_missing(said):
            return None
        raise Unreadable(path, _why(said))

    async def _search(self, pattern: str, options: str, globs: Sequence[str]) -> Result:
        arguments = (self.root, pattern, str(HITS_PER_FILE), options, *globs)
        result = await self._run(_SEARCH, arguments, self.root)
        if not result.stdout.startswith(b"files "):
            raise Unreadable(self.root, "the search gave no answer")
        return result

    async def _run(self, script: str, arguments: Sequence[str], path: str) -> Result:
        result = await self.runner.run(("sh", "-c", script, "sh", *arguments), within=60)
        self.bytes_read += len(result.stdout)
        if not result.ok:
            why = "took more than 60 s" if result.timed_out else result.complaint
            raise Unreadable(path, why)
        return result


async def open_folder(runner: Runner, ref: str) -> FolderView | None:
    """A view of the packages in a Python environment, or in a plain folder of packages; None when there's no folder.

    Raises Unreadable.
    """
    result = await runner.run(("sh", "-c", _ROOTS, "sh", ref), within=30)
    said = result.stdout.strip()
    if not result.ok or not said:
        raise Unreadable(ref, "took more than 30 s" if result.timed_out else _why(said))
    if said.startswith(b"not "):
        if _is_missing(said):
            return None
        raise Unreadable(ref, _why(said))
    kinds = dict(reversed([line.split(" ", 1) for line in said.decode().splitlines()]))
    view = FolderView(runner, kinds.get("own") or kinds.get("other") or kinds["plain"])
    view.bytes_read += len(result.stdout)
    return view


def _files(result: Result) -> int:
    return int(result.stdout.split(maxsplit=2)[1])


def _is_missing(said: bytes) -> bool:
    return said.startswith(b"not ") and said.lower().endswith((b"no such file or directory", b"not a directory"))


def _why(said: bytes) -> str:
    return said.decode(errors="replace").removeprefix("not ") or "nothing came back"
