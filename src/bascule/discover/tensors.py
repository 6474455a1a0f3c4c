"""Which part of a model a tensor of its checkpoint is, by name (pure); the names are in data/tensors.toml."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

from bascule.discover.facts import tensor_rows

Place = tuple[int, str]  # number of the layer, or OUTSIDE, and the part
OUTSIDE = -1
_NUMBER = re.compile(r"\d+")


def weigh_parts(tensors: Iterable[tuple[str, int]]) -> dict[Place, int]:
    """Bytes by layer and part, of names and bytes of tensors."""
    found: Counter[Place] = Counter()
    for name, size in tensors:
        found[place_of(name)] += size
    return dict(found)


def place_of(name: str) -> Place:
    """The layer and the part of a tensor; `other` is what no row knows."""
    part = _part_of(_NUMBER.sub("0", name))
    if part == "vision":
        return OUTSIDE, part
    number = _patterns()[1].search(name)
    return (int(number[1]) if number else OUTSIDE), part


def behind(parts: Mapping[Place, int], layers: int) -> dict[Place, int]:
    """The same with layers that the model does not count among its own as `draft`: they predict more tokens."""
    found: Counter[Place] = Counter()
    for (layer, part), size in parts.items():
        extra = layer >= layers or part == "draft"
        found[(OUTSIDE, "draft") if extra else (layer, part)] += size
    return dict(found)


@lru_cache(maxsize=4096)
def _part_of(name: str) -> str:
    """By a name whose numbers are all 0: a model has few of these."""
    return next((part for part, pattern in _patterns()[0] if pattern.search(name)), "other")


@cache
def _patterns() -> tuple[tuple[tuple[str, re.Pattern[str]], ...], re.Pattern[str]]:
    rows, layer = tensor_rows()
    return tuple((part, re.compile(pattern)) for part, pattern in rows), re.compile(layer)
