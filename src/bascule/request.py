"""What a person asked for: a recipe from a file, or a model and nodes from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bascule.errors import RecipeError
from bascule.recipe.load import load
from bascule.recipe.schema import Recipe
from bascule.recipe.words import from_words, override
from bascule.wishes import Wish


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for: a recipe from a file or from the command line."""

    recipe: Recipe
    base: Path  # relative paths are seen from here
    source: str  # the recipe's file, or the command
    words: tuple[str, ...] = ()  # engine flags from behind --
    environments: tuple[str, ...] = ()  # where to look for engines when the recipe names none
    trust: tuple[str, ...] = ()  # publishers of images, when the recipe names none
    search: bool = False  # registries too, when something on the nodes would do


def read_request(target: str, words: Sequence[str], wish: Wish) -> Request:
    """The request in the words of a command line; target is a recipe or the folder of a model. Raises RecipeError."""
    if not target.endswith((".yaml", ".yml")):
        recipe = from_words(target, wish.node, wish.service, wish.port)
        return Request(recipe, Path.cwd(), target, tuple(words), wish.venv, wish.trust, wish.search)
    if wish.node or wish.venv:
        raise RecipeError("usage", "--node and --venv are for a model without a recipe", advice=f"edit {target}")
    recipe, base = override(load(Path(target)), wish.service, wish.port), Path(target).absolute().parent
    return Request(recipe, base, target, tuple(words), (), wish.trust, wish.search)
