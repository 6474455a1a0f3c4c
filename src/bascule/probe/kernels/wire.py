"""What fatbin.py prints on a node, read strictly: nothing that a node says is trusted to be well-formed."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources

from bascule.probe.kernels.fatbin import LIBRARIES, Code, FatBinary, Library

PYTHON = ("python3", "-I", "-S", "-")  # nothing of the node's own Python packages is imported


class Garbled(Exception):
    """The lines are not those of fatbin.py, or not all of them."""


@cache
def script() -> str:
    """The text of fatbin.py, for a node's standard input."""
    return resources.files("bascule.probe.kernels").joinpath("fatbin.py").read_text(encoding="utf-8")


def parse(said: bytes) -> tuple[Library, ...]:
    """The libraries that fatbin.py told of. Raises Garbled."""
    lines = said.splitlines()
    end = _decoded(lines[-1]) if lines else None
    if not isinstance(end, dict) or list(end) != ["libraries"]:
        raise Garbled("the answer has no end")
    count = _number(end["libraries"], 0, 1 << 31)
    if count > LIBRARIES:
        raise Garbled(f"{count} libraries, more than {LIBRARIES}")
    if count != len(lines) - 1:
        raise Garbled(f"{len(lines) - 1} of {count} libraries came")
    return tuple(_library(_decoded(line)) for line in lines[:-1])


def _decoded(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as bad:
        raise Garbled(f"a line that is no JSON: {line[:40]!r}") from bad


def _library(raw: object) -> Library:
    if not isinstance(raw, dict) or set(raw) != {"path", "size", "trouble", "binaries"}:
        raise Garbled("a line that tells of no library")
    path, trouble = _text(raw["path"]), _text(raw["trouble"])
    return Library(path, _number(raw["size"], 0, 1 << 63), tuple(map(_binary, _items(raw["binaries"]))), trouble)


def _binary(raw: object) -> FatBinary:
    codes, kernels = _items(raw, 2)
    return FatBinary(tuple(map(_code, _items(codes))), tuple(map(_text, _items(kernels))))


def _code(raw: object) -> Code:
    kind, sm, suffix, isa = _items(raw, 4)
    if kind not in ("cubin", "ptx") or suffix not in ("", "a", "f") or (kind == "ptx") != (isa is not None):
        raise Garbled("code of an unknown kind")
    number = _number(sm, 10, 999)
    if isa is None:
        return Code(str(kind), number, str(suffix))
    major, minor = _items(isa, 2)
    return Code(str(kind), number, str(suffix), (_number(major, 0, 0xFFFF), _number(minor, 0, 0xFFFF)))


def _items(raw: object, length: int | None = None) -> list[object]:
    if not isinstance(raw, list) or (length is not None and len(raw) != length):
        raise Garbled("a list that is none, or of a wrong length")
    return raw


def _number(raw: object, least: int, most: int) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not least <= raw <= most:
        raise Garbled("a number that is none, or out of its range")
    return raw


def _text(raw: object) -> str:
    """A text for messages: without control characters, and of bytes that were no UTF-8."""
    if not isinstance(raw, str):
        raise Garbled("a text that is none")
    return re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", "?", raw)
