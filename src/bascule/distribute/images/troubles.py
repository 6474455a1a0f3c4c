"""Findings of a copy: from what a helper or a plan named to fate, sentence and advice (pure)."""

from __future__ import annotations

import tomllib
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from bascule.core.nouns import Evidence, Fate, Finding, Step
from bascule.distribute.images.plan import Refusal


@cache
def _known() -> dict[str, dict[str, Any]]:
    """The rows of troubles.toml by the helper's code; "" is the one for a code that is not known."""
    rows = tomllib.loads(resources.files("bascule.distribute.images").joinpath("troubles.toml").read_text())["trouble"]
    return {code: row for row in rows for code in row["helper"] or [""]}


def of_helper(code: str, seen: str, node: str, source: str, at: datetime) -> Finding:
    """The finding for a code of a helper."""
    row = _known().get(code) or _known()[""]
    words = {"node": node, "source": source}
    evidence = (Evidence(node, "bascule's helper", at, seen or code),)
    says, advice = row["says"].format_map(words), row.get("advice", "").format_map(words)
    return Finding(Step.DISTRIBUTE, Fate(row["fate"]), row["id"], says, evidence, advice=advice)


def of_refusal(refusal: Refusal, node: str, at: datetime) -> Finding:
    """The finding for what a plan refuses."""
    fate = Fate.HOPELESS if refusal.code in ("image-architecture", "artefact-missing") else Fate.CLUSTER
    evidence = (Evidence(node, "docker inspect, df, uname", at, refusal.seen),)
    return Finding(Step.DISTRIBUTE, fate, refusal.code, refusal.says, evidence, advice=refusal.advice)
