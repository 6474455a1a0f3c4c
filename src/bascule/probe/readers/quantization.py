"""Quantization: what an engine calls a config.json's method, whether a release has it, and from which GPU on."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bascule.core.nouns import Quantization
from bascule.core.reading import Spot
from bascule.probe.readers.arguments import Source
from bascule.probe.readers.base import Modules, any_of
from bascule.probe.values import Answer, Table

ROW = Mapping[str, Any]


def row_of(method: Quantization, rows: Sequence[ROW]) -> ROW:
    """The row of data/engines that fits a model: of those for its method the one with the longest algorithm."""
    name, algorithm = method.method.lower(), method.algorithm.lower()
    fitting = [row for row in rows if row["method"] == name and row.get("algorithm", "") in algorithm]
    return max(fitting, key=lambda row: len(row.get("algorithm", "")), default={"method": name, "names": [name]})


async def method_answer(
    modules: Modules, engine: str, row: ROW, files: Sequence[str], table_name: str
) -> tuple[Answer, list[str]]:
    """Whether a release has the method of a row, and which of its names; a plugin may bring one that is missing."""
    table = await modules.value(files, table_name)
    answer = any_of(table, row["names"], table_name)
    if answer.yes is False and (plugged := await modules.plugins(engine)).yes is not False:
        answer = plugged
    return answer, [name for name in row["names"] if isinstance(table, Table) and name in table.entries]


async def capability_answer(modules: Modules, path: str, names: Sequence[str], gpu: str) -> Answer | None:
    """A no when the GPU is below what every one of these methods asks for; else None, because more than that counts.

    `path` is the module that maps a method's name to its class; `gpu` is e.g. sm_121.
    """
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", gpu)
    if not match:
        return None
    found = [await _least(modules, path, name) for name in names]
    asked = [(least, spot) for least, spot in (answer for answer in found if answer)]
    if len(asked) < len(names) or not asked or int(match[1]) >= min(least for least, _ in asked):
        return None
    least, spot = min(asked, key=lambda answer: answer[0])
    return Answer(False, (spot,), f"it asks for sm_{least} or newer, and this is {gpu}")


async def least_capability(modules: Modules, path: str, method: str) -> int | None:
    """What the class of a method returns from get_min_capability(), e.g. 89; None when that is no literal."""
    found = await _least(modules, path, method)
    return found[0] if found else None


async def _least(modules: Modules, path: str, method: str) -> tuple[int, Spot] | None:
    source = await modules.source(path)
    if source is None:
        return None
    file = Source(source, path)
    name = _class_of(file.tree, method)
    return await _of_class(modules, file, name, 4) if name else None


def _class_of(tree: ast.Module, method: str) -> str | None:
    """The class beside a method's name in a dict of the module, or of one of its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == method and isinstance(value, ast.Name):
                    return value.id
    return None


async def _of_class(modules: Modules, file: Source, name: str, steps: int) -> tuple[int, Spot] | None:
    """From the class itself, from one it inherits from, or from the module it is imported from; `steps` bounds that."""
    node = next((item for item in file.classes() if item.name == name), None)
    if steps == 0:
        return None
    if node is None:
        return await _of_import(modules, file, name, steps)
    own = next((item for item in node.body if getattr(item, "name", "") == "get_min_capability"), None)
    if own is None:
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        return await _of_class(modules, file, bases[0], steps - 1) if bases else None
    returned = [item for item in ast.walk(own) if isinstance(item, ast.Return)]
    value = returned[0].value if len(returned) == 1 else None
    if isinstance(value, ast.Constant) and isinstance(value.value, int):
        return value.value, file.spot(returned[0])
    return None


async def _of_import(modules: Modules, file: Source, name: str, steps: int) -> tuple[int, Spot] | None:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom) and any((item.asname or item.name) == name for item in node.names):
            real = next(item.name for item in node.names if (item.asname or item.name) == name)
            for path in _paths(file.path, node):
                source = await modules.source(path)
                if source is not None:
                    return await _of_class(modules, Source(source, path), real, steps - 1)
    return None


def _paths(importer: str, node: ast.ImportFrom) -> tuple[str, str]:
    """Where an imported module may stand: a file, or a package's __init__.py."""
    base = importer.split("/")[: -node.level] if node.level else []
    place = "/".join([*base, *(node.module or "").split(".")]).strip("/")
    return f"{place}.py", f"{place}/__init__.py"
