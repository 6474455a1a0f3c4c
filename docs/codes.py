"""Every finding code and error code in the source, read from its syntax trees and from the catalogues beside it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FORWARDED = ("code", "id")  # `finding.code`, `failure.id`: said elsewhere already


# Packages within a stage.
_STAGES = {
    "readers": "probe",
    "kernels": "probe",
    "images": "distribute",
    "weights": "distribute",
    "failures": "watch",
}


# What the pivot loop makes of the probe's words.
_FATES = {"YES": "ok", "VIA_TRANSFORMERS": "ok", "NO": "hopeless", "REMOVED": "hopeless", "PLUGIN": "hopeless"}


class Unresolved(Exception):
    """A code that reading alone can't tell; write it as a literal or as a constant of its module."""


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """One place where a code is given: by a stage with a fate, or as an error with an exit status."""

    code: str
    where: str  # the stage, or "error"
    what: str  # the fate, or the exit status
    file: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Taker:
    """Something that is called with a code: at which position, and the exit status when it is an error."""

    position: int
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """A source file, with what the search needs to know of it."""

    path: Path
    tree: ast.Module
    constants: Mapping[str, ast.expr]

    @property
    def stage(self) -> str:
        """The package it is in: probe, watch, verify, …"""
        name = self.path.parent.name or "bascule"
        return _STAGES.get(name, name)


def uses(package: Path) -> list[Use]:
    """All codes of a package, with every place that gives them. Raises Unresolved."""
    paths = sorted(path for path in package.rglob("*.py") if path.parent.name != "node")  # those are sent to nodes
    found = set(_of_source(tuple((path.relative_to(package), path.read_text(encoding="utf-8")) for path in paths)))
    for path in (*package.rglob("failures/*.toml"), *package.rglob("troubles.toml")):
        found |= set(_of_catalogue(path, package))
    return sorted(found)


@cache  # trees of the same texts are searched once
def _of_source(texts: tuple[tuple[Path, str], ...]) -> frozenset[Use]:
    modules = [_module(path, text) for path, text in texts]
    shared = _shared_takers(modules)
    constants = {name: value for module in modules for name, value in module.constants.items()}
    return frozenset(use for module in modules for use in _of_module(module, shared, constants))


@cache
def _module(path: Path, text: str) -> Module:
    tree = ast.parse(text)
    pairs = [(node.targets[0], node.value) for node in tree.body if isinstance(node, ast.Assign)]
    return Module(path, tree, {target.id: value for target, value in pairs if isinstance(target, ast.Name)})


