"""What is asked of a service right now: its own counters of requests and work, and our question of one token (pure)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_ROW = re.compile(r"([A-Za-z_:][\w:]*)(?:\{[^}\n]*\})? (\d[\d.]*(?:[eE][+-]?\d+)?)(?: \d+)?\s*$")


@dataclass(frozen=True, slots=True)
class Load:
    """One look at an engine's /metrics; what it doesn't tell is None."""

    at: float  # seconds of the watcher's clock
    open: float | None = None  # requests in progress or waiting
    work: float | None = None  # tokens so far, of prompts and answers; only its changes mean something


@dataclass(frozen=True, slots=True)
class Asked:
    """The newest question to the service; times are of the watcher's clock."""

    at: float
    ended_at: float | None = None
    failed: str = ""  # why it was not answered, as the service said it
    refused: str = ""  # why it could not be asked at all: says nothing about the service
    tries: int = 1  # one after the other that failed

    @property
    def answered(self) -> bool:
        """True when the service gave a token."""
        return self.ended_at is not None and not (self.failed or self.refused)

    @property
    def pending(self) -> bool:
        """True while nothing came back."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class Times:
    """The figures of serving.toml, in seconds; their reasons stand there."""

    stopped_s: float
    still_s: float
    busy_s: float
    spin_s: float
    settled_s: float
    answer_s: float
    lost_s: float


@cache
def times() -> Times:
    """The figures, read once."""
    return Times(**_raw()["times"])


def parse_metrics(text: str, engine: str, at: float) -> Load:
    """The Load that an answer of /metrics tells, in the text format of Prometheus."""
    names = _raw()["metrics"].get(engine, {})
    found: dict[str, float] = {}
    for line in text.splitlines():
        if row := _ROW.match(line):
            found[row[1]] = found.get(row[1], 0.0) + float(row[2])
    return Load(at, _sum(found, names.get("open", ())), _sum(found, names.get("work", ())))


def has_metrics(engine: str) -> bool:
    """True for engines whose counters are known."""
    return engine in _raw()["metrics"]


def waits_since(loads: Sequence[Load]) -> float | None:
    """Since when requests are open and no work is done; None when that is not so now, or not known."""
    since = None
    for load in reversed(loads):
        if not load.open or load.work is None or load.work != loads[-1].work:
            break
        since = load.at
    return since


def _sum(found: Mapping[str, float], names: Iterable[str]) -> float | None:
    values = [found[name] for name in names if name in found]
    return sum(values) if values else None


@cache
def _raw() -> dict[str, Any]:
    return tomllib.loads(resources.files("bascule.watch").joinpath("serving.toml").read_text())
