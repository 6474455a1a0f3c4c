"""Facts about engines' compiled code that live in data/kernels.toml: where it is, what for, and known cures."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

from bascule.core.nouns import Quantization


@dataclass(frozen=True, slots=True)
class Place:
    """Libraries with one purpose."""

    globs: tuple[str, ...]
    what: str
    weight: str  # needed, matters or optional: see kernels.toml
    change: str = ""
    only: tuple[int, ...] = ()  # the SMs it is loaded for; () = any
    but: tuple[int, ...] = ()  # the SMs it is not loaded for

    def holds(self, path: str) -> bool:
        """True when it is one of these libraries."""
        return any(PurePosixPath(path).match(glob) for glob in self.globs)

    def serves(self, sm: int) -> bool:
        """True when the engine loads it on this GPU."""
        return sm not in self.but and (not self.only or sm in self.only)


@dataclass(frozen=True, slots=True)
class Places:
    """All compiled code of one engine."""

    libraries: tuple[Place, ...]
    torch: bool  # it runs on PyTorch, and so on PyTorch's kernels
    triton: bool  # it has kernels that Triton compiles where they run
    others: str = ""  # strings of a build that needs no CUDA code


@dataclass(frozen=True, slots=True)
class Need:
    """The kernels that a kind of quantization wants."""

    what: str
    kernels: re.Pattern[str]
    change: Mapping[str, str]  # by engine


@dataclass(frozen=True, slots=True)
class Tools:
    """Files that tell more: PyTorch's version and list of architectures, and compilers."""

    version: str
    declared: str
    ptxas: tuple[str, ...]
    nvcc: tuple[str, ...]
    change: str  # what to try when ptxas doesn't know the GPU


def places(engine: str) -> Places | None:
    """Where an engine keeps its compiled code; None when nobody looked."""
    raw = _data()["engines"].get(engine)
    if raw is None:
        return None
    rows = [*raw.get("libraries", ()), *(_data()["torch"] if raw["torch"] else ())]
    return Places(tuple(map(_place, rows)), raw["torch"], raw["triton"], raw.get("others", ""))


def need(quantization: Quantization) -> Need | None:
    """What a quantized model wants; None when its kind isn't in the list."""
    words = f"{quantization.method} {quantization.algorithm}".lower() + (" blocks" if quantization.block else "")
    for raw in _data()["quantizations"]:
        if re.search(raw["fits"], words):
            return Need(raw["what"], re.compile(raw["kernels"]), raw.get("change", {}))
    return None


def driver_for(isa: tuple[int, int]) -> str:
    """Which driver compiles PTX of an ISA, for sentences."""
    major, minor = isa
    row = _data()["ptx"].get(f"{major}.{minor}")
    return f"the driver of CUDA {row[0]} (r{row[1]}) or newer" if row else f"a driver that knows PTX {major}.{minor}"


@cache
def tools() -> Tools:
    """The files that tell more."""
    raw = _data()["tools"]
    return Tools(raw["version"], raw["declared"], tuple(raw["ptxas"]), tuple(raw["nvcc"]), raw["change"])


def _place(raw: Mapping[str, Any]) -> Place:
    only, but = tuple(raw.get("only", ())), tuple(raw.get("except", ()))
    return Place(tuple(raw["globs"]), raw["what"], raw["weight"], raw.get("change", ""), only, but)


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("bascule.probe").joinpath("data/kernels.toml").read_text())
