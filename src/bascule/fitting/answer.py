"""A model against machines: every layout, whether it fits and how fast it can be at best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bascule.core.choose import choices
from bascule.core.fit import Engine, Room, Wish
from bascule.core.nouns import Model, Node
from bascule.core.roofline import Link
from bascule.core.shape import Shape, Unshaped
from bascule.discover.hardware import (
    GpuModel,
    engine_memory,
    engines_with_memory,
    gpu_model,
    gpu_names,
    link,
    link_kinds,
)
from bascule.discover.named import named_model
from bascule.discover.rooms import imagined, rooms_of
from bascule.errors import ModelError, RecipeError
from bascule.fitting.commands import Asked
from bascule.operate.services import reach
from bascule.recipe.words import nodes_from_words
from bascule.remote.connect import connect
from bascule.show.fit import Told, fit_lines, plain
from bascule.show.plain import out, print_json

FITS, NONE_FITS = 0, 4
MOST_NODES, MOST_GPUS = 64, 16


async def answer(text: str, asked: Asked) -> int:
    """All of it; exit status 0 when a layout fits. Raises BasculeError."""
    _check(asked)
    nodes, there = await _machines(asked)
    rooms = [replace(room, bandwidth=asked.bandwidth * 1e9) for room in there] if asked.bandwidth else there
    model = await _model(text, nodes[0] if nodes else None)
    shape = shape_in(model)
    engine, wish = _engine(asked), _wish(asked)
    found = choices(shape, rooms, engine, wish, _between(asked, nodes))
    told = Told(model, shape, rooms, engine, wish, found)
    print_json(plain(told)) if asked.json else out("\n".join(fit_lines(told, whole=asked.all)))
    return FITS if any(choice.fit.fits for choice in found) else NONE_FITS


def shape_in(model: Model) -> Shape:
    """The shape that was read with the model. Raises ModelError where its configuration doesn't tell it."""
    found = model.shape
    if found is None:
        raise ModelError(
            "shape-unknown",
            f"of {model.path} no config.json was read",
            advice="give a folder, a config.json or owner/name on a hub; a GGUF file or a class alone does not tell it",
        )
    if not isinstance(found, Unshaped):
        return found
    seen = f"{found.key}: {found.seen or 'not there'}"
    if found.absurd:
        advice = f"correct {found.key} in config.json, or fetch the file again"
        raise ModelError("shape-absurd", f"{model.path}: {found.says}", seen=seen, advice=advice)
    raise ModelError(
        "shape-unknown",
        f"{model.path}: {found.says}",
        seen=seen,
        advice="whether it fits is not known; a start of the engine tells it",
    )


async def _machines(asked: Asked) -> tuple[Sequence[Node], Sequence[Room]]:
    """Machines that are there, or those that are imagined. Raises RecipeError, NodeUnreachable."""
    if asked.gpu:
        name, _, count = asked.gpu.partition(":")
        model, many = _gpu(name), _whole("--gpu", count or "1", MOST_GPUS)
        return (), [imagined(f"node {number}", model, name, many) for number in range(1, asked.nodes + 1)]
    nodes, _, unreachable = await reach(nodes_from_words(asked.node or ("local",)))
    if unreachable:
        raise unreachable[0]
    return nodes, rooms_of(nodes)


async def _model(text: str, node: Node | None) -> Model:
    """The model, looked for on the first node. Raises ModelError, NodeUnreachable."""
    there = node or Node("local", "local")
    return await named_model(text, connect([there])[there.name], there)


def _check(asked: Asked) -> None:
    """Raises RecipeError for words that can't be meant."""
    if asked.gpu and asked.node:
        raise RecipeError("usage", "--gpu and --node are two ways to name machines", advice="give one of them")
    for name, value, known in (("--engine", asked.engine, engines_with_memory()), ("--link", asked.link, link_kinds())):
        if value and value not in known:
            raise RecipeError("usage", f"nothing is known of {value}", seen=f"{name} {value}", advice=", ".join(known))
    _whole("--nodes", str(asked.nodes), MOST_NODES)
    given = {"--context": (asked.context, 10**8), "--sequences": (asked.sequences, 10**8)}
    for name, (count, most) in {**given, "--cache-bytes": (asked.cache_bytes, 4)}.items():
        if count is not None:
            _whole(name, str(count), most)
    _above_zero("--bandwidth", asked.bandwidth, 10**6)
    _above_zero("--utilisation", asked.utilisation, 1)


def _above_zero(name: str, value: float | None, most: int) -> None:
    if value is not None and not 0 < value <= most:
        raise RecipeError("usage", f"{name} takes more than 0 and at most {most}", seen=f"{name} {value}")


def _whole(name: str, text: str, most: int) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < len(text) < 12 or not 0 < int(text) <= most:
        raise RecipeError("usage", f"{name} takes a number from 1 to {most}", seen=f"{name} {text}"[:80])
    return int(text)


def _gpu(name: str) -> GpuModel:
    found = gpu_model(name)
    if found is None:
        advice = f"one of {', '.join(gpu_names())}; of a machine that is there, --node reads the memory"
        raise RecipeError("usage", f"the table of GPUs has no {name}", seen=f"--gpu {name}", advice=advice)
    return found


def _engine(asked: Asked) -> Engine:
    found = engine_memory(asked.engine, asked.engine_version)
    assert found is not None, "checked before"
    return found


def _wish(asked: Asked) -> Wish:
    return Wish(asked.context, asked.sequences, asked.cache_bytes, asked.utilisation, asked.drafts)


def _between(asked: Asked, nodes: Sequence[Node]) -> Link | None:
    """The link of the machines; None when nobody knows it."""
    if asked.link:
        return link(asked.link)
    if not nodes:
        return link("rdma")
    ports = [node.facts.rdma for node in nodes]
    if any(found is None for found in ports):
        return None
    return link("rdma" if all(any(port.active for port in found or ()) for found in ports) else "sockets")
