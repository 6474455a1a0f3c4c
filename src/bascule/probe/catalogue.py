"""Reads the releases of engines on a package index, one after the other; a wheel that was read before is skipped."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Protocol

import httpx2

from bascule.core.reading import Unreadable
from bascule.errors import BasculeError, RecipeError
from bascule.probe.catalogue_files import keep, kept
from bascule.probe.census import Release, read_release, sum_up
from bascule.probe.index import VERSION, Wheel, client_for, index_url, order, releases, smallest, wheels_of
from bascule.probe.readers.base import engine_facts
from bascule.probe.views.remote_wheel import open_wheel


@dataclass(frozen=True, slots=True)
class Source:
    """Where an engine's releases are found."""

    engine: str
    distributions: Sequence[str]  # the first says which releases there are
    since: str  # the oldest to look at


@dataclass(slots=True)
class Counts:
    """What reading one engine took."""

    engine: str
    releases: int = 0
    cached: int = 0
    unread: list[str] = field(default_factory=list)
    bytes: int = 0  # on the wire, less the pages of the index
    requests: int = 0
    seconds: float = 0.0


class Report(Protocol):
    """Is told how the reading goes."""

    def release(self, engine: str, release: Release, size: int) -> None:
        """A wheel was read, or could not be; bytes on the wire."""
        ...

    def engine(self, counts: Counts) -> None:
        """All of an engine was read."""
        ...

    def without(self, distribution: str, why: str) -> None:
        """A distribution beside the main one could not be listed."""
        ...


def sources_of(engines: Sequence[str], since: str | None) -> list[Source]:
    """These engines, or all; `since` overrides the oldest release of one. Raises RecipeError."""
    text = resources.files("bascule.probe").joinpath("data/catalog.toml").read_text()
    oldest = {engine: str(row["since"]) for engine, row in tomllib.loads(text).items()}
    strange = next((engine for engine in engines if engine not in oldest), None)
    if strange is not None:
        raise RecipeError("usage", f"there is no catalogue of {strange}", advice=f"one of {', '.join(oldest)}")
    wanted = list(dict.fromkeys(engines)) or list(oldest)
    if since is not None and (len(wanted) != 1 or not VERSION.fullmatch(since)):
        raise RecipeError("usage", "--since takes a release, for one engine", seen=since, advice="--since 0.14.0")
    return [Source(engine, engine_facts(engine)["distributions"], since or oldest[engine]) for engine in wanted]


async def read_engines(sources: Sequence[Source], index: str | None, report: Report) -> Mapping[str, Any]:
    """The parts of the catalogue: engine -> what sum_up makes of its releases. Raises BasculeError."""
    index = index or await index_url()
    if index is None or not index.startswith(("https://", "http://")):
        seen = index or "neither PIP_INDEX_URL nor a pip that tells one"
        advice = "--index URL, or set PIP_INDEX_URL"
        raise RecipeError("package-index", "no package index to ask", seen=seen, advice=advice)
    async with client_for() as client:
        return {source.engine: await _Reading(source, client, report).read(index) for source in sources}


class _Reading:
    """The reading of one engine."""

    def __init__(self, source: Source, client: httpx2.AsyncClient, report: Report) -> None:
        self.source = source
        self.client = client
        self.report = report
        self.counts = Counts(source.engine)

    async def read(self, index: str) -> Mapping[str, Any]:
        begun = time.monotonic()
        lists = await self._wheels(index)
        wheels = [wheel for some in lists for wheel in some]
        versions = [version for version in releases(lists[0]) if order(version) >= order(self.source.since)]
        chosen = [(version, smallest(wheels, version)) for version in versions]
        found = [await self._release(version, wheel) for version, wheel in chosen if wheel]
        self.counts.releases, self.counts.seconds = len(found), time.monotonic() - begun
        if not any(release.names for release in found):
            says = f"no release of {self.source.engine} could be read"
            seen = found[0].doubt if found else f"the index has no release from {self.source.since} on"
            raise BasculeError("catalog-empty", says, seen=seen, advice="nothing was written; see --index and --since")
        self.report.engine(self.counts)
        return sum_up(found)

    async def _wheels(self, index: str) -> list[tuple[Wheel, ...]]:
        """Of each distribution; only the first must be there."""
        found = []
        for name in self.source.distributions:
            try:
                found.append(await wheels_of(self.client, index, name))
            except Unreadable as trouble:
                if not found:
                    says = f"the index does not list {name}"
                    advice = "nothing was written; --index names another index"
                    raise BasculeError("package-index", says, seen=trouble.why, advice=advice) from None
                self.report.without(name, trouble.why)
        return found

    async def _release(self, version: str, wheel: Wheel) -> Release:
        release = kept(self.source.engine, version, wheel.sha256)
        if release:
            self.counts.cached += 1
        else:
            release, size = await self._from_wheel(version, wheel)
            self.report.release(self.source.engine, release, size)
        if release.doubt:
            self.counts.unread.append(version)
        return release

    async def _from_wheel(self, version: str, wheel: Wheel) -> tuple[Release, int]:
        size = 0
        try:
            async with open_wheel(self.client, wheel) as view:
                try:
                    release = await read_release(self.source.engine, version, view, self.source.distributions)
                finally:
                    size = view.files.meter.total
                    self.counts.bytes += size
                    self.counts.requests += view.requests
        except Unreadable as trouble:
            return Release(version, doubt=str(trouble)), size
        keep(self.source.engine, release, wheel.sha256)
        return release, size
