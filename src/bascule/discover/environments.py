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
ON_PATH = ("vllm", "sglang")  # commands that lead to an environment

# For each folder: it, or each folder in it, that is a Python environment; with the distributions that are asked for.
_SCRIPT = """
packages=$1; tools=$2; shift 2
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
for tool in $tools; do
  where=$(command -v "$tool") && folder=$(dirname "$(dirname "$where")") && [ -x "$folder/bin/python" ] &&
    echo "$tool $folder"
done
true
"""


async def find_environments(nodes: Sequence[Node], runners: Runners, given: Sequence[str]) -> dict[str, list[str]]:
    """Engine -> folders that hold it on every node; `given` folders replace the usual places."""
    folders = tuple(given) or (*_from_variable(), *USUAL)
    tools = () if given else ON_PATH
    per_node = await asyncio.gather(*(_on(node, runners, folders, tools) for node in nodes))
    common = set.intersection(*(set(one) for one in per_node)) if per_node else set()
    ordered = [pair for pair in per_node[0] if pair in common] if per_node else []
    engines: dict[str, list[str]] = {}
    for engine, folder in dict.fromkeys(ordered):
        engines.setdefault(engine, []).append(folder)
    return engines


async def _on(node: Node, runners: Runners, folders: Sequence[str], tools: Sequence[str]) -> list[tuple[str, str]]:
    by_package = {
        package.replace("-", "_"): name for name, engine in ENGINES.items() for package in engine.lore.packages
    }
    words = ("sh", "-s", "--", " ".join(by_package), " ".join(tools), *folders)
    result = await runners[node.name].run(words, stdin=_SCRIPT, within=20)
    pairs = [line.split(" ", 1) for line in result.text.splitlines() if " " in line]
    return [(by_package[package], folder) for package, folder in pairs if package in by_package]


def _from_variable() -> tuple[str, ...]:
    return tuple(folder for folder in os.environ.get(settings.ENGINES_VARIABLE, "").split(":") if folder)
