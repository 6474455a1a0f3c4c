"""GPUs by name, links by kind, and what engines take of memory: the tables of data/."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from bascule.core.cache import CacheRules
from bascule.core.fit import Engine, Step
from bascule.core.parallel import Customs
from bascule.core.roofline import Link

GIB = 1 << 30
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One row of the table of GPUs."""

    name: str
    sm: str
    memory_bytes: int  # as nvidia-smi tells it
    unified: bool
    bandwidth: float  # bytes a second, of the data sheet
    link: str  # how GPUs of one machine exchange
    source: str


def gpu_model(name: str) -> GpuModel | None:
    """The GPU of this name; None when the table has none."""
    row = next((row for row in _data("gpus")["gpu"] if re.search(row["pattern"], name, re.IGNORECASE)), None)
    if row is None:
        return None
    return GpuModel(
        row["name"],
        row["sm"],
        row["memory_mib"] * _MIB,
        row.get("unified", False),
        row["bandwidth_gb_s"] * 1e9,
        row["link"],
        row.get("source", "NVIDIA's data sheet"),
    )


def gpu_names() -> tuple[str, ...]:
    """What the table knows, as a person would write it."""
    return tuple(row["name"] for row in _data("gpus")["gpu"])


def link(kind: str) -> Link | None:
    """A link of this kind at its best; None when the table has none."""
    row = _data("links").get(kind)
    if not isinstance(row, Mapping):
        return None
    return Link(kind, row["latency_us"] / 1e6, row["rate_gb_s"] * 1e9)


def link_kinds() -> tuple[str, ...]:
    """All kinds of links."""
    return tuple(name for name, row in _data("links").items() if isinstance(row, Mapping))


def engine_memory(name: str, version: str = "") -> Engine | None:
    """How this engine uses memory; None when nobody looked at it."""
    row = next((row for row in _data("engine_memory")["engine"] if row["name"] == name), None)
    if row is None:
        return None
    older: Mapping[str, Any] = next(
        (one for one in row.get("since", ()) if version and _number(version) < _number(one["before"])), {}
    )
    return Engine(
        name,
        CacheRules(**{**row["cache"], **older.get("cache", {})}),
        Customs(row["pads_vocabulary"], row["uneven_experts"]),
        {kind: _gib(size) for kind, size in row["context"].items()},
        _gib(row["group"]),
        _gib(row["graphs"]),
        row["usual"],
        row["most"],
        tuple(Step(_gib(memory), tokens, at_once, unless) for memory, tokens, at_once, unless in row["steps"]),
        row["outside"],
        row["cpu_block"],
        row["cells"],
    )


def engines_with_memory() -> tuple[str, ...]:
    """Engines that somebody looked at."""
    return tuple(row["name"] for row in _data("engine_memory")["engine"])


def reserved() -> int:
    """Bytes of a GPU's memory that nvidia-smi counts and CUDA does not give."""
    return _gib(_data("engine_memory")["reserved"])


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


def _gib(size: float) -> int:
    return round(size * GIB)


@cache
def _data(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files("bascule.discover").joinpath(f"data/{name}.toml").read_text(encoding="utf-8"))
