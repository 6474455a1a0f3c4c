"""Engine environments that are installed on the nodes, found by their packages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from bascule import settings
from bascule.core.nouns import Node
from bascule.engines.catalogue import ENGINES
from bascule.remote.connect import Runners

USUAL = ("~/.local/share/bascule/engines", "/opt/engines", "~/.venv", "~/venv")

# For each folder: it, or each folder in it, that is a Python environment; with the distributions that are asked for.
_SCRIPT = """
packages=$1; shift
for given in "$@"; do
  case "$given" in "~/"*) given=$HOME/${given#"~/"} ;; esac
  for folder in "$given" "$given"/*; do
    [ -x "$folder/bin/python" ] || continue
    for package in $packages; do
      for info in "$folder"/lib/python3*/site-packages/"$package"-[0-9]*.dist-info; do
        [ -d "$info" ] && echo "$package $folder"
      done
    done
  done
done
for tool in vllm sglang; do
  where=$(command -v "$tool") && folder=$(dirname "$(dirname "$where")") && [ -x "$folder/bin/python" ] &&
    echo "$tool $folder"
done
true
"""


async def find_environments(nodes: Sequence[Node], runners: Runners, given: Sequence[str]) -> dict[str, list[str]]:
    """Engine -> folders that hold it on every node; `given` folders replace the usual places."""
    folders = tuple(given) or (*_from_variable(), *USUAL)
    per_node = await asyncio.gather(*(_on(node, runners, folders) for node in nodes))
    common = set.intersection(*(set(one) for one in per_node)) if per_node else set()
    ordered = [pair for pair in per_node[0] if pair in common] if per_node else []
    engines: dict[str, list[str]] = {}
    for engine, folder in dict.fromkeys(ordered):
        engines.setdefault(engine, []).append(folder)
    return _without_helpers(engines)


async def _on(node: Node, runners: Runners, folders: Sequence[str]) -> list[tuple[str, str]]:
    by_package = {
        package.replace("-", "_"): name for name, engine in ENGINES.items() for package in engine.lore.packages
    }
    result = await runners[node.name].run(("sh", "-s", "--", " ".join(by_package), *folders), stdin=_SCRIPT, within=20)
    pairs = [line.split(" ", 1) for line in result.text.splitlines() if " " in line]
    return [(by_package[package], folder) for package, folder in pairs if package in by_package]


def _without_helpers(engines: dict[str, list[str]]) -> dict[str, list[str]]:
    """transformers comes along with vLLM and SGLang: it stays a candidate, but behind them."""
    return {name: sorted(set(folders), key=folders.index) for name, folders in engines.items()}


def _from_variable() -> tuple[str, ...]:
    return tuple(folder for folder in os.environ.get(settings.ENGINES_VARIABLE, "").split(":") if folder)
