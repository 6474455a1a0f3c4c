"""The files of the catalogue: itself, and what was read of single wheels before."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from bascule.errors import BasculeError, RecipeError
from bascule.probe.census import Release

CATALOGUE = Path(str(resources.files("bascule.probe"))) / "data/first_releases.toml"
READ_AS = 1  # raise it when another thing is read of a wheel than before
KEPT_LIMIT = 4 * 1024 * 1024  # bytes of a file in the cache; one of transformers has 0.1 MB
TABLES = ("last", "missing", "looked", "unread", "requires")
HEADER = """\
# Which releases of an engine know an architecture or a model type.
# Written by `bascule catalog build`, {day}; source: the registries in the released wheels of a package index.
# [ENGINE] name = the first release that knows it; `<=` where the one before was not looked at, or could not be read.
# last: the last release, where a later one was looked at; `>=` where the one after could not be read.
# missing: releases in between that lack it. looked: the releases that were read. unread: those that could not be
# read to their end, and why. requires: the transformers that a release asks for.
"""


def read_catalogue(path: Path) -> dict[str, Any]:
    """What a catalogue says so far; nothing where there is no file. Raises RecipeError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as trouble:
        seen = trouble.strerror or str(trouble) if isinstance(trouble, OSError) else str(trouble)
        raise RecipeError("catalog", f"{path} is no catalogue", seen=seen, advice="--out another file") from None


def write_catalogue(path: Path, parts: Mapping[str, Any]) -> None:
    """Write it whole, or leave the old one. Raises BasculeError."""
    text = HEADER.format(day=datetime.now(UTC).date())
    text += "".join(_part(engine, part) for engine, part in parts.items())
    tomllib.loads(text)  # what can't be read back is a bug, and must not be written
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except OSError as trouble:
        says = f"{path} was not written: {trouble.strerror}"
        raise BasculeError("catalog", says, advice="--out another file; what was read is kept") from None
    finally:
        _remove(draft)


def kept(engine: str, version: str, sha256: str) -> Release | None:
    """What was read of this wheel before; None when it wasn't, or the file is of no use."""
    if not sha256:
        return None
    path = _kept_at(engine, sha256)
    try:
        if path.stat().st_size > KEPT_LIMIT:
            return None
        raw = json.loads(path.read_bytes())
        if raw["read_as"] != READ_AS:
            return None
        texts = raw["names"], [raw["doubt"], raw["requires"]]
        if not all(isinstance(text, str) for row in texts for text in row):
            return None
        return Release(version, frozenset(raw["names"]), raw["doubt"], raw["requires"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def keep(engine: str, release: Release, sha256: str) -> None:
    """Keep what was read of a wheel; where that can't be, the wheel is read again next time."""
    if not sha256:
        return
    path = _kept_at(engine, sha256)
    row = {"read_as": READ_AS, "doubt": release.doubt, "requires": release.requires, "names": sorted(release.names)}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(row), encoding="utf-8")
            draft.replace(path)
    finally:
        _remove(draft)


def _remove(draft: Path) -> None:
    """What was not finished; there is none after a success."""
    with suppress(OSError):
        draft.unlink()


def _kept_at(engine: str, sha256: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bascule/catalog" / f"{engine}-{sha256}.json"


def _part(engine: str, part: Mapping[str, Any]) -> str:
    names = {name: value for name, value in part.items() if isinstance(value, str)}
    tables = [(f"{engine}.{table}", part[table]) for table in TABLES if part.get(table)]
    return "".join(_table(name, rows) for name, rows in [(engine, names), *tables])


def _table(name: str, rows: Mapping[str, Any]) -> str:
    lines = (f"{_key(key)} = {_value(rows[key])}" for key in rows)
    return "\n".join(("", f"[{name}]", *lines, ""))


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _value(text)


def _value(value: str | Iterable[str]) -> str:
    """A string or a list of them; a JSON string of printable characters is one of TOML too."""
    if not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps("".join(sign if sign.isprintable() else "?" for sign in value), ensure_ascii=False)
