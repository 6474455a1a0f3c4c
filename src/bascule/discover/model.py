"""The facts of a model, from its folder on a node: config.json, the chat template, the size of the weights."""

from __future__ import annotations

import json
from typing import Any

from bascule.core.nouns import Model, Node
from bascule.errors import ModelError
from bascule.remote.runner import Runner

MAX_CONFIG = 16 * 1024 * 1024  # bytes; a config.json beyond that is none

# Prints the files one after another, each behind a line with its size; template files may be missing.
_SCRIPT = """
cd "$1" || exit 3
for name in config.json chat_template.jinja tokenizer_config.json; do
  [ -r "$name" ] && printf '=== %s %s\\n' "$name" "$(wc -c <"$name")" && head -c "$2" "$name" && echo
done
sum=$(ls -Ll -- *.safetensors *.gguf *.bin 2>/dev/null | awk '{ sum += $5 } END { printf "%.0f", sum }')
echo "=== weights $sum"
"""


async def read_model(path: str, runner: Runner, node: Node) -> Model:
    """The model in this folder on this node. Raises ModelError when it is missing or broken."""
    result = await runner.run(("sh", "-s", "--", path, str(MAX_CONFIG)), stdin=_SCRIPT, within=30)
    if result.status == 3:
        raise ModelError(
            "model-missing",
            f"there is no folder {path} on {node.name}",
            seen=result.complaint,
            advice="`model:` is a folder that every node has at the same path",
        )
    if not result.ok:
        why = "it took more than 30 s" if result.timed_out else result.complaint
        raise ModelError("model-unread", f"{path} on {node.name} could not be read", seen=why)
    return parse_model(path, result.stdout)


def parse_model(path: str, out: bytes) -> Model:
    """The facts from what the script printed. Raises ModelError."""
    files, weights = _files(out)
    if "config.json" not in files:
        raise ModelError("model-broken", f"{path} has no config.json", advice="give the folder of one model")
    config = _object(path, files["config.json"])
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not all(isinstance(a, str) for a in architectures):
        raise ModelError("model-broken", f"{path}/config.json names no architectures", seen=repr(architectures))
    templates = files.get("chat_template.jinja", b"") + _template_in(files.get("tokenizer_config.json", b""))
    return Model(
        path,
        tuple(architectures),
        str(config.get("model_type", "")),
        bytes=weights or None,
        thinks=b"<think>" in templates,
    )


def _object(path: str, raw: bytes) -> dict[str, Any]:
    try:
        config = json.loads(raw)
    except ValueError as trouble:
        raise ModelError("model-broken", f"{path}/config.json is no JSON", seen=str(trouble)) from trouble
    if not isinstance(config, dict):
        raise ModelError("model-broken", f"{path}/config.json is no object", seen=type(config).__name__)
    return config


def _template_in(tokenizer_config: bytes) -> bytes:
    """The chat template alone: models that don't think have `<think>` among their tokens, too."""
    try:
        config = json.loads(tokenizer_config or b"{}")
    except ValueError:
        return b""
    return json.dumps(config.get("chat_template") if isinstance(config, dict) else None).encode()


def _files(out: bytes) -> tuple[dict[str, bytes], int]:
    files: dict[str, bytes] = {}
    while out.startswith(b"=== "):
        head, _, out = out.partition(b"\n")
        name, size = head.decode().split()[1:]
        if name == "weights":
            return files, int(size)
        length = min(int(size), MAX_CONFIG)
        files[name], out = out[:length], out[length + 1 :]
    return files, 0
