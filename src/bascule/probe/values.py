"""What the probe reads out of Python files: spots, tables whose keys have spots, and honest gaps."""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from bascule.core.reading import EXCERPT, Spot

WORK = 500_000  # steps for one file, a second at most; the largest of the real ones takes 15 000
PLAIN = (str, int, float, bytes, type(None))  # what may be a key, and what is compared
DICTS = ("dict", "OrderedDict")  # classes that make a dict, whatever file names them


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

    def having(self, key: object, value: object, spot: Spot) -> Table:
        """This table with one entry more."""
        draft = Draft.of(self)
        draft.add(key, value, spot)
        return draft.table()

    def merged(self, other: object, spot: Spot) -> Table:
        """This table, overridden by another value; one that is no table leaves a gap."""
        draft = Draft.of(self)
        draft.merge(other, spot)
        return draft.table()

    def without(self, key: object, spot: Spot) -> Table:
        """This table less one entry."""
        if isinstance(key, Unknown) or not isinstance(key, PLAIN):
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
class Draft:
    """A table while it grows, so that a long one isn't copied for each row."""

    where: Spot
    entries: dict[Any, Any] = field(default_factory=dict)
    spots: dict[Any, Spot] = field(default_factory=dict)
    gaps: list[Unknown] = field(default_factory=list)

    @classmethod
    def of(cls, table: Table) -> Draft:
        """A copy of a table that may grow."""
        return cls(table.where, dict(table.entries), dict(table.spots), list(table.gaps))

    def add(self, key: object, value: object, spot: Spot) -> None:
        """One entry more; a key that can't be told is a gap."""
        if isinstance(key, Unknown):
            self.gaps.append(key)
        elif not isinstance(key, PLAIN):
            self.gaps.append(Unknown(spot, "has a key that is no plain literal"))
        else:
            self.entries[key], self.spots[key] = value, spot

    def merge(self, other: object, spot: Spot) -> None:
        """All entries of another table."""
        if isinstance(other, Unknown):
            self.gaps.append(other)
        elif not isinstance(other, Table):
            self.gaps.append(Unknown(spot, "merges something that is no dict"))
        else:
            self.entries.update(other.entries)
            self.spots.update(other.spots)
            self.gaps += other.gaps

    def table(self) -> Table:
        """What it has become; the draft isn't used any more."""
        return Table(self.where, self.entries, self.spots, tuple(self.gaps))


class TooMuch(Exception):
    """A file asks for more steps than are spent on one."""


@dataclass
class Budget:
    """The steps that are left for one file: what was written to be heavy ends soon, too."""

    left: int = WORK

    def spend(self, steps: int) -> None:
        """Take so many steps. Raises TooMuch."""
        self.left -= steps
        if self.left < 0:
            raise TooMuch


@dataclass
class Env:
    """What is known while one file is read: its lines, its names, and its own classes that are dicts."""

    path: str
    lines: list[str]
    names: MutableMapping[str, Any] = field(default_factory=dict)
    calls: Mapping[str, Any] = field(default_factory=dict)  # functions whose answer is known, e.g. is_cuda
    dict_classes: set[str] = field(default_factory=lambda: set(DICTS))
    budget: Budget = field(default_factory=Budget)

    def spot(self, node: ast.AST) -> Spot:
        """Where a node stands."""
        return spot_in(self.lines, self.path, node)

    def unknown(self, node: ast.AST, why: str) -> Unknown:
        """An honest gap at a node."""
        return Unknown(self.spot(node), why)

    def copy(self) -> Env:
        """The same file with names of its own, as they are now."""
        self.budget.spend(len(self.names))
        return Env(self.path, self.lines, dict(self.names), self.calls, set(self.dict_classes), self.budget)

    def inner(self) -> Env:
        """The same file with more names, for one round of a comprehension."""
        self.budget.spend(10)
        return Env(self.path, self.lines, ChainMap({}, self.names), self.calls, self.dict_classes, self.budget)


def lines_of(source: bytes) -> list[str]:
    """The lines of a file as Python counts them."""
    return re.split(r"\r\n|\r|\n", source.decode("utf-8-sig", errors="replace"))


def spot_in(lines: list[str], path: str, node: ast.AST) -> Spot:
    """Where a node of a file stands."""
    number = getattr(node, "lineno", 1)
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return Spot(path, number, text[:EXCERPT])


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
