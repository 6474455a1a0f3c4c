"""What a candidate's settings ask of memory and layout, from its flags (pure)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from bascule.core.fit import Wish
from bascule.core.nouns import Candidate
from bascule.core.parallel import Layout

T = TypeVar("T")
# vLLM's human_readable_int: 1k is 1000 and 1K is 1024; only the former may have a fraction (utils/argparse_utils.py).
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LEFT_TO_THE_ENGINE = ("auto", "-1")
_NUMBERS = {"fp8": 1, "bfloat16": 2, "float16": 2, "bf16": 2, "half": 2}  # bytes, by how the type's name begins


@dataclass(frozen=True, slots=True)
class Asked:
    """A candidate as fit sees it; `beyond`: flags whose effect is not known here, `memory`: those on memory alone."""

    wish: Wish
    layout: Layout
    cuts_tower: bool = True
    beyond: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


def asked_of(candidate: Candidate, context: int | None) -> Asked | None:
    """What it asks for on its nodes, `context` where no flag says another; None: its engine's flags aren't known.

    A value that can't be understood makes a flag whose effect is not known: what is wrong with it, the engine says.
    """
    names = _data().get(candidate.engine)
    if names is None:
        return None
    last = {one.name: one.value for one in candidate.in_force if one.kind == "flag"}
    flags = {name: value for name, value in last.items() if value is not None}
    odd: list[str] = []
    wish = Wish(
        context=_read(flags, names["context"], tokens, odd) if names["context"] in flags else context,
        number=_read(flags, names["cache_dtype"], _number, odd),
        utilisation=_read(flags, names["utilisation"], _share, odd),
        drafts=names["drafts"] in flags,
        cache_bytes=_read(flags, names.get("cache_bytes", ""), tokens, odd),
    )
    experts = flags.get(names["experts"], "0") not in ("1", "0")
    layout = Layout(candidate.tensor_parallel, candidate.pipeline_parallel, len(candidate.nodes) or 1, experts)
    tower = names.get("whole_tower")
    whole = bool(tower) and flags.get(tower[0]) == tower[1]
    beyond = (*(name for name in names["beyond"] if name in flags), *odd)
    return Asked(wish, layout, not whole, beyond, tuple(name for name in names["memory"] if name in flags))


def tokens(text: str) -> int | None:
    """A number of tokens, or of bytes, as vLLM takes it; None: it is left to the engine. Raises ValueError else."""
    if text.strip().lower() in _LEFT_TO_THE_ENGINE:
        return None
    found = re.fullmatch(r"(\d{1,15})(\.\d{1,15})?([kKmMgGtT]?)", text.strip(), re.ASCII)
    if not found or (found[2] and not found[3].islower()):
        raise ValueError(f"{text!r} is no number of tokens")
    unit = _UNITS.get(found[3], 1)
    count = int(float(found[1] + found[2]) * unit) if found[2] else int(found[1]) * unit
    if count < 1:
        raise ValueError(f"{text!r} is no number of tokens")
    return count


def _read(flags: Mapping[str, str], name: str, parse: Callable[[str], T | None], odd: list[str]) -> T | None:
    """The value of a flag; where it isn't understood, the flag's name goes to `odd`."""
    if name not in flags:
        return None
    try:
        return parse(flags[name])
    except ValueError:
        odd.append(name)
        return None


def _number(text: str) -> int | None:
    """Bytes of one number in the cache; None: as the model's."""
    if text == "auto":
        return None
    for name, size in _NUMBERS.items():
        if text.startswith(name):
            return size
    raise ValueError(f"{text!r} is no type that is known here")


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:  # not a number, too
        raise ValueError(f"{text!r} is no share")
    return share


@cache
def _data() -> Mapping[str, Any]:
    text = resources.files("bascule.discover").joinpath("data/fit_flags.toml").read_text(encoding="utf-8")
    return {name: row for name, row in tomllib.loads(text).items() if isinstance(row, dict)}
