"""Facts that came with bascule: first releases of architectures, and names that llama.cpp gives to models."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


def first_release(engine: str, name: str) -> str | None:
    """The first release of an engine that knows an architecture or model_type; None when nobody looked."""
    release: str | None = _data("first_releases").get(engine, {}).get(name)
    return release


def gguf_architecture(model_type: str) -> str | None:
    """What llama.cpp calls this kind of model; None when it isn't in the list."""
    name: str | None = _data("gguf_architectures").get(model_type)
    return name


@cache
def _data(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files("bascule.probe").joinpath(f"data/{name}.toml").read_text())
