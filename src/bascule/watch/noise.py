"""What is no progress: the noise of counters and the lines that prove nothing, from noise.toml (pure)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Noise:
    """The figures of noise.toml; their reasons stand there."""

    cpu_cores: float
    bytes_per_minute: Mapping[str, float]  # by counter
    gpu_watts: float
    gpu_times: float
    silence_s: float
    quiet_s: float
    storage_quiet_s: float
    spin_cores: float
    held_back: float
    held_back_looks: int
    stale_s: float
    chatter: re.Pattern[str]
    ends: re.Pattern[str]
    raised: re.Pattern[str]


@cache
def noise() -> Noise:
    """The figures, read once."""
    raw = tomllib.loads(resources.files("bascule.watch").joinpath("noise.toml").read_text())
    moves = dict(raw["moves"])
    return Noise(
        cpu_cores=moves.pop("cpu_cores"),
        bytes_per_minute=moves,
        gpu_watts=raw["gpu_works"]["watts"],
        gpu_times=raw["gpu_works"]["times"],
        chatter=_any(raw["chatter"]),
        ends=_any(raw["ends"]),
        raised=_any(raw["raised"]),
        **raw["times"],
    )


def is_chatter(line: str) -> bool:
    """True for a line that comes by itself while nothing happens."""
    return bool(noise().chatter.search(line))


def is_end(line: str) -> bool:
    """True for a line with which an engine ends by itself."""
    return bool(noise().ends.search(line))


def is_raised(line: str) -> bool:
    """True for the last line of a traceback that nobody may have caught."""
    return bool(noise().raised.search(line))


def _any(rows: Sequence[Mapping[str, str]]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{row['line']})" for row in rows))
