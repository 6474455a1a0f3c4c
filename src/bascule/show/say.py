"""One line of a story, and how evidence is told in such lines (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """One line: a label in the left column, the text, and its tone: good, bad, dim, strong or none."""

    label: str
    text: str
    tone: str = ""


def evidence(finding: Plain) -> Iterator[Say]:
    """What a finding rests on: node, source, time, excerpt."""
    for seen in finding["evidence"]:
        at = datetime.fromisoformat(seen["seen_at"]).astimezone()
        where = f"{seen['node']}  {seen['source']}  {at:%H:%M:%S}"
        yield Say("    seen", f"{where}  {_one_line(seen['excerpt'])}", "dim")


def _one_line(excerpt: str, width: int = 240) -> str:
    try:
        told = json.loads(excerpt)
        if isinstance(told, dict):
            excerpt = " · ".join(f"{key}: {value!r}" for key, value in told.items())
    except ValueError:
        pass
    flat = " ⏎ ".join(line.strip() for line in excerpt.strip().splitlines())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
