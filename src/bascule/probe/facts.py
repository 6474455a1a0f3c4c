"""Facts that came with bascule: which releases know an architecture, and names that llama.cpp gives to models."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Known:
    """Which of the releases that were looked at know a name.

    `<=1.2` and `>=1.2` are releases that were looked at where the one before, or after, was not.
    """

    engine: str
    name: str
    first: str  # `1.2`, or `<=1.2`: in that one or an earlier
    last: str = ""  # `1.2`, or `>=1.2`: in that one or a later; "": the newest that was looked at has it
    missing: tuple[str, ...] = ()  # releases in between that lack it

    @property
    def since(self) -> str:
        """The first release, in words."""
        return f"{self.first[2:]} or earlier" if self.first.startswith("<=") else self.first

    @property
    def until(self) -> str:
        """The last release, in words; "" where it is still known."""
        return f"{self.last[2:]} or later" if self.last.startswith(">=") else self.last


def known(engine: str, name: str) -> Known | None:
    """What is on record about an architecture or model_type; None when no release that was looked at has it."""
    part = _data("first_releases").get(engine, {})
    first = part.get(name)
    if not isinstance(first, str):
        return None
    return Known(engine, name, first, part.get("last", {}).get(name, ""), tuple(part.get("missing", {}).get(name, ())))


def first_release(engine: str, name: str) -> str | None:
    """The first release of an engine that knows it, in words: `0.17.0`, `0.10.0 or earlier`; None: no record."""
    record = known(engine, name)
    return record.since if record else None


def unknown_before(engine: str, name: str) -> str | None:
    """The first release, where it is certain that none before knows the name; None where that isn't certain."""
    record = known(engine, name)
    return record.first if record and not record.first.startswith("<=") else None


def known_from(engine: str, name: str) -> str | None:
    """The release from which on every one knows the name, of those that were looked at; None: there is none."""
    record = known(engine, name)
    if record is None or record.last or record.missing or unread(engine):
        return None
    return record.first.removeprefix("<=")


def looked_at(engine: str) -> tuple[str, ...]:
    """The releases that were looked at, from the oldest to the newest."""
    return tuple(_data("first_releases").get(engine, {}).get("looked", {}).get("releases", ()))


def unread(engine: str) -> Mapping[str, str]:
    """The releases among them that could not be read to their end -> why."""
    gaps: Mapping[str, str] = _data("first_releases").get(engine, {}).get("unread", {})
    return gaps


def engines_on_record() -> tuple[str, ...]:
    """The engines of which releases were looked at."""
    return tuple(_data("first_releases"))


def gguf_architecture(model_type: str) -> str | None:
    """What llama.cpp calls this kind of model; None when it isn't in the list."""
    name: str | None = _data("gguf_architectures").get(model_type)
    return name


@cache
def _data(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files("bascule.probe").joinpath(f"data/{name}.toml").read_text())
