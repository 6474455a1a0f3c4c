"""What a candidate's settings ask of memory and layout, from its flags (pure)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from bascule.core.fit import Wish
from bascule.core.nouns import Candidate
from bascule.core.parallel import Layout


@dataclass(frozen=True, slots=True)
class Asked:
    """A candidate as fit sees it; `beyond`: flags whose effect on memory nobody knows here."""

    wish: Wish
    layout: Layout
    cuts_tower: bool = True
    beyond: tuple[str, ...] = ()


def asked_of(candidate: Candidate, context: int | None) -> Asked | None:
    """What it asks for on its nodes, `context` where no flag says another; None: its engine's flags aren't known.

    Raises ValueError for a flag that should be a number and isn't.
    """
    names = _data().get(candidate.engine)
    if names is None:
        return None
    flags = {one.name: one.value or "" for one in candidate.in_force if one.kind == "flag" and one.value is not None}
    told = flags.get(names["context"])
    share = flags.get(names["utilisation"])
    wish = Wish(
        context=int(told) if told and told.isdecimal() else context,
        number=1 if flags.get(names["cache_dtype"], "").startswith("fp8") else None,
        utilisation=float(share) if share else None,
        drafts=names["drafts"] in flags,
    )
    experts = flags.get(names["experts"], "1" if names["experts"] not in flags else "") not in ("1", "0")
    layout = Layout(candidate.tensor_parallel, candidate.pipeline_parallel, len(candidate.nodes) or 1, experts)
    tower = names.get("whole_tower")
    whole = bool(tower) and flags.get(tower[0]) == tower[1]
    return Asked(wish, layout, not whole, tuple(name for name in names["beyond"] if name in flags))


@cache
def _data() -> Mapping[str, Any]:
    text = resources.files("bascule.discover").joinpath("data/fit_flags.toml").read_text(encoding="utf-8")
    return {name: row for name, row in tomllib.loads(text).items() if isinstance(row, dict)}
