"""Output without ornament: data for standard output, errors for standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bascule.journal import Event


class JsonLines:
    """Events as JSON lines on standard output, for programs."""

    def event(self, event: Event) -> None:
        """Print an event."""
        print_json({"run": event.run, "at": event.at.isoformat(), "kind": event.kind, **event.data}, lines=True)

    def look(self, ranks: Sequence[object]) -> None:
        """Nothing: a program asks `status`."""

    def close(self) -> None:
        """Nothing to end."""


def out(text: str) -> None:
    """Data for standard output."""
    print(text)


def say(text: str) -> None:
    """Talk for standard error."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: object, *, lines: bool = False) -> None:
    """Data for programs on standard output."""
    from bascule.core.plain import to_plain

    print(json.dumps(to_plain(value), indent=None if lines else 2, ensure_ascii=False), flush=True)


def tell_error(code: str, says: str, seen: str, advice: str, more: str = "") -> None:
    """A failure, told on standard error: what, what was seen, what to try."""
    print(f"error[{code}]: {says}", file=sys.stderr)
    for label, text in (("seen", seen), ("try", advice), ("more", more)):
        for at, line in enumerate(text.splitlines()):
            print(f"  {label if at == 0 else '':>4}{':' if at == 0 else ' '} {line}", file=sys.stderr)
