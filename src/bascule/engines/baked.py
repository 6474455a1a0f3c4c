"""Variables that an image bakes in and that would decide over addresses, and what becomes of each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import resources

from bascule.core.notices import Notice
from bascule.core.nouns import Evidence, RankPlan


@dataclass(frozen=True, slots=True)
class Baked:
    """One variable of an image that the plan does not let through."""

    name: str
    value: str  # as the image has it
    ours: str | None  # what stands in its place; None: it is taken out
    what: str  # it decides over

    def __str__(self) -> str:
        return f"{self.name}={self.value} {f'gives way to {self.ours}' if self.ours is not None else 'is taken out'}"


def baked(image_env: Mapping[str, str], plan_env: Mapping[str, str]) -> tuple[Baked, ...]:
    """What of the image's environment would mislead a rank with this environment, in the order of the image."""
    found = []
    for name, value in image_env.items():
        variable = _variables().get(name)
        if variable and value not in ("", *variable.get("harmless", ())) and plan_env.get(name) != value:
            found.append(Baked(name, value, plan_env.get(name), variable["what"]))
    return tuple(found)


def without_baked(plan: RankPlan, image_env: Mapping[str, str]) -> RankPlan:
    """The rank with a command line that takes out what the image bakes in and the plan does not set.

    `docker create --env NAME=` would leave it empty, which is a value too; `env -u` makes it unset, and then is the
    engine itself, in the same process.
    """
    out = [one.name for one in baked(image_env, plan.env) if one.ours is None]
    words = [word for name in out for word in ("-u", name)]
    return replace(plan, argv=("env", *words, *plan.argv)) if out else plan


def baked_notice(image: str, node: str, found: Sequence[Baked], at: datetime) -> Notice:
    """What was found in an image, told once."""
    told = "; ".join(f"{one} ({one.what})" for one in found)
    seen = Evidence(node, f"docker image inspect {image}", at, ", ".join(f"{one.name}={one.value}" for one in found))
    says = f"the image has variables that decide over addresses: {told}"
    advice = "if one of them is meant, say it under `env` of the candidate"
    return Notice("", "image-variables", says, (seen,), weight="note", advice=advice)


@cache
def _variables() -> Mapping[str, Mapping[str, str]]:
    text = resources.files("bascule.engines").joinpath("baked.toml").read_text()
    variables: Mapping[str, Mapping[str, str]] = tomllib.loads(text)["variables"]
    return variables
