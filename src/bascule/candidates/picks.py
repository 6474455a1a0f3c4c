"""Which images of registries are looked at: tags of known repositories, and what Docker Hub's search gives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bascule.candidates.ask import Ask, Unread
from bascule.core.reading import Unreadable
from bascule.discover.docker_hub import DockerHub, Found, Popularity, Tag
from bascule.discover.images import Known, chosen, family_of, recognised, searches
from bascule.discover.offers import CATALOGUE, SEARCH
from bascule.registry.aside import aside
from bascule.registry.oci import reference_of
from bascule.registry.repository import Repository

MOST_FOUND = 25  # repositories that one search may give
MOST_REPOSITORIES = 8  # of all searches together that are looked at
HUBS_OWN = "docker.io"

Listed = tuple[list[list["Pick"]], list[Unread]]


@dataclass(frozen=True, slots=True)
class Pick:
    """An image of a registry that is to be looked at."""

    name: str
    source: str
    known: Known | None = None
    popularity: Popularity | None = None
    also: tuple[str, ...] = ()  # other tags of the same digest
    named: bool = False


async def from_catalogue(ask: Ask, gate: asyncio.Semaphore) -> Listed:
    """The tags to look at, repository by repository; and what gave no answer."""
    rows = [known for known in ask.images.known if _may_fit(known, ask)]
    return _sorted(await asyncio.gather(*(_picks(known, CATALOGUE, ask, gate) for known in rows)))


async def from_search(ask: Ask, gate: asyncio.Semaphore) -> Listed:
    """What a search of Docker Hub gives beside the catalogue, the most pulled first."""
    wanted = ask.wanted
    engines = [name for name in ask.images.searches if name in wanted.engines and name not in wanted.unfit]
    queries = searches(ask.images, engines, ask.gpu or _gpu(ask), family_of(ask.model.model_type))
    hub = DockerHub(ask.access, ask.hub)
    answers = await asyncio.gather(*(_searched(hub, query, gate) for query in queries))
    lost = [one for one in answers if isinstance(one, Unread)]
    known = {row.name for row in ask.images.known}
    found = {row.name: row for one in answers if not isinstance(one, Unread) for row in one if row.name not in known}
    rows = [made for row in sorted(found.values(), key=lambda row: -row.pulls) if (made := _known(row, engines, ask))]
    lists, failed = _sorted(await asyncio.gather(*(_picks(row, SEARCH, ask, gate) for row in rows[:MOST_REPOSITORIES])))
    return lists, [*lost, *failed]


async def _searched(hub: DockerHub, query: str, gate: asyncio.Semaphore) -> tuple[Found, ...] | Unread:
    try:
        async with gate:
            return await aside(hub.search, query, MOST_FOUND)
    except Unreadable as trouble:
        return Unread.of(trouble, f"{SEARCH}: {query}")


async def _picks(known: Known, source: str, ask: Ask, gate: asyncio.Semaphore) -> list[Pick] | Unread:
    try:
        async with gate:
            return await aside(_listed, known, source, ask)
    except Unreadable as trouble:
        return Unread.of(trouble, known.name)


def _listed(known: Known, source: str, ask: Ask) -> list[Pick]:
    """Tags by Docker Hub's list where the repository is one of its own, else by the registry's. Raises Unreadable."""
    reference = reference_of(known.name)
    if reference.registry != HUBS_OWN:
        names = chosen(known, Repository(reference, ask.access).tags().names)
        return [Pick(f"{known.name}:{tag}", source, known) for tag in names]
    hub, popularity, tags = DockerHub(ask.access, ask.hub), None, tuple[Tag, ...]()
    try:
        popularity = hub.popularity(reference.repository)
        tags = hub.tags(reference.repository)
    except Unreadable as trouble:
        ask.tell(f"{known.name}: {trouble.why}; asking the registry itself for its tags")
        tags = tuple(Tag(name, None, ()) for name in Repository(reference, ask.access).tags().names)
    names = chosen(known, [tag.name for tag in tags])
    names = names or _newest(tags) if source == SEARCH else names
    return _without_twins(known, source, names, {tag.name: tag.digest for tag in tags}, popularity)


def _newest(tags: Sequence[Tag]) -> tuple[str, ...]:
    """The tag that was pushed last, of a repository that has none of the usual ones."""
    dated = [tag for tag in tags if tag.updated]
    return (max(dated, key=lambda tag: str(tag.updated)).name,) if dated else tuple(tag.name for tag in tags[:1])


def _without_twins(
    known: Known, source: str, names: Sequence[str], digests: Mapping[str, str], popularity: Popularity | None
) -> list[Pick]:
    """Tags of one digest are one pick."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(digests[name] or name, []).append(f"{known.name}:{name}")
    return [Pick(tags[0], source, known, popularity, tuple(tags[1:])) for tags in groups.values()]


def _may_fit(known: Known, ask: Ask) -> bool:
    """Whether it is worth asking for it: what can't be a candidate by the catalogue's words isn't."""
    wanted = ask.wanted
    gpu = ask.gpu or _gpu(ask)
    accelerators = {known.accelerator, wanted.accelerator} - {""}
    return (
        known.engine in wanted.engines
        and known.engine not in wanted.unfit
        and len(accelerators) < 2
        and not (known.gpus and gpu and gpu not in known.gpus)
        and not (known.platforms and any(one not in known.platforms for one in wanted.platforms))
    )


def _known(row: Found, engines: Sequence[str], ask: Ask) -> Known | None:
    engine, _ = recognised((("name", row.name), ("text", row.says)), ask.images)
    return Known(row.name, engine, ("latest",), None) if engine in engines else None


def _gpu(ask: Ask) -> str:
    """The GPU of all nodes, where it is one."""
    kinds = {gpu.sm or "" for node in ask.nodes for gpu in node.facts.gpus or ()}
    return kinds.pop() if len(kinds) == 1 else ""


def _sorted(rows: Sequence[list[Pick] | Unread]) -> Listed:
    return [row for row in rows if not isinstance(row, Unread)], [row for row in rows if isinstance(row, Unread)]
