"""Nouns to plain data for the journal and --json, and settings back again; secrets are masked on the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from bascule.core.nouns import Setting

MASK = "***"
_SECRET = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|PASSWORD|PASSWD|CREDENTIAL|(^|_)API_?KEY|ACCESS_KEY|PRIVATE_KEY"
    r"|^--?(.*-)?(api-key|token|password)$"
)


def to_plain(value: Any) -> Any:
    """Dataclasses, enums and times as JSON knows them; values of variables with a secret's name are masked."""
    if isinstance(value, Setting) and value.value and is_secret(value.name):
        return {"kind": value.kind, "name": value.name, "value": MASK, "node": value.node}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): MASK if _hides(key, item) else to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in _without_secrets(value)]
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value.value if isinstance(value, Enum) else value


def is_secret(name: str) -> bool:
    """True for names of variables and flags whose value nobody should read."""
    return bool(_SECRET.search(name))


def setting_from_plain(raw: Mapping[str, Any]) -> Setting:
    """The setting that to_plain() wrote; TypeError when it is none."""
    return Setting(**raw)


def _without_secrets(items: Iterable[Any]) -> Iterator[Any]:
    """Items as they are; in a command line, the value of a flag with a secret's name is masked."""
    before = ""
    for item in items:
        name, equals, _ = item.partition("=") if isinstance(item, str) else ("", "", "")
        if equals and name.startswith("-") and is_secret(name):
            yield f"{name}={MASK}"
        else:
            yield MASK if isinstance(item, str) and before.startswith("-") and is_secret(before) else item
        before = item if isinstance(item, str) else ""


def _hides(key: Any, item: Any) -> bool:
    return isinstance(item, str) and bool(item) and is_secret(str(key))
