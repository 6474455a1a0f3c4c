"""Nouns to plain data for the journal and --json, and candidates back again; secrets are masked on the way out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from bascule.core.nouns import Artefact, Candidate, Setting

MASK = "***"
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(^|_)API_?KEY|(^|-)api-key|ACCESS_KEY|PRIVATE_KEY")


def to_plain(value: Any) -> Any:
    """Dataclasses, enums and times as JSON knows them; values of variables with a secret's name are masked."""
    if isinstance(value, Setting) and value.value and is_secret(value.name):
        return {"kind": value.kind, "name": value.name, "value": MASK, "node": value.node}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): MASK if _hides(key, item) else to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value.value if isinstance(value, Enum) else value


def is_secret(name: str) -> bool:
    """True for names of variables and flags whose value nobody should read."""
    return bool(_SECRET.search(name))


def candidate_from_plain(raw: Mapping[str, Any]) -> Candidate:
    """The candidate that to_plain() wrote; KeyError or TypeError when it is none."""
    rest = {key: value for key, value in raw.items() if key not in ("artefact", "settings", "nodes")}
    return Candidate(
        artefact=Artefact(**raw["artefact"]),
        settings=tuple(Setting(**setting) for setting in raw["settings"]),
        nodes=tuple(raw["nodes"]),
        **rest,
    )


def _hides(key: Any, item: Any) -> bool:
    return isinstance(item, str) and bool(item) and is_secret(str(key))
