"""The known ways to fail, as data: one entry a failure, in failures/*.toml (pure once read).

An entry of [[failure]]:
  id, also        its name here, and names it has elsewhere
  engines         which engines can say it; left out: any
  versions        where it was seen, in words
  phase           of a start in which it is usual; the log's own phase counts first
  class           crash · hang-then-crash · hang · slow · degraded · suspect · wrong-output · evidence · stopped ·
                  cascade (a consequence: never acted on) · benign (looks bad and is not)
  mode            any (left out): one line is enough; docker, kernel: the same, said by docker or the kernel;
                  newest: only as the newest line of a rank, with nothing moving for silence_s seconds;
                  repeat: as newest, and it says itself again; frame: a frame of a traceback counts too;
                  response: in the body of an answer, not in a log
  needs           hardware without which it is no finding: rdma; told where some node has it, or where nobody knows
  weak            true: named only where nothing stronger was said, as a deadline that something else ran into
  signature       searched in a line without its prefix of time and process; excludes: must not be found there
  when            what other evidence must say, see conditions.py; apart: the same and more, in words
  cause, says     why; and in one sentence with {node} and the signature's groups
  remedies        in the order in which to try them, see Remedy
  fate, scope     what the policy makes of it: adjust takes the first remedy
  samples         lines that it must be found in
  source, proof   where it is from; run: seen here, source: read in the sources, thread: a report with its cure,
                  thread-nofix: a report without, knowledge: well known, inferred, unseen
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from bascule.core.nouns import Fate

SHORTEST = 4  # characters of a literal that is worth looking for first
_PLACES = {"interface": "<interface of its address>", "address": "<own address>", "head": "<address of the head>"}
_LITERAL = re.compile(r"[A-Za-z _'\"/,:;!<>=%~@`&-]")  # no digits: lines that differ in numbers alone are alike

# Lines of these modes say that something went wrong; the others count only as the newest line, or in an answer.
SAYS_IT = ("any", "docker", "kernel", "frame")


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to change. `value` and `says` may hold {interface}, {address}, {node} and groups of the signature."""

    kind: Literal["env", "flag", "image", "host-fix", "pivot"]
    name: str = ""
    value: str | None = None  # "" is a flag without a value; None: what it should be is in `says`
    unset: bool = False  # the cure is that the variable is not there
    of: Literal["engine", "docker"] = "engine"  # whose flag it is
    node: Literal["affected", "each", "all"] = "all"  # each: another value on each node
    security: bool = False  # told to the person, never applied
    says: str = ""

    def told(self, words: Mapping[str, str]) -> str:
        """In words, for a person."""
        value = fill(self.value or "", {**_PLACES, **words})
        joint = "=" if self.kind == "env" else " "
        setting = f"without {self.name}" if self.unset else f"{self.name}{joint}{value}" if value else self.name
        where = {"affected": " on the affected node", "each": " on each node"}.get(self.node, "")
        parts = [f"{setting}{where}" if self.name else "", fill(self.says, {**_PLACES, **words})]
        docker = "docker run: " if self.of == "docker" else ""
        caution = " (lowers security or touches the host: your decision)" if self.security else ""
        return docker + ": ".join(part for part in parts if part) + caution

    @property
    def is_a_setting(self) -> bool:
        """True when bascule can make this change by itself: one variable or engine flag with a known value."""
        named = bool(self.name) and (self.unset or self.value is not None)
        return named and self.of == "engine" and self.kind in ("env", "flag") and not self.security


@dataclass(frozen=True, slots=True)
class When:
    """What evidence beside the line itself must say; see conditions.py."""

    all_said: tuple[re.Pattern[str], ...] = ()
    none_said: tuple[re.Pattern[str], ...] = ()
    peer_lacks: re.Pattern[str] | None = None
    count: int = 1
    socket: Mapping[str, str] = field(default_factory=dict)

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """What has to be looked for in the logs."""
        return (*self.all_said, *self.none_said, *((self.peer_lacks,) if self.peer_lacks else ()))


@dataclass(frozen=True, slots=True)
class Failure:
    """A known way to fail."""

    id: str
    phase: str
    kind: str  # `class` in the file
    signature: re.Pattern[str]
    fate: Fate
    cause: str
    source: str
    proof: str
    samples: tuple[str, ...]
    versions: str = "any"
    mode: str = "any"
    silence_s: float = 0.0
    weak: bool = False
    needs: Literal["", "rdma"] = ""
    engines: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    excludes: re.Pattern[str] | None = None
    says: str = ""
    apart: str = ""
    when: When = field(default_factory=When)
    remedies: tuple[Remedy, ...] = ()
    scope: Literal["artefact", "candidate"] = "artefact"
    words: tuple[str, ...] = ()  # one of them is in every line that the signature finds; () when none could be told

    @property
    def cascade(self) -> bool:
        """True for a consequence of something that happened elsewhere."""
        return self.kind == "cascade"

    def found_in(self, text: str) -> re.Match[str] | None:
        """Where the signature is in a text, unless it is excluded there."""
        if self.words and not any(word in text for word in self.words):
            return None
        match = self.signature.search(text)
        return None if match and self.excludes and self.excludes.search(text) else match


