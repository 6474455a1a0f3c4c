"""What a model's folder on a node holds: its small files, its sizes, and the heads of its safetensors files."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from bascule.core.nouns import Node
from bascule.discover.jsons import MAX_CONFIG
from bascule.discover.safetensors import MAX_READ
from bascule.discover.weights import INDEX, MAX_INDEX, Head
from bascule.errors import ModelError
from bascule.remote.runner import Result, Runner

FIRST = 64  # bytes of a file that are looked at in any case
MAX_HEADS = 64 * 1024 * 1024  # bytes of all headers; those of a model of 1e12 parameters in 4 bits take 31 MB
_MAX_OUT = MAX_HEADS + MAX_INDEX + 16 * 1024 * 1024

# POSIX shell and utilities (head -c beside them); LC_ALL=C, so that bytes are bytes. Names with a newline are left out.
_COMMON = r"""
export LC_ALL=C
cd "$1" || exit 3
[ -r . ] || { echo "no rights to list it" >&2; exit 4; }
limit=$2
left=$3
newline='
'
size_of() { set -- $(ls -Lnd -- "$1"); echo "$5"; }
print() { printf '=== %s %s %s\n' "$2" "$3" "$1" && head -c "$2" "./$1" && echo; }
"""

# Prints the small files one after another, each behind a line with what is printed of it (at most `limit`), its size
# and its name; then a line for each other file that matters: its size and name, or why it can't be read.
_LOOK = (
    _COMMON
    + r"""
for name in config.json hf_quant_config.json chat_template.jinja tokenizer_config.json; do
  if [ -f "$name" ] && [ -r "$name" ]; then
    size=$(size_of "$name")
    length=$size
    [ "$length" -le "$limit" ] || length=$limit
    print "$name" "$length" "$size"
  fi
done
echo "=== end"
for name in config.json *.safetensors *.gguf *.bin *.py "$4"; do
  case $name in *"$newline"*) continue ;; esac
  if [ -f "$name" ] && ! [ -r "$name" ]; then echo "closed $name"
  elif [ -f "$name" ]; then echo "$(size_of "./$name") $name"
  elif [ -L "$name" ] && ! [ -e "$name" ]; then echo "gone $name"; fi
done
"""
)

# Prints the index and the head of each safetensors file, each behind a line with what is printed of it, its size and
# its name. A header that is longer than `limit`, or than what is `left` of all, is not printed to its end.
_HEADS = (
    _COMMON
    + r"""
length_of() {
  set -- $(od -A n -t u1 -N 8 "$1")
  if [ $# -eq 8 ] && [ "$5$6$7$8" = 0000 ]; then echo $(($1 + 256 * ($2 + 256 * ($3 + 256 * $4)) + 8)); else echo 0; fi
}
all() {
  if [ -f "$index" ] && [ -r "$index" ]; then
    size=$(size_of "$index")
    if [ "$size" -le "$most" ]; then print "$index" "$size" "$size"; fi
  fi
  for name in *.safetensors; do
    case $name in *"$newline"*) continue ;; esac
    [ -f "$name" ] && [ -r "$name" ] || continue
    size=$(size_of "./$name")
    length=$(length_of "./$name")
    if [ "$length" -le "$limit" ] && [ "$length" -le "$left" ]; then left=$((left - length)); else length=0; fi
    [ "$length" -ge "$first" ] || length=$first
    [ "$length" -le "$size" ] || length=$size
    print "$name" "$length" "$size"
  done
  echo "=== end"
}
index=$4
most=$5
first=$6
if command -v gzip >/dev/null 2>&1; then all | gzip -1 -c; else all; fi
"""
)
_FRAME = re.compile(rb"=== (\d{1,18}) (\d{1,18}) (.+)\n")
_END = b"=== end\n"
_LINE = re.compile(r"(\d{1,18}|gone|closed) (.+)")


@dataclass(frozen=True, slots=True)
class Folder:
    """One look at a folder: small files by name, bytes of the other ones, and those that can't be read."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)  # name -> "gone" (a link to nowhere) or "closed"


async def look(path: str, runner: Runner, node: Node) -> Folder:
    """The first round trip. Raises ModelError when there's no folder or it can't be read."""
    words = ("sh", "-s", "--", path, str(MAX_CONFIG + 1), "0", INDEX)
    result = await runner.run(words, stdin=_LOOK, within=30)
    _told(result, path, node)
    folder = parse_look(result.stdout)
    if folder is None:
        raise ModelError("model-unread", f"{path} on {node.name} changed while it was read", advice="try again")
    return folder


async def heads(path: str, runner: Runner) -> tuple[bytes | None, dict[str, Head]] | None:
    """The second round trip: the index, and the heads by name; None when they didn't come to their end."""
    limits = (str(MAX_READ), str(MAX_HEADS), INDEX, str(MAX_INDEX), str(FIRST))
    result = await runner.run(("sh", "-s", "--", path, *limits), stdin=_HEADS, within=60)
    return parse_heads(result.stdout) if result.ok else None


def parse_look(out: bytes) -> Folder | None:
    """What the first script printed; None when it is cut."""
    found = _framed(out)
    if found is None:
        return None
    frames, rest = found
    matches = [match for line in rest.decode(errors="replace").split("\n") if (match := _LINE.fullmatch(line))]
    return Folder(
        {name: content for name, _, content in frames},
        {match[2]: int(match[1]) for match in matches if match[1].isdigit()},
        {match[2]: match[1] for match in matches if not match[1].isdigit()},
    )


def parse_heads(out: bytes) -> tuple[bytes | None, dict[str, Head]] | None:
    """What the second script printed; None when it is cut."""
    found = _framed(_plain(out))
    if found is None:
        return None
    index = next((content for name, _, content in found[0] if name == INDEX), None)
    return index, {name: Head(size, content) for name, size, content in found[0] if name != INDEX}


def _framed(out: bytes) -> tuple[list[tuple[str, int, bytes]], bytes] | None:
    """Names, sizes and beginnings of files, and what stands behind the line that ends them; None without that line."""
    frames: list[tuple[str, int, bytes]] = []
    at = 0
    while match := _FRAME.match(out, at):
        begin, length = match.end(), int(match[1])
        frames.append((match[3].decode(errors="replace"), int(match[2]), out[begin : begin + length]))
        at = begin + length + 1
    return (frames, out[at + len(_END) :]) if out.startswith(_END, at) else None


def _plain(out: bytes) -> bytes:
    """Decompressed where the node has gzip, up to what can be there; what is cut or damaged is empty."""
    if not out.startswith(b"\x1f\x8b"):
        return out
    try:
        return zlib.decompressobj(wbits=31).decompress(out, _MAX_OUT)
    except zlib.error:
        return b""


def _told(result: Result, path: str, node: Node) -> None:
    if result.status == 3:
        raise ModelError(
            "model-missing",
            f"there is no folder {path} on {node.name}",
            seen=result.complaint,
            advice="`model:` is a folder that every node has at the same path",
        )
    if not result.ok:
        why = "it took more than 30 s" if result.timed_out else result.complaint
        raise ModelError("model-unread", f"{path} on {node.name} could not be read", seen=why)
