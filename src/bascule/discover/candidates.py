"""From a recipe to its candidates (pure)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bascule.core.nouns import Artefact, Candidate, Setting
from bascule.engines.base import settings_from_words
from bascule.engines.catalogue import ENGINES
from bascule.errors import RecipeError
from bascule.recipe.schema import CandidateSpec, Recipe


def from_recipe(recipe: Recipe, base: Path, words: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """The recipe's candidates in its order, each with these engine flags added; names are made unique.

    Raises RecipeError for words that are no flags.
    """
    made: list[Candidate] = []
    for given in recipe.candidates:
        spec = given.model_copy(update={"args": [*given.args, *words]})
        name = spec.name or f"{spec.engine}-{Path(spec.venv or spec.pythonpath or spec.image or '').name}"
        taken = sum(candidate.name.partition("#")[0] == name for candidate in made)
        made.append(_candidate(spec, f"{name}#{taken + 1}" if taken else name, recipe, base))
    return tuple(made)


def resolved(path: str, base: Path) -> str:
    """A path of a recipe, seen from its folder."""
    return os.path.normpath(base.absolute() / Path(path).expanduser())


def _candidate(spec: CandidateSpec, name: str, recipe: Recipe, base: Path) -> Candidate:
    engine = ENGINES[spec.engine]
    all_nodes = [node.name for node in recipe.nodes]
    nodes = spec.nodes or (all_nodes if engine.spans_nodes else all_nodes[:1])
    if len(nodes) > 1 and not engine.spans_nodes:
        raise RecipeError("recipe", f"candidate {name}: {spec.engine} runs on one node, not on {len(nodes)}")
    tensor = spec.tensor_parallel or max(1, len(nodes) // spec.pipeline_parallel)
    if (tensor * spec.pipeline_parallel) % len(nodes):
        layout = f"tensor_parallel {tensor} × pipeline_parallel {spec.pipeline_parallel}"
        raise RecipeError("recipe", f"candidate {name}: {layout} can't be spread evenly over {len(nodes)} nodes")
    return Candidate(
        name,
        spec.engine,
        _artefact(spec, base),
        resolved(spec.model or recipe.model, base),
        (*_load_format(spec, name), *_flags(spec, name), *_variables(spec)),
        tuple(nodes),
        tensor,
        spec.pipeline_parallel,
    )


def _artefact(spec: CandidateSpec, base: Path) -> Artefact:
    if spec.pythonpath:
        python = spec.python or "python3"
        return Artefact("venv", resolved(spec.pythonpath, base), resolved(python, base) if "/" in python else python)
    return Artefact("venv", resolved(spec.venv, base)) if spec.venv else Artefact("image", spec.image or "")


def _load_format(spec: CandidateSpec, name: str) -> tuple[Setting, ...]:
    flag = ENGINES[spec.engine].lore.load_format
    if spec.load_format and not flag:
        raise RecipeError("recipe", f"candidate {name}: {spec.engine} has no load_format")
    return (Setting("flag", flag, spec.load_format),) if spec.load_format else ()


def _flags(spec: CandidateSpec, name: str) -> tuple[Setting, ...]:
    try:
        return settings_from_words(spec.args, ENGINES[spec.engine].lore)
    except ValueError as word:
        raise RecipeError("recipe", f"candidate {name}: `{word}` in args belongs to no flag") from word


def _variables(spec: CandidateSpec) -> tuple[Setting, ...]:
    everywhere = [Setting("env", name, value) for name, value in spec.env.items()]
    somewhere = [Setting("env", name, value, node) for node, env in spec.env_on.items() for name, value in env.items()]
    return (*everywhere, *somewhere)