def _shared_takers(modules: Sequence[Module]) -> dict[str, Taker]:
    """Classes and public functions that take a code; a subclass takes it where its base does."""
    takers: dict[str, Taker] = {}
    classes = [node for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    for _ in range(3):  # a base may be seen after its subclass
        for node in classes:
            if taker := _of_class(node, takers):
                takers[node.name] = taker
    for module in modules:
        takers |= {name: taker for name, taker in _functions(module).items() if not name.startswith("_")}
    return takers


def _of_class(node: ast.ClassDef, takers: Mapping[str, Taker]) -> Taker | None:
    fields = [
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]
    made = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    bases = [takers[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in takers]
    status = _status(node)
    if made and (position := _position(made)) is not None:
        return Taker(position, status)
    if "code" in fields:
        return Taker(fields.index("code"))
    return Taker(bases[0].position, bases[0].status if status is None else status) if bases else None


def _status(node: ast.ClassDef) -> int | None:
    for part in node.body:
        match part:
            case ast.Assign(targets=[ast.Name(id="exit_status")], value=ast.Constant(value=int(status))):
                return status
    return None


def _functions(module: Module) -> dict[str, Taker]:
    places = ((node.name, _position(node)) for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef))
    return {name: Taker(place) for name, place in places if place is not None and name != "__init__"}


def _position(function: ast.FunctionDef) -> int | None:
    """Where a function takes `code: str`, not counting self; an exit code is a number and no code of ours."""
    arguments = [argument for argument in function.args.args if argument.arg != "self"]
    for place, argument in enumerate(arguments):
        if argument.arg == "code" and isinstance(argument.annotation, ast.Name) and argument.annotation.id == "str":
            return place
    return None


def _of_module(module: Module, shared: Mapping[str, Taker], constants: Mapping[str, ast.expr]) -> Iterator[Use]:
    takers = {**shared, **_functions(module)}
    file = module.path.as_posix()
    for call, function in _calls(module.tree, None):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        taker = takers.get(name)
        value = _code_of(call, taker)
        if value is None:
            continue
        for code in _texts(value, function, {**constants, **module.constants}, f"{file}:{call.lineno}"):
            if taker and taker.status is not None:
                yield Use(code, "error", f"exit {taker.status}", file)
            elif name == "Refusal":
                yield Use(code, "fit", "hopeless (this candidate only)", file)  # a layout that can't be
            elif name == "Notice":
                yield Use(code, module.stage, _weight(call), file)
            elif fate := _fate(call):
                yield Use(code, module.stage, fate, file)
            else:
                yield Use(code, "error", "exit 2", file)  # told by the command line itself


def _calls(
    node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef | None
) -> Iterator[tuple[ast.Call, ast.FunctionDef | ast.AsyncFunctionDef | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, function
        yield from _calls(child, child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function)


def _code_of(call: ast.Call, taker: Taker | None) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
    if named is not None or taker is None:
        return named
    return call.args[taker.position] if taker.position < len(call.args) else None


def _texts(
    value: ast.expr,
    function: ast.FunctionDef | ast.AsyncFunctionDef | None,
    constants: Mapping[str, ast.expr],
    place: str,
) -> list[str]:
    match value:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp():
            return [text for side in (value.body, value.orelse) for text in _texts(side, function, constants, place)]
        case ast.Attribute() | ast.Subscript() | ast.Starred() if _is_handed_on(value):
            return []
        case ast.Name():
            if function and value.id in [argument.arg for argument in function.args.args]:
                return []  # a helper that hands it on: its callers are read
            local = _assigned(value.id, function) or constants.get(value.id)
            if local is not None:
                return _texts(local, function, constants, place)
    raise Unresolved(f"{place}: the code `{ast.unparse(value)}` is no literal")


def _is_handed_on(value: ast.expr) -> bool:
    """`finding.code`, `said["code"]`, `*words`: given elsewhere, and read there."""
    match value:
        case ast.Attribute():
            return value.attr in FORWARDED
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key in FORWARDED
        case _:
            return isinstance(value, ast.Starred)


def _assigned(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> ast.expr | None:
    for node in ast.walk(function) if function else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return node.value
    return None


def _fate(call: ast.Call) -> str | None:
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        match value:
            case ast.Attribute(value=ast.Name(id="Word"), attr=word):
                return _FATES.get(word, "unknown")
            case ast.Name(id="word"):
                return "unknown"  # MAYBE or UNKNOWN
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "Fate":
            scope = next((k.value for k in call.keywords if k.arg == "scope"), None)
            only = isinstance(scope, ast.Constant) and scope.value == "candidate"
            return value.attr.lower() + (" (this candidate only)" if only else "")
    return None


def _weight(call: ast.Call) -> str:
    """What a notice weighs, as core/notices.py has it."""
    weight = next((keyword.value for keyword in call.keywords if keyword.arg == "weight"), None)
    return weight.value if isinstance(weight, ast.Constant) else "warning"


def _of_catalogue(path: Path, package: Path) -> Iterator[Use]:
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    for row in (*raw.get("failure", ()), *raw.get("trouble", ())):
        if row.get("class") == "benign":
            continue  # never the code of a finding
        fate = row["fate"] + (" (this candidate only)" if row.get("scope") == "candidate" else "")
        what = "a consequence, never acted on" if row.get("class") == "cascade" else fate
        stage = _STAGES.get(path.parent.name, path.parent.name)
        yield Use(row["id"], stage, what, path.relative_to(package).as_posix())
