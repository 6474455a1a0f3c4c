"""A model as a command line names it: a folder, a config.json, a name on a hub, or just an architecture."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bascule.core.nouns import Model, Node
from bascule.discover.hub import from_hub
from bascule.discover.hub_files import Hub
from bascule.discover.model import from_name, read_config_file, read_model
from bascule.errors import ModelError
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Runner

_ARCHITECTURE = re.compile(r"([A-Z]\w*)(?::([\w.-]+))?")
_ON_HUB = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


async def named_model(text: str, runner: Runner, node: Node) -> Model:
    """The model; an absolute folder is looked for on the node, a file here. Raises ModelError, NodeUnreachable.

    `LlamaForCausalLM:llama` is an architecture with its model_type, which may be left out where it is known.
    """
    path = Path(text).expanduser()
    if text.endswith(".json"):
        return read_config_file(path)
    if path.is_dir() and (node.is_local or not path.is_absolute()):
        here = Node("here", "local")
        return await read_model(str(path), LocalRunner(here), here)
    if text.startswith(("/", "~", "./", "../")):
        return await read_model(text, runner, node)
    if found := _ARCHITECTURE.fullmatch(text):
        return from_name(found[1], found[2] or "")
    if _ON_HUB.fullmatch(text):
        return await from_hub(text, Hub.from_environment(os.environ), count=False)
    advice = "a folder, a config.json, owner/name on a hub, or an architecture such as LlamaForCausalLM"
    raise ModelError("model-missing", f"there is no model {text}", seen=text, advice=advice)
