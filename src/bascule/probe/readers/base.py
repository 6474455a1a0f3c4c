"""What a reader is: an engine's facts from data/engines, and the function that answers for it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from bascule.core.reading import EXCERPT, Spot
from bascule.probe.literal import evaluate
from bascule.probe.packages import Package, same_name
from bascule.probe.values import Answer, Draft, Table, Unknown, ask, lines_of
from bascule.probe.verdict import Answers, Question
from bascule.probe.views.base import View, ere

Look = Callable[[View, Question, Package | None], Awaitable[Answers]]


@dataclass(frozen=True, slots=True)
class Reader:
    """How one engine is read."""

    engine: str
    look: Look
    title: str  # as sentences name it
    order: int  # in which a target is searched for an engine
    folder: str  # its package
    distributions: tuple[str, ...]  # names it has on a package index
    kernels: tuple[str, ...] = ()  # distributions that hold its compiled kernels, where they are not its own


def reader_of(engine: str, look: Look) -> Reader:
    """A reader whose facts are in data/engines/ENGINE.toml."""
    facts = engine_facts(engine)
    kernels = facts.get("kernels", {}).get("distributions", ())
    names = (tuple(facts["distributions"]), tuple(kernels))
    return Reader(engine, look, facts["title"], facts["order"], facts["folder"], *names)


@cache
def engine_facts(engine: str) -> Mapping[str, Any]:
    """What data/engines/ENGINE.toml says."""
    return tomllib.loads(resources.files("bascule.probe").joinpath(f"data/engines/{engine}.toml").read_text("utf-8"))


class Modules:
    """The Python modules that one question asks for: each is read once, and evaluated once for all questions."""

    def __init__(self, view: View, calls: Mapping[str, Any] | None = None) -> None:
        self.view = view
        self._calls = tuple((calls or {}).items())
        self._sources: dict[str, bytes | None] = {}
        self._plugins: Answer | None = None

    async def source(self, path: str) -> bytes | None:
        """The text of a file; None when it isn't there. Raises Unreadable."""
        if path not in self._sources:
            self._sources[path] = await self.view.read(path)
        return self._sources[path]

    async def names(self, paths: Sequence[str]) -> Any:
        """The names of the first of these modules that is there, or Unknown."""
        for path in paths:
            source = await self.source(path)
            if source is not None:
                return _evaluated(source, path, self._calls)
        return Unknown(Spot(paths[0], None, "no such file"), f"{paths[0]} is missing")

    async def value(self, paths: Sequence[str], name: str) -> Any:
        """One name of such a module: a list comes as a table of its items, each with its own line."""
        value = lookup(await self.names(paths), name)
        if not isinstance(value, tuple):
            return value
        for path in paths:
            source = await self.source(path)
            if source is not None:
                return _table_of(value, name, path, source)
        return value

    async def plugins(self, engine: str) -> Answer:
        """Whether another distribution beside the engine says that it plugs into it; asked once, when it matters.

        In an image it takes all layers to know that there is none.
        """
        if self._plugins is None:
            facts = engine_facts(engine)["plugins"]
            found = await self.view.search(rf"^\[ *{ere(facts['group'])} *\]", "*.dist-info/entry_points.txt")
            self._plugins = _plugged(found.hits, facts["own"])
        return self._plugins


@lru_cache(maxsize=32)  # many models are asked of one engine
def _evaluated(source: bytes, path: str, calls: tuple[tuple[str, Any], ...]) -> Any:
    return evaluate(source, path, calls=dict(calls))


def lookup(names: Any, name: str) -> Any:
    """The value of one name of a module."""
    if isinstance(names, Unknown):
        return names
    return names.get(name, Unknown(Spot(name, None, "not assigned at the top of the module"), f"there is no {name}"))


def any_of(table: Any, names: Sequence[str], what: str = "the registry") -> Answer:
    """Whether a table has one of these names: a yes, else a doubt, else the no of the first."""
    answers = [ask(table, name, what) for name in names]
    order = {True: 0, None: 1, False: 2}
    return min(answers, key=lambda answer: order[answer.yes])


def no_architecture(question: Question) -> Answer:
    """The answer for a model whose config.json names no class."""
    spot = Spot(f"{question.model.path}/config.json", None, "no architectures")
    return Answer(None, (spot,), "its config.json names no architectures")


def _plugged(hits: Sequence[Spot], own: Sequence[str]) -> Answer:
    for hit in hits:
        name = hit.path.split("-")[0]
        if not any(same_name(name, each) for each in own):
            return Answer(None, (hit,), f"the plugin {name} may teach it more")
    return Answer(False, ())


def _table_of(items: tuple[Any, ...], name: str, path: str, source: bytes) -> Table:
    """A list as a table; an item's line is the first that quotes it after the name of the list."""
    lines = lines_of(source)
    last = name.rpartition(".")[2]
    start = next((place for place, line in enumerate(lines) if line.lstrip().startswith(last)), 0)
    where = Spot(path, start + 1, lines[start].strip()[:EXCERPT])
    quoted: dict[str, Spot] = {}
    for number, line in enumerate(lines[start:], start + 1):
        for text in re.findall(r"""["']([^"']*)["']""", line):
            quoted.setdefault(text, Spot(path, number, line.strip()[:EXCERPT]))
    draft = Draft(where)
    for item in items:
        draft.add(item, None, quoted.get(item, where) if isinstance(item, str) else where)
    return draft.table()
