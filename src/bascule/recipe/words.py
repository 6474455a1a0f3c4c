"""A recipe from words of the command line, for those who have no file yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bascule.core.nouns import Node
from bascule.errors import RecipeError
from bascule.recipe.load import sentence
from bascule.recipe.schema import Recipe


def from_words(model: str, nodes: Sequence[str], service: str | None, port: int | None) -> Recipe:
    """A recipe for a model folder on these nodes. Raises RecipeError."""
    if not nodes:
        raise RecipeError(
            "usage", f"no node to serve {model} on", advice="`--node NAME` for each machine, or a recipe (.yaml)"
        )
    raw: dict[str, Any] = {
        "service": service or re.sub(r"[^A-Za-z0-9_-]+", "-", Path(model).name).strip("-") or "service",
        "model": model,
        "nodes": [_node(text) for text in nodes],
    }
    return _validated({**raw, **({"port": port} if port is not None else {})})


def nodes_from_words(words: Sequence[str]) -> list[Node]:
    """Nodes as they are written on a command line. Raises RecipeError."""
    recipe = _validated({"service": "nodes", "model": "/", "nodes": [_node(text) for text in words]})
    return [one.node() for one in recipe.nodes]


def override(recipe: Recipe, service: str | None, port: int | None) -> Recipe:
    """The recipe with what the command line says instead. Raises RecipeError."""
    given = {key: value for key, value in (("service", service), ("port", port)) if value is not None}
    return _validated({**recipe.model_dump(), **given}) if given else recipe


def _node(text: str) -> Any:
    """`name=b,host=local,address=127.0.0.2`, or just a destination."""
    if "=" not in text:
        return {"name": "local", "host": "local"} if text == "local" else text
    pairs = [part.partition("=") for part in text.split(",")]
    return {key.strip(): value.strip() for key, _, value in pairs}


def _validated(raw: dict[str, Any]) -> Recipe:
    try:
        return Recipe.model_validate(raw)
    except ValidationError as trouble:
        mistakes = [sentence(error) for error in trouble.errors()]
        raise RecipeError("usage", mistakes[0], seen="\n".join(mistakes[1:]), advice="bascule up --help") from trouble
