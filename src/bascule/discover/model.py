"""The facts of a model: from its folder on a node, from a config.json alone, or from the name of its architecture."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from bascule.core.nouns import Model, Node
from bascule.discover.config import Config, parse_config
from bascule.discover.estimate import estimate
from bascule.discover.facts import model_type_of
from bascule.discover.folder import Folder, heads, look
from bascule.discover.jsons import MAX_CONFIG, broken
from bascule.discover.shape import shape_of
from bascule.discover.weights import INDEX, Head, Index, Weights, parse_index, weigh, weight_files
from bascule.errors import ModelError
from bascule.remote.runner import Runner


async def read_model(path: str, runner: Runner, node: Node) -> Model:
    """The model in this folder on this node. Raises ModelError when it is missing or broken."""
    folder = await look(path, runner, node)
    config = _config(path, folder)
    inside = await heads(path, runner) if any(name.endswith((".safetensors", INDEX)) for name in folder.sizes) else None
    index, first = inside or (None, {})
    weights = weights_of(path, config, folder.sizes, parse_index(f"{path}/{INDEX}", index) if index else None, first)
    return made(path, config, weights, folder.files, [*folder.sizes])


def read_config_file(path: Path) -> Model:
    """The model that a config.json here describes, without its weights. Raises ModelError."""
    try:
        if not path.is_file():
            raise ModelError("model-missing", f"there is no file {path}", advice="give the path of a config.json")
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG + 1)
    except (OSError, ValueError) as trouble:
        raise ModelError("model-unread", f"{path} could not be read", seen=str(trouble)) from trouble
    config = parse_config(str(path), raw)
    return made(str(path), config, weights_of(str(path), config, {}, None, {}), {}, None)


def from_name(architecture: str, model_type: str = "") -> Model:
    """A model of which only the name of its class is known. Raises ModelError for what can't be one."""
    if not architecture.isidentifier():
        raise broken(f"{architecture!r} is no name of an architecture", architecture)
    return Model(architecture, (architecture,), model_type or model_type_of(architecture), bytes_exact=False)


def weights_of(
    place: str, config: Config, sizes: Mapping[str, int], index: Index | None, first: Mapping[str, Head]
) -> Weights:
    """Bytes and parameters, from the best that there is: headers, sizes of files, the index, the configuration.

    Raises ModelError when files are missing or can't be loaded.
    """
    files = weight_files(place, sizes, index)
    if files and all(name in first for name in files):
        return weigh(place, {name: first[name] for name in files}, config.quantization)
    if files:
        return Weights(sum(files.values()))
    if index and index.total:
        return Weights(index.total)
    guess = estimate(config)
    return Weights(guess.bytes if guess else None, exact=False)


def made(
    path: str, config: Config, weights: Weights, files: Mapping[str, bytes], there: Collection[str] | None
) -> Model:
    """All facts together; `there`: names of the files of the model, None when nobody looked."""
    templates = files.get("chat_template.jinja", b"") + _template_in(files.get("tokenizer_config.json", b""))
    return Model(
        path,
        config.architectures,
        config.model_type,
        bytes=weights.bytes,
        thinks=b"<think>" in templates,
        bytes_exact=weights.exact,
        parameters=weights.parameters,
        quantization=config.quantization,
        remote_code=config.remote_code(there),
        shape=shape_of(config, weights),
    )


def _config(path: str, folder: Folder) -> Config:
    _all_readable(path, folder)
    if "config.json" not in folder.files:
        raise ModelError("model-broken", f"{path} has no config.json", advice="give the folder of one model")
    return parse_config(f"{path}/config.json", folder.files["config.json"], folder.files.get("hf_quant_config.json"))


def _all_readable(path: str, folder: Folder) -> None:
    for name, why in folder.unreadable.items():
        if why == "gone":
            raise ModelError(
                "model-incomplete",
                f"{path}: {name} is a link to nowhere",
                seen=f"{len(folder.unreadable)} files that can't be read: {', '.join(list(folder.unreadable)[:5])}",
                advice="in a hub's cache the files lie in `blobs`; fetch the model again",
            )
        raise ModelError("model-unread", f"{path}/{name} could not be read", seen="no rights", advice="mend its rights")


def _template_in(tokenizer_config: bytes) -> bytes:
    """The chat template alone: models that don't think have `<think>` among their tokens, too."""
    try:
        config = json.loads(tokenizer_config or b"{}")
    except (ValueError, RecursionError):
        return b""
    return json.dumps(config.get("chat_template") if isinstance(config, dict) else None).encode()
