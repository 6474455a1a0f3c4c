"""Facts that came with bascule: model types of architectures, and how formats of quantization store weights."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Format:
    """How a quantization stores weights: bits of one, and bytes of scales that come with it."""

    bits: int
    scales: float


def model_type_of(architecture: str) -> str:
    """The one model_type that has this architecture; "" when several have it, or nobody looked."""
    name: str = _data("model_types").get(architecture, "")
    return name


def format_of(method: str, algorithm: str) -> Format | None:
    """How a quantization stores weights; None when it isn't in the list."""
    name = f"{method} {algorithm}".lower()
    rows = _data("formats")["format"]
    row = next((row for row in rows if any(word in name for word in row["words"])), None)
    return Format(row["bits"], row["scales"]) if row else None


def estimate_fact(name: str) -> frozenset[str]:
    """A list of names that estimates go by."""
    return frozenset(_data("formats")["estimate"][name])


def attention_fact(name: str) -> Mapping[str, int]:
    """A table of numbers by model_type about attention."""
    table: Mapping[str, int] = _data("formats")["attention"][name]
    return table


def tensor_rows() -> tuple[tuple[tuple[str, str], ...], str]:
    """Parts of a model and patterns of the names of their tensors, and the pattern of a layer's number."""
    found = _data("tensors")
    return tuple((row["part"], row["pattern"]) for row in found["row"]), found["layer"]


@cache
def scale_names() -> re.Pattern[str]:
    """Matches names of tensors that hold scales, zero points or the like, and no parameters."""
    return re.compile(_data("formats")["tensors"]["scales"])


@cache
def _data(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files("bascule.discover").joinpath(f"data/{name}.toml").read_text(encoding="utf-8"))
