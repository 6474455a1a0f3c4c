"""Numbers of a configuration by name; a missing or odd one is told with its key (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bascule.discover.jsons import is_count

_MOST = 10**8  # of one number in a configuration; the largest vocabularies have 10**6


class Unsized(ValueError):
    """The size can't be told from this configuration; says which key, and what stands there."""

    def __init__(self, says: str, key: str = "", seen: object = None) -> None:
        super().__init__(says)
        self.key = key or says
        self.seen = seen  # None: nothing stands there


@dataclass(frozen=True, slots=True)
class Shapes:
    """Numbers of a configuration by name; a missing or odd one raises Unsized."""

    given: Mapping[str, Any]

    def get(self, *names: str) -> int:
        """The first of these that is there."""
        value = self.maybe(*names)
        if value is None:
            raise Unsized(f"no {names[0]}", names[0])
        return value

    def maybe(self, *names: str) -> int | None:
        """The same; None when none is there or it is null."""
        for name in names:
            value = self.given.get(name)
            if value is not None:
                if not is_count(value, _MOST) or not isinstance(value, int):
                    raise Unsized(f"{name} is no count", name, value)
                return value
        return None

    def zero(self, *names: str) -> int:
        """The same; 0 when none is there."""
        return self.maybe(*names) or 0
