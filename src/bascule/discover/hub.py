"""The facts of a model by its name on a hub, `owner/name` or `owner/name@revision`, without fetching its weights."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

import httpx2

from bascule.core.nouns import Model, Node
from bascule.discover.config import Config, parse_config
from bascule.discover.hub_files import Hub, HubId, Wire, cached
from bascule.discover.jsons import MAX_CONFIG
from bascule.discover.model import made, read_model, weights_of
from bascule.discover.safetensors import MAX_READ, header_length
from bascule.discover.weights import INDEX, MAX_INDEX, Head, Index, parse_index
from bascule.errors import ModelError
from bascule.remote.local import LocalRunner

FIRST = 100_000  # bytes of a safetensors file that are asked for first; most headers of shards are shorter
MAX_HEADS = 64 * 1024 * 1024  # bytes of all headers
MAX_FILES = 1000
_SINGLE = "model.safetensors"
_SMALL = ("hf_quant_config.json", "tokenizer_config.json", "chat_template.jinja")
_COMMIT = re.compile(r"[0-9a-f]{40}")


async def from_hub(name: str, hub: Hub, *, count: bool = True) -> Model:
    """The model of this name; `count` reads the headers of all its weights too, some kilobytes of each file.

    A complete snapshot in the cache answers without the network, and offline any snapshot does. Raises ModelError.
    """
    wanted = HubId.parse(name)
    snapshot = cached(hub, wanted)
    if hub.offline and snapshot is None:
        raise ModelError(
            "model-missing",
            f"{name} is not in the cache, and HF_HUB_OFFLINE forbids to ask the hub",
            seen=str(hub.cache),
            advice="fetch it once with the variable unset, or correct HF_HOME",
        )
    if snapshot and (model := await _from_snapshot(name, str(snapshot), strict=hub.offline)):
        return model
    try:
        async with asyncio.timeout(hub.within), Wire.open(hub, wanted) as wire:
            return await _ask(name, wire, count)
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL) as trouble:
        raise ModelError(
            "hub-unreachable",
            f"{hub.endpoint} could not be asked for {name}",
            seen=f"{type(trouble).__name__}: {trouble}"[:300],
            advice="check the network and HF_ENDPOINT, or give the model's folder instead",
        ) from trouble


async def _from_snapshot(name: str, folder: str, *, strict: bool) -> Model | None:
    """What the cache holds; None when it isn't complete and somebody else can be asked."""
    here = Node("here", "local")
    try:
        model = await read_model(folder, LocalRunner(here), here)
    except ModelError:
        if strict:
            raise
        return None
    return replace(model, path=name) if strict or model.bytes_exact else None


async def _ask(name: str, wire: Wire, count: bool) -> Model:
    first = await wire.get("config.json", MAX_CONFIG + 1)
    if first is None:
        raise ModelError(
            "model-broken", f"{name} has no config.json", advice="name a model that engines load by itself"
        )
    if _COMMIT.fullmatch(first.commit):  # everything else comes from the same commit
        wire = wire.at(first.commit)
    found = await asyncio.gather(*(wire.get(file, MAX_CONFIG + 1) for file in _SMALL))
    files = {file: body.content for file, body in zip(_SMALL, found, strict=True) if body}
    config = parse_config(f"{name}/config.json", first.content, files.get("hf_quant_config.json"))
    raw = await wire.get(INDEX, MAX_INDEX + 1)
    index = parse_index(f"{name}/{INDEX}", raw.content) if raw else None
    heads = await _heads(name, wire, index, count)
    sizes = {file: head.size for file, head in heads.items()}
    counted = {file: head for file, head in heads.items() if count}
    weights = weights_of(name, config, sizes, index, counted)
    return made(name, config, weights, files, await _modules(wire, config))


async def _heads(name: str, wire: Wire, index: Index | None, count: bool) -> dict[str, Head]:
    """The heads of the files of weights; none when the index alone must do."""
    if index and (not count or len(index.files) > MAX_FILES):
        return {}
    files = sorted(index.files) if index else [_SINGLE]
    begun = await _each(wire, files, [FIRST if count else 1] * len(files))
    if index and (missing := [file for file in files if file not in begun]):
        raise ModelError(
            "model-incomplete",
            f"the hub lacks {len(missing)} files of weights of {name}",
            seen=f"by {INDEX}: {', '.join(missing[:3])}"[:400],
            advice="name another revision",
        )
    longer = {file: size for file, head in begun.items() if FIRST < (size := 8 + header_length(head.first)) <= MAX_READ}
    if not count or sum(longer.values()) > MAX_HEADS:
        return begun
    return begun | await _each(wire, list(longer), list(longer.values()))


async def _each(wire: Wire, files: Sequence[str], lengths: Sequence[int]) -> dict[str, Head]:
    """The first bytes of files, of those whose size the hub tells."""
    bodies = await asyncio.gather(*(wire.get(*pair, part=True) for pair in zip(files, lengths, strict=True)))
    return {
        file: Head(body.size, body.content)
        for file, body in zip(files, bodies, strict=True)
        if body and body.size is not None
    }


async def _modules(wire: Wire, config: Config) -> list[str]:
    """The Python files that its auto_map wants, of those that are there."""
    wanted = config.modules[:20]
    bodies = await asyncio.gather(*(wire.get(file, 1, part=True) for file in wanted))
    return [file for file, body in zip(wanted, bodies, strict=True) if body]
