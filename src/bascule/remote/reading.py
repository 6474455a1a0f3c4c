"""A reading: a short POSIX command and the pure parsers of what it prints, which belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


def _no_doubts(_text: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Reading:
    """A pair of command and parsers.

    The commands of all readings run in one shell, in order, and may use the variables of those before; each prints its
    facts or nothing, and changes nothing. A parser takes the whole output and raises ValueError, with the reason, when
    its field can't be told from it.
    """

    section: str
    command: str
    parsers: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)  # by field of NodeFacts
    doubts: Callable[[str], Mapping[str, str]] = _no_doubts  # what is missing inside a field that was read, and why


def word(text: str) -> str:
    """The text itself, when there is any."""
    if not text:
        raise ValueError("nothing was printed")
    return text


def number(text: str) -> int:
    """A whole number that isn't negative."""
    if not (word(text).isascii() and text.isdigit()):
        raise ValueError(f"{shortened(text)!r} is no number")
    return int(text)


def status_and_rest(text: str) -> tuple[str, str]:
    """What stands behind `status` in the first line, and the other lines; "" when there is no such line."""
    first, _, rest = text.partition("\n")
    head, _, status = first.partition(" ")
    return (status.strip(), rest.strip()) if head == "status" else ("", text)


def shortened(text: str, most: int = 200) -> str:
    """One line of it, for a reason."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
