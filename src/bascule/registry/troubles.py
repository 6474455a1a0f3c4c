"""What goes wrong with a registry: no answer about an image, with a code to search for and what a person can do."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from bascule.core.reading import Unreadable

UNREACHABLE, LOGIN, DENIED, MISSING = "registry-unreachable", "registry-login", "registry-denied", "registry-missing"
BUSY, BROKEN, ANSWER = "registry-busy", "registry-broken", "registry-answer"
TOO_LARGE, NOT_READ, PLATFORM = "manifest-too-large", "layers-not-read", "image-architecture"


class RegistryTrouble(Unreadable):
    """A registry that gave no answer about an image; `kind` is a row of troubles.toml."""

    def __init__(self, kind: str, name: str, why: str, host: str = "") -> None:
        super().__init__(name, why)
        self.kind = kind
        self.host = host

    @property
    def code(self) -> str:
        """Of a finding."""
        return self.kind

    @property
    def advice(self) -> str:
        """What a person can do."""
        words = {"host": self.host or "HOST", "name": self.spot.path}
        return str(_rows()[self.kind]["advice"]).format_map(words)

    @property
    def hopeless(self) -> bool:
        """True when it is a no, and not the lack of an answer."""
        return bool(_rows()[self.kind]["fate"] == "hopeless")


class NoPlatform(RegistryTrouble):
    """An image that has nothing for the asked processor."""

    def __init__(self, name: str, wanted: str, there: tuple[str, ...], host: str) -> None:
        super().__init__(PLATFORM, name, f"it has {', '.join(there)}: nothing for {wanted}", host)
        self.there = there


def kind_of(status: int) -> str:
    """The kind that an HTTP status means."""
    return next((kind for kind, row in _rows().items() if status in row["status"]), ANSWER)


def says(kind: str) -> str:
    """What a registry does, behind `the registry …`."""
    return str(_rows()[kind]["says"])


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    text = resources.files("bascule.registry").joinpath("troubles.toml").read_text()
    return {row["id"]: row for row in tomllib.loads(text)["trouble"]}
