"""Installed distributions, by their dist-info: version, and what they require."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bascule.probe.values import EXCERPT, Spot
from bascule.probe.views import View


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
    wanted = {_normal(name) for name in names}
    folders = [path for path in await view.find("*.dist-info") if _normal(path.split("-")[0]) in wanted]
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
        wanted = re.match(r"([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?(;.*)?", value.strip())
        if key.lower() == "requires-dist" and wanted and "extra" not in (wanted[3] or ""):
            requires.setdefault(_normal(wanted[1]), Requirement(wanted[2].strip(), spot))
    if "name" not in fields or "version" not in fields:
        return None
    version, spot = fields["version"]
    return Package(fields["name"][0], version, spot, requires)


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


def _end_of(operator: str, bound: str, rest: str) -> tuple[int, ...]:
    """The first release that `==4.57.*` or `~=4.57.1` leaves out; far away for other clauses."""
    parts = [int(part) for part in bound.strip(".").split(".")]
    if operator == "==" and rest not in ("*", ".*"):
        return (1 << 30,)
    if operator == "~=":
        parts = parts[:-1]
    return _padded([*parts[:-1], parts[-1] + 1])


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[\d.]*\d", version)
    return _padded([int(part) for part in release[0].split(".") if part]) if release else _padded([])


def _padded(parts: list[int]) -> tuple[int, ...]:
    return tuple([*parts, 0, 0, 0, 0][:4])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
