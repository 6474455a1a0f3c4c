"""What the probe reads out of Python files: spots, tables whose keys have spots, and honest gaps."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EXCERPT = 200  # characters of a line that are kept
DICTS = ("dict", "OrderedDict")  # classes that make a dict, whatever file names them


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file, and what stands there."""

    path: str  # relative to the root of the view
    line: int | None
    text: str = ""

    @property
    def source(self) -> str:
        """As evidence names it."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that reading alone can't tell, and why."""

    spot: Spot
    why: str


@dataclass(frozen=True, slots=True)
class Table:
    """A dict as far as it could be evaluated: an entry is certain, an absence is certain only without gaps."""

    where: Spot
    entries: Mapping[Any, Any] = field(default_factory=dict)
    spots: Mapping[Any, Spot] = field(default_factory=dict)
    gaps: tuple[Unknown, ...] = ()

    def merged(self, other: object, spot: Spot) -> Table:
        """This table, overridden by another value; one that is no table leaves a gap."""
        if isinstance(other, Unknown):
            return self.with_gap(other)
        if not isinstance(other, Table):
            return self.with_gap(Unknown(spot, "merges something that is no dict"))
        entries = {**self.entries, **other.entries}
        return Table(self.where, entries, {**self.spots, **other.spots}, self.gaps + other.gaps)

    def having(self, key: object, value: object, spot: Spot) -> Table:
        """This table with one entry more."""
        if isinstance(key, Unknown):
            return self.with_gap(key)
        if not isinstance(key, str | int | float | bytes | None):
            return self.with_gap(Unknown(spot, "has a key that is no plain literal"))
        return Table(self.where, {**self.entries, key: value}, {**self.spots, key: spot}, self.gaps)

    def without(self, key: object, spot: Spot) -> Table:
        """This table less one entry."""
        if isinstance(key, Unknown) or not isinstance(key, str | int | float | bytes | None):
            # Any entry may be gone: nothing is certain any more.
            return Table(self.where, gaps=(*self.gaps, Unknown(spot, "drops an entry that reading can't name")))
        kept = {name: value for name, value in self.entries.items() if name != key}
        return Table(self.where, kept, {name: self.spots[name] for name in kept}, self.gaps)

    def with_gap(self, gap: Unknown) -> Table:
        """This table, where something more may be in it."""
        return Table(self.where, self.entries, self.spots, (*self.gaps, gap))

    def at(self, where: Spot) -> Table:
        """The same, named by another spot."""
        return Table(where, self.entries, self.spots, self.gaps)


@dataclass
class Env:
    """What is known while one file is read: its lines, its names, and its own classes that are dicts."""

    path: str
    lines: list[str]
    names: dict[str, Any] = field(default_factory=dict)
    dict_classes: set[str] = field(default_factory=lambda: set(DICTS))

    def spot(self, node: ast.AST) -> Spot:
        """Where a node stands."""
        number = getattr(node, "lineno", 1)
        text = self.lines[number - 1].strip() if number <= len(self.lines) else ""
        return Spot(self.path, number, text[:EXCERPT])

    def unknown(self, node: ast.AST, why: str) -> Unknown:
        """An honest gap at a node."""
        return Unknown(self.spot(node), why)

    def copy(self, names: Mapping[str, Any] | None = None) -> Env:
        """The same file with names of its own."""
        return Env(self.path, self.lines, dict(self.names if names is None else names), set(self.dict_classes))


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes, no, or not checked (None), each with what was seen."""

    yes: bool | None
    seen: tuple[Spot, ...]
    why: str = ""  # for None: why it could not be told; for yes: what was meant, where that isn't plain


def ask(table: object, key: str, what: str) -> Answer:
    """Whether a table has a key. `what` names the table in sentences."""
    if isinstance(table, Unknown):
        return Answer(None, (table.spot,), f"{what}: {table.why}")
    if not isinstance(table, Table):
        return Answer(None, (Spot(what, None, "no dict of that name"),), f"{what} is no dict")
    if key in table.entries:
        return Answer(True, (table.spots[key],))
    if table.gaps:
        gap = table.gaps[0]
        return Answer(None, (gap.spot,), f"{what} could not be read to its end: {gap.why}")
    return Answer(False, (table.where,))
