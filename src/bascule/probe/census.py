"""What the releases of an engine know: read from each wheel by the probe's own readers, and summed up over all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bascule.core.reading import EXCERPT, Spot
from bascule.probe.packages import installed
from bascule.probe.readers import sglang, transformers
from bascule.probe.readers.base import Modules, engine_facts, lookup
from bascule.probe.values import Table, Unknown
from bascule.probe.views.remote_wheel import RemoteWheel

NAME = re.compile(r"[\w.+/-]{1,120}")  # a key of another kind is no name that a config.json would have
CLASS = re.compile(r"^class (\w+)[(: ]", re.MULTILINE)  # as knows_class looks for one
# What transformers calls the classes that `architectures` may name; those for TensorFlow and Flax went away in 5.0.
MODEL = re.compile(r"(?!TF[A-Z]|Flax)\w+(?:For[A-Z]\w*|(?<!PreTrained)Model|LMHead\w*)")


@dataclass(frozen=True, slots=True)
class Release:
    """What one release knows."""

    version: str
    names: frozenset[str] = frozenset()  # architectures and, of transformers, model types
    doubt: str = ""  # why a name that isn't there may be known all the same
    requires: str = ""  # of transformers, e.g. `<5,>=4.56.0`


async def read_release(engine: str, version: str, view: RemoteWheel, distributions: Sequence[str]) -> Release:
    """What the registry of an engine holds in this wheel. Raises Unreadable."""
    tables = await REGISTRIES[engine](view)
    names = {key for table in tables if isinstance(table, Table) for key in table.entries if isinstance(key, str)}
    gaps = [gap for table in tables for gap in (table.gaps if isinstance(table, Table) else (table,))]
    package = await installed(view, distributions)
    wanted = package.requires.get("transformers") if package else None
    return Release(
        version,
        frozenset(name for name in names if NAME.fullmatch(name)),
        f"{gaps[0].spot.source}: {gaps[0].why}"[:EXCERPT] if gaps else "",
        wanted.specifier if wanted else "",
    )


def sum_up(releases: Sequence[Release]) -> dict[str, Any]:
    """One engine's part of the catalogue, as facts.py reads it. `releases` go from the oldest to the newest.

    A name is said to be first in a release only if the one before was read to its end and lacks it, else `<=`: in that
    one or an earlier. The same holds for the last release: else `>=`, that one or a later.
    """
    part: dict[str, Any] = {}
    last: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    for name in sorted({name for release in releases for name in release.names}):
        at = [place for place, release in enumerate(releases) if name in release.names]
        begin, end = at[0], at[-1]
        part[name] = (
            releases[begin].version if begin and not releases[begin - 1].doubt else f"<={releases[begin].version}"
        )
        if end + 1 < len(releases):
            last[name] = f"{'>=' if releases[end + 1].doubt else ''}{releases[end].version}"
        holes = [releases[place] for one, other in pairwise(at) for place in range(one + 1, other)]
        if any(not release.doubt for release in holes):
            missing[name] = [release.version for release in holes if not release.doubt]
    return part | {
        "last": last,
        "missing": missing,
        "looked": {
            "oldest": releases[0].version,
            "newest": releases[-1].version,
            "releases": [release.version for release in releases if not release.doubt],
        },
        "unread": {release.version: release.doubt for release in releases if release.doubt},
        "requires": {release.version: release.requires for release in releases if release.requires},
    }


async def _vllm(view: RemoteWheel) -> list[Table | Unknown]:
    return [await _value(Modules(view), "vllm", "registry", "_VLLM_MODELS")]


async def _sglang(view: RemoteWheel) -> list[Table | Unknown]:
    globs = engine_facts("sglang")["models"]["globs"]
    paths = await view.find(*globs)
    if not paths:
        return [_nothing(globs[0])]
    await view.fetch(paths)
    tables = []
    for path in paths:
        tables.append(sglang.entry_classes(await view.read(path) or b"", path))
        await asyncio.sleep(0)  # hundreds of files to parse: Ctrl-C is heard in between
    return tables


async def _lmdeploy(view: RemoteWheel) -> list[Table | Unknown]:
    """Of either backend: it serves what one of them has."""
    modules = Modules(view)
    return [
        await _value(modules, "lmdeploy", "pytorch", "MODULE_MAP"),
        await _value(modules, "lmdeploy", "turbomind", "SUPPORTED_ARCHS"),
    ]


async def _transformers(view: RemoteWheel) -> list[Table | Unknown]:
    """Model types by CONFIG_MAPPING_NAMES, classes by their definition: the reader answers by the same two."""
    path = f"{transformers.AUTO}/configuration_auto.py"
    modeling = await view.find(*transformers.MODELING)
    if not modeling:
        return [_nothing(transformers.MODELING[0])]
    newer = f"{transformers.AUTO}/auto_mappings.py"  # from 5.6.0 on
    await view.fetch([path, newer, *modeling])
    names = transformers.configuration_names(await view.read(path) or b"", await view.read(newer))
    classes = Table(Spot(transformers.NAME, None))
    for file in modeling:
        text = (await view.read(file) or b"").decode(errors="replace")
        found = [name for name in CLASS.findall(text) if MODEL.fullmatch(name)]
        classes = classes.merged(Table(Spot(file, None), dict.fromkeys(found)), Spot(file, None))
        await asyncio.sleep(0)
    return [_as_table(lookup(names, "CONFIG_MAPPING_NAMES"), "CONFIG_MAPPING_NAMES"), classes]


async def _value(modules: Modules, engine: str, file: str, name: str) -> Table | Unknown:
    return _as_table(await modules.value(engine_facts(engine)["files"][file], name), name)


def _as_table(value: Any, name: str) -> Table | Unknown:
    return value if isinstance(value, Table | Unknown) else Unknown(Spot(name, None, name), f"{name} is no dict")


def _nothing(path: str) -> Unknown:
    return Unknown(Spot(path, None, "no such files"), "no such files")


REGISTRIES: Mapping[str, Callable[[RemoteWheel], Awaitable[list[Table | Unknown]]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "lmdeploy": _lmdeploy,
    "transformers": _transformers,
}
