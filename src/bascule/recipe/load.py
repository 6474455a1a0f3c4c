"""From a YAML file to a Recipe; mistakes are told as file:line:column."""

from __future__ import annotations

import difflib
import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from bascule.errors import RecipeError
from bascule.recipe.schema import CandidateSpec, Mistake, NodeSpec, Recipe

_NAME = "a name has letters, digits, - and _"

SPELLINGS = {  # what people who come from an engine or another tool write
    "max_model_len": "context",
    "max_model_length": "context",
    "context_length": "context",
    "max_context": "context",
    "tp": "tensor_parallel",
    "tensor_parallel_size": "tensor_parallel",
    "pp": "pipeline_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "hosts": "nodes",
    "name": "service",
    "served_model_name": "served_name",
    "environment": "env",
    "flags": "args",
    "master_port": "rendezvous_port",
    "path": "venv",
}


def load(path: Path) -> Recipe:
    """The recipe in this file. Raises RecipeError with the place of each mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as trouble:
        raise RecipeError("recipe", f"{path} can't be read: {trouble}", advice="`bascule init` writes one") from trouble
    return parse(text, str(path))


def parse(text: str, where: str) -> Recipe:
    """The recipe in this text; `where` is its name in messages."""
    tree = _tree(text, where)
    try:
        return Recipe.model_validate(tree)
    except ValidationError as trouble:
        mistakes = [f"{where}:{_place(tree, error)}  {sentence(error)}" for error in trouble.errors()]
        raise RecipeError(
            "recipe", mistakes[0], seen="\n".join(mistakes[1:]), advice="`bascule init` writes a commented example"
        ) from trouble


def example() -> str:
    """The commented example: documentation, test of the schema and what `bascule init` writes."""
    return importlib.resources.files("bascule.recipe").joinpath("example.yaml").read_text()


def _tree(text: str, where: str) -> CommentedMap:
    try:
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as trouble:
        mark = trouble.problem_mark or trouble.context_mark
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise RecipeError("recipe", f"{where}:{place}  no YAML: {trouble.problem}") from trouble
    except YAMLError as trouble:
        raise RecipeError("recipe", f"{where}:1:1  no YAML: {trouble}") from trouble
    if not isinstance(tree, CommentedMap):
        raise RecipeError(
            "recipe",
            f"{where}:1:1  a recipe is keys and values, this is {_kind(tree)}",
            advice="`bascule init` writes a commented example",
        )
    return tree


def _kind(tree: Any) -> str:
    if tree is None:
        return "empty"
    return "a list" if isinstance(tree, CommentedSeq) else "a text"


def _place(tree: Any, error: ErrorDetails) -> str:
    """Line:column of the key or item an error is about, as deep as the file goes."""
    line, column = 0, 0
    node = tree
    for step in _loc(error):
        position = _position(node, step, of_key=error["type"] in ("extra_forbidden", "missing"))
        if position is None:
            break
        line, column = position
        node = node[step]
    return f"{line + 1}:{column + 1}"


def _loc(error: ErrorDetails) -> tuple[int | str, ...]:
    mistake = error.get("ctx", {}).get("error")
    return mistake.loc if isinstance(mistake, Mistake) else error["loc"]


def _position(node: Any, step: int | str, *, of_key: bool) -> tuple[int, int] | None:
    if isinstance(node, CommentedMap) and step in node:
        line, column = node.lc.key(step) if of_key else node.lc.value(step)
        return line, column
    if isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node):
        line, column = node.lc.item(step)
        return line, column
    return None


def sentence(error: ErrorDetails) -> str:
    """What is wrong, without its place."""
    key = str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key `{key}`{_did_you_mean(key, error['loc'])}"
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
        case "string_pattern_mismatch":
            return f"`{_key_of(error['loc'])}` can't be {error['input']!r}: {_NAME}"
        case "missing" | "too_short" | "string_too_short" as lack:
            return f"`{key}` is {'missing' if lack == 'missing' else 'empty'}"
        case _:
            says = error["msg"].removeprefix("Input ").partition(", unable")[0]
            return f"`{_key_of(error['loc'])}` {says[0].lower()}{says[1:]}, not {error['input']!r}"


def _key_of(loc: Sequence[int | str]) -> str:
    return next((step for step in reversed(loc) if isinstance(step, str)), "recipe")


def _did_you_mean(key: str, loc: Sequence[int | str]) -> str:
    allowed = list(_part(loc).model_fields)
    wanted = SPELLINGS.get(key.replace("-", "_").lower())
    if wanted in allowed:
        return f"; did you mean `{wanted}`?"
    if close := difflib.get_close_matches(key, allowed, n=1):
        return f"; did you mean `{close[0]}`?"
    elsewhere = [name for name in (wanted, key) if name in Recipe.model_fields]
    if elsewhere:
        return f"; `{elsewhere[0]}` stands at the top of a recipe"
    return f"; there are {', '.join(allowed)}"


def _part(loc: Sequence[int | str]) -> type[BaseModel]:
    match loc[:2]:
        case ("nodes", int()):
            return NodeSpec
        case ("candidates", int()):
            return CandidateSpec
        case _:
            return Recipe
