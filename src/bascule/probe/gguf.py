"""The head of a GGUF file: its architecture, from the key-value pairs that open it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

HEAD = 1024 * 1024  # bytes; general.architecture is the first pair in files of llama.cpp's converter
KEY = "general.architecture"
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type -> bytes of a scalar
_STRING, _ARRAY = 8, 9


class NotGguf(ValueError):
    """The bytes are no GGUF head, or end before the architecture; says at which byte."""


@dataclass
class _Cursor:
    data: bytes
    order: str
    wide: bool  # lengths are 64 bits from version 2 on
    at: int = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise NotGguf(f"{KEY} is not in the first {len(self.data)} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little" if self.order == "<" else "big")

    def length(self) -> int:
        return self.number(8 if self.wide else 4)

    def string(self) -> str:
        return self.take(self.length()).decode(errors="replace")

    def skip(self, kind: int) -> None:
        if kind == _STRING:
            self.take(self.length())
        elif kind == _ARRAY:
            inner, count = self.number(4), self.length()
            if inner in _SIZES:
                self.take(_SIZES[inner] * count)
                return
            for _ in range(count):
                self.skip(inner)
        elif kind in _SIZES:
            self.take(_SIZES[kind])
        else:
            raise NotGguf(f"byte {self.at}: value type {kind} is none of GGUF's")


def architecture(head: bytes) -> str:
    """`general.architecture` of a GGUF file, from its first bytes. Raises NotGguf."""
    if head[:4] != b"GGUF" or len(head) < 8:
        raise NotGguf("byte 0: does not begin with GGUF")
    order = "<" if struct.unpack("<I", head[4:8])[0] < 0x10000 else ">"
    version = struct.unpack(f"{order}I", head[4:8])[0]
    if version not in (1, 2, 3):
        raise NotGguf(f"byte 4: GGUF version {version} is not known here")
    cursor = _Cursor(head, order, version >= 2, 8)
    cursor.length()  # number of tensors
    for _ in range(cursor.length()):
        key, kind = cursor.string(), cursor.number(4)
        if key == KEY and kind == _STRING:
            return cursor.string()
        cursor.skip(kind)
    raise NotGguf(f"no {KEY} among its pairs")
