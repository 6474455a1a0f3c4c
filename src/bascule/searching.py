"""The command `bascule search`: what might serve a model on these nodes, from everywhere, before anything is pulled."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from bascule.errors import BasculeError, RecipeError
from bascule.show.plain import out, print_json, tell_error

if TYPE_CHECKING:
    from bascule.candidates.ask import Ask, Discovered
    from bascule.core.nouns import Node
    from bascule.recipe.schema import Recipe

NOTHING, UNREACHABLE, INTERRUPTED = 4, 3, 130
_BYTES = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([kMGT]?)i?B?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}

app = App(name="search", help="Find what might serve a model on these nodes, before anything is pulled.")

Repeated = Parameter(negative="")
Flag = Annotated[bool, Repeated]


@dataclass(frozen=True)
class Wish:
    """How far to look, and for which machines.

    Parameters
    ----------
    node
        A node, as an SSH destination, or name=…,host=…,address=…; repeat it. Left out: no node is asked.
    venv
        Where to look for engines on the nodes, instead of the usual places. Repeatable.
    image
        Also look at this image, wherever it is. Repeatable.
    gpu
        Also ask for compiled kernels for this GPU, such as sm_121.
    arch
        For this processor instead of the nodes': amd64, arm64.
    engine
        Only this engine.
    limit
        How many images of registries are looked at.
    read
        Up to which size layers are read, such as 500M or 8G; they are not kept.
    trust
        A publisher on a public registry whose images need no asking, such as hellohal2064. Repeatable.
    offline
        Ask no registry and no hub: what the nodes have, alone.
    insecure
        Speak http with registries; one on this machine, and those of docker's daemon.json, are asked so anyway.
    json
        Print data for programs.
    """

    node: Annotated[tuple[str, ...], Repeated] = ()
    venv: Annotated[tuple[str, ...], Repeated] = ()
    image: Annotated[tuple[str, ...], Repeated] = ()
    gpu: str = ""
    arch: str = ""
    engine: str = ""
    limit: int = 20
    read: str = "128M"
    trust: Annotated[tuple[str, ...], Repeated] = ()
    offline: Flag = False
    insecure: Flag = False
    json: Flag = False


@app.default
def search(model: str, *, wish: Annotated[Wish | None, Parameter(name="*")] = None) -> int:
    """Find what might serve a model on these nodes, before anything is pulled.

    Images and environments on the nodes, known images of the engines in their registries, and a search of Docker Hub;
    each is looked into by its files and told once, the best first, with a reason. What can't be asked is told as not
    read, and the rest goes on. Exit status 0 when there is a candidate, 4 when there is none.

    Parameters
    ----------
    model
        A folder, a config.json, owner/name on a hub, an architecture such as LlamaForCausalLM, or a recipe (.yaml).
    """
    from bascule.interrupt import run
    from bascule.show.search import plain, search_lines

    wish = wish or Wish()
    check(wish)
    found = run(find(model, wish), INTERRUPTED)
    if isinstance(found, int):
        return found
    ask, discovered, lost = found
    print_json(plain(ask, discovered)) if wish.json else out("\n".join(search_lines(ask, discovered)))
    for error in lost:
        tell_error(error.code, error.says, error.seen, error.advice)
    if lost:
        return UNREACHABLE
    return 0 if discovered.ranking.candidates or discovered.ranking.held else NOTHING


async def find(model: str, wish: Wish) -> tuple[Ask, Discovered, Sequence[BasculeError]]:
    """What was asked for, what was found, and the nodes that don't answer. Raises BasculeError."""
    from bascule.candidates.ask import ask_for
    from bascule.candidates.choose import discover_candidates
    from bascule.core.nouns import Node
    from bascule.discover.named import named_model
    from bascule.operate.services import reach
    from bascule.remote.local import LocalRunner

    recipe, base = _recipe(model)
    nodes, runners, lost = await reach(_nodes(wish, recipe))
    if lost and not nodes:
        raise lost[0]
    here = Node("here", "local")
    where = (runners[nodes[0].name], nodes[0]) if nodes else (LocalRunner(here), here)
    facts = await named_model(_model(model, recipe, base), *where)
    ask = _with_wishes(ask_for(facts, nodes, runners, _tell), wish, recipe, base)
    try:
        return ask, await discover_candidates(ask), lost
    finally:
        ask.access.close()


def _with_wishes(ask: Ask, wish: Wish, recipe: Recipe | None, base: Path) -> Ask:
    access = replace(ask.access, insecure=wish.insecure, most=_bytes(wish.read))
    arch = wish.arch or ("" if ask.nodes else _arch_here())
    named = [one.image for one in recipe.candidates if one.image] if recipe else []
    return replace(
        ask,
        recipe=recipe,
        base=base,
        environments=wish.venv,
        references=(*named, *wish.image),
        arch=arch,
        gpu=wish.gpu,
        engine=wish.engine,
        trust=wish.trust,
        offline=wish.offline or ask.offline,
        search=True,
        limit=wish.limit,
        access=access,
    )


def _tell(text: str) -> None:
    """A line for standard error, from any thread, in one piece."""
    sys.stderr.write(f"{text}\n")


def _recipe(model: str) -> tuple[Recipe | None, Path]:
    from bascule.recipe.load import load

    if not model.endswith((".yaml", ".yml")):
        return None, Path.cwd()
    return load(Path(model)), Path(model).absolute().parent


def _model(model: str, recipe: Recipe | None, base: Path) -> str:
    from bascule.discover.candidates import resolved

    return resolved(recipe.model, base) if recipe else model


def _nodes(wish: Wish, recipe: Recipe | None) -> list[Node]:
    from bascule.recipe.words import nodes_from_words

    if recipe and wish.node:
        raise RecipeError("usage", "a recipe and --node are two ways to say the same", advice="leave one out")
    return [one.node() for one in recipe.nodes] if recipe else nodes_from_words(wish.node) if wish.node else []


def check(wish: Wish) -> None:
    """Raises RecipeError for words that can't be meant."""
    from bascule.engines.catalogue import ENGINES
    from bascule.probe.kernels.rules import target

    if wish.engine and wish.engine not in ENGINES:
        raise RecipeError("usage", f"bascule can't start {wish.engine}", advice=f"one of {', '.join(ENGINES)}")
    if wish.gpu and target(wish.gpu) is None:
        raise RecipeError("usage", f"{wish.gpu} is no GPU architecture", advice="such as sm_121")
    if wish.limit < 0 or _bytes(wish.read) < 0:
        raise RecipeError("usage", "--limit is a number of images", seen=str(wish.limit))


def _bytes(text: str) -> int:
    match = _BYTES.fullmatch(text.strip())
    if not match:
        raise RecipeError("usage", f"{text!r} is no size", advice="such as 500M or 8G")
    return int(float(match[1]) * _FACTORS[match[2].lower()])


def _arch_here() -> str:
    from bascule.remote.docker import image_arch

    return image_arch(platform.machine().lower().replace("arm64", "aarch64"))
