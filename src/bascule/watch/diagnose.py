"""What a failed start died of: the first error that is no consequence, across all ranks by time (pure)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, Literal

from bascule.core.layout import Place
from bascule.core.nouns import Evidence, Fate, Finding, Setting, Step

EXCERPT = 400  # characters of a line that are quoted

# The line that ends a traceback, or that an engine itself marks as an error.
_RAISED = re.compile(r"(?:^|\s)(?:[a-z_]+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b(?::|$)|Value error, ")
_MARKED = re.compile(r"(?<!\w)(?:ERROR|CRITICAL|FATAL|Fatal Python error|Segmentation fault|Killed)(?!\w)|error: ")
_BENIGN = re.compile(r"UserWarning|FutureWarning|DeprecationWarning|PackageNotFoundError.*ignored|\braise [A-Z]\w*")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line as it was seen: when, by which rank, on which node."""

    at: datetime
    rank: int
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A known way to fail."""

    id: str
    signature: re.Pattern[str]
    fate: Fate
    says: str
    source: str
    cascade: bool = False
    advice: str = ""
    change: Mapping[str, str] | None = None
    scope: Literal["artefact", "candidate"] = "artefact"


@cache
def catalogue() -> tuple[Failure, ...]:
    """The known failures, from failures.toml; order matters when a line matches two."""
    raw = tomllib.loads(resources.files("bascule.watch").joinpath("failures.toml").read_text())
    return tuple(_failure(row) for row in raw["failure"])


def diagnose(lines: Sequence[LogLine], died: str, places: Sequence[Place]) -> Finding:
    """The Finding about a start that ended; `died` says what was seen of the processes themselves."""
    if known := _first_known(lines):
        return _finding(*known, places)
    line = _first_error(lines) or next((line for line in reversed(lines) if line.text.strip()), None)
    if line is None:
        when = datetime.now().astimezone()
        evidence = Evidence("", "state of the ranks", when, died)
        return Finding(Step.WATCH, Fate.UNKNOWN, "rank-died", f"{died}, without a word", (evidence,))
    return Finding(Step.WATCH, Fate.UNKNOWN, "rank-died", f"{died}: {_short(line.text)}", (_evidence(line),))


def _first_known(lines: Sequence[LogLine]) -> tuple[Failure, LogLine, re.Match[str]] | None:
    for line in lines:
        for failure in catalogue():
            match = failure.signature.search(line.text)
            if match:
                if failure.cascade:
                    break
                return failure, line, match
    return None


def _first_error(lines: Sequence[LogLine]) -> LogLine | None:
    for pattern in (_RAISED, _MARKED):
        for line in lines:
            if pattern.search(line.text) and not _BENIGN.search(line.text) and not _is_cascade(line.text):
                return line
    return None


def _is_cascade(text: str) -> bool:
    return any(failure.cascade and failure.signature.search(text) for failure in catalogue())


def _finding(failure: Failure, line: LogLine, match: re.Match[str], places: Sequence[Place]) -> Finding:
    place = next((place for place in places if place.node == line.node), None)
    words = {
        "node": line.node,
        "interface": (place and place.interface) or "",
        "address": place.address if place else "",
        **{key: value for key, value in match.groupdict().items() if value},
    }
    change = _change(failure, words, line.node)
    fate = failure.fate if failure.fate is not Fate.ADJUST or change else Fate.UNKNOWN
    return Finding(
        Step.WATCH,
        fate,
        failure.id,
        failure.says.format_map(words),
        (_evidence(line),),
        change,
        failure.advice.format_map(words),
        failure.scope,
    )


def _change(failure: Failure, words: Mapping[str, str], node: str) -> Setting | None:
    """The one setting to change, on the node where the line was seen; None when a fact for it is missing."""
    if failure.change is None:
        return None
    value = failure.change["value"].format_map(words)
    return Setting(_kind(failure.change["kind"]), failure.change["name"], value, node) if value else None


def _failure(row: dict[str, Any]) -> Failure:
    return Failure(**{**row, "signature": re.compile(row["signature"]), "fate": Fate(row["fate"])})


def _kind(text: str) -> Literal["env", "flag"]:
    return "env" if text == "env" else "flag"


def _evidence(line: LogLine) -> Evidence:
    return Evidence(line.node, f"log of rank {line.rank}", line.at, _short(line.text))


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"