def fill(text: str, words: Mapping[str, str]) -> str:
    """The text with {names} replaced; a word that is not known leaves nothing."""
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], ""), text)


@cache
def catalogue() -> tuple[Failure, ...]:
    """All known failures, sorted by file and then as they stand there."""
    folder = resources.files("bascule.watch").joinpath("failures")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple(failure(row) for file in files for row in tomllib.loads(file.read_text("utf-8")).get("failure", ()))


@cache
def engine_marks() -> Mapping[str, re.Pattern[str]]:
    """What is said by one engine and by no other, from failures/engines.toml."""
    file = resources.files("bascule.watch").joinpath("failures/engines.toml")
    return {row["name"]: re.compile(row["says"]) for row in tomllib.loads(file.read_text("utf-8"))["engine"]}


def said_by(engine: str | None) -> tuple[Failure, ...]:
    """The failures that this engine can have; all of them when it is not known."""
    return tuple(one for one in catalogue() if engine is None or not one.engines or engine in one.engines)


def failure(row: Mapping[str, Any]) -> Failure:
    """An entry as it is written -> as it is used. Raises KeyError, TypeError, ValueError or re.error at a bad one."""
    made = dict(row)
    made["kind"] = made.pop("class")
    made["fate"] = Fate(row["fate"])
    made["words"] = literals(row["signature"])
    for key in ("signature", "excludes"):
        if key in row:
            made[key] = re.compile(row[key])
    made["when"] = _when(row.get("when", {}))
    made["remedies"] = tuple(Remedy(**one) for one in row.get("remedies", ()))
    for key in ("engines", "also", "samples"):
        made[key] = tuple(row.get(key, ()))
    return Failure(**made)


def literals(pattern: str) -> tuple[str, ...]:
    """One text for each way in which the pattern can match, that must then be there; () when a way has none.

    Looking for a literal costs a tenth of a search with the pattern.
    """
    found = [max(_runs(way), key=len, default="") for way in _ways(pattern)]
    return tuple(dict.fromkeys(found)) if min(map(len, found)) >= SHORTEST else ()


def _when(row: Mapping[str, Any]) -> When:
    lacks = row.get("peer_lacks")
    return When(
        tuple(map(re.compile, row.get("all_said", ()))),
        tuple(map(re.compile, row.get("none_said", ()))),
        re.compile(lacks) if lacks else None,
        row.get("count", 1),
        row.get("socket", {}),
    )


def _ways(pattern: str) -> list[str]:
    """The alternatives at the top of a pattern."""
    ways, depth, at = [""], 0, 0
    while at < len(pattern):
        token = _token(pattern, at)
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            ways.append("")
        else:
            ways[-1] += token
        at += len(token)
    return ways


def _runs(way: str) -> Iterable[str]:
    """The runs of literal characters outside of groups; a character that may be left out ends its run."""
    run, depth, at = "", 0, 0
    while at < len(way):
        token = _token(way, at)
        at += len(token)
        depth += (token == "(") - (token == ")")
        plain = _plain(token) if depth == 0 else ""
        if plain and way[at : at + 1] not in ("?", "*", "{"):
            run += plain
        else:
            yield run
            run = ""
        if way[at : at + 1] == "+":
            yield run
            run = ""
    yield run


def _token(pattern: str, at: int) -> str:
    """An escape or a class of characters whole, else one character."""
    if pattern[at] == "\\":
        return pattern[at : at + 2]
    if pattern[at] == "[":
        end = pattern.index("]", at + (3 if pattern[at + 1] == "^" else 2))
        return pattern[at : end + 1]
    return pattern[at]


def _plain(token: str) -> str:
    if token.startswith("\\"):
        return token[1] if not token[1].isalnum() else ""
    return token if _LITERAL.fullmatch(token) else ""


def all_words(failures: Sequence[Failure]) -> tuple[str, ...]:
    """The literals of all these failures; a text without any of them is about none of these."""
    return tuple(dict.fromkeys(word for one in failures for word in one.words))


def shortest(words: Iterable[str]) -> tuple[str, ...]:
    """The same words without those that have another one in them: a text that has none of these has none of all."""
    kept: list[str] = []
    for word in sorted(set(words), key=len):
        if not any(short in word for short in kept):
            kept.append(word)
    return tuple(kept)
