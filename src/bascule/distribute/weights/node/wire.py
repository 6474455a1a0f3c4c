"""What passes between controller and node: lines of JSON on the channel; and expected trouble as an exception."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO


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
    """Writes whole lines, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Write one line."""
        line = packed(message)
        try:
            with self._lock:
                self._stream.write(line)
                self._stream.flush()
        except OSError:
            os._exit(1)  # the controller is gone


def packed(message: dict[str, Any]) -> bytes:
    """A message as one line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def messages(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """All messages until the other side closes."""
    for line in stream:
        if line.endswith(b"\n"):  # else closed in mid-line
            yield json.loads(line)


def submit(pool: ThreadPoolExecutor, work: Callable[[Any], None], about: Any) -> None:
    """Run it in a thread; an error there is a bug, and ends the helper with its traceback."""
    pool.submit(work, about).add_done_callback(_end_of_bug)


def _end_of_bug(done: Future[None]) -> None:
    if error := done.exception():
        traceback.print_exception(type(error), error, error.__traceback__)
        sys.stderr.flush()
        os._exit(70)
