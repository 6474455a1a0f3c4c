"""What passes between controller and node: frames of JSON on the channel; and expected trouble as an exception."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

MARKER = b"bascule-weights-1\n"  # before the first frame; login shells may print before it
_LENGTH = struct.Struct(">I")


class Trouble(Exception):
    """Something that a person has to know of; the controller makes a finding of it."""

    def __init__(self, kind: str, says: str, seen: str = "") -> None:
        super().__init__(says)
        self.kind = kind
        self.says = says
        self.seen = seen

    def plain(self) -> dict[str, str]:
        """As JSON carries it."""
        return {"kind": self.kind, "says": self.says, "seen": self.seen}


class Outlet:
    """Writes whole frames, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Say where frames begin."""
        with self._lock:
            self._stream.write(MARKER)
            self._stream.flush()

    def send(self, message: dict[str, Any]) -> None:
        """Write one frame."""
        frame = packed(message)
        with self._lock:
            self._stream.write(frame)
            self._stream.flush()


def packed(message: dict[str, Any]) -> bytes:
    """One frame: its length in four bytes, then JSON."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def frames(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """All frames until the other side closes."""
    while True:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return
        text = stream.read(_LENGTH.unpack(head)[0])
        try:
            yield json.loads(text)
        except ValueError:
            return  # closed in mid-frame
