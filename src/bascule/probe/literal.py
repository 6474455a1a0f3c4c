"""The statements of a Python module -> the values of its names, by reading alone: nothing is imported or run."""

from __future__ import annotations

import ast
import platform
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bascule.core.reading import Spot
from bascule.probe.expressions import bind, dict_from_call, truth, value_of
from bascule.probe.values import PLAIN, WORK, Env, Table, TooMuch, Unknown, lines_of, spot_in

HARMLESS = ("items", "keys", "values", "get", "copy")
# Bytes of a file that is parsed: 1 MiB of the shortest statements takes 3 s and 0.6 GB of memory (Python 3.11); the
# longest module of vLLM 0.14 - 0.32, SGLang 0.5.5 - 0.5.23 and transformers 4.57 - 5.24 has 360 kB.
SOURCE_LIMIT = 1024 * 1024


def evaluate(
    source: bytes, path: str, known: Mapping[str, Any] | None = None, calls: Mapping[str, Any] | None = None
) -> Mapping[str, Any] | Unknown:
    """The names of a module and their values, those of a class as `Class.name`. Unknown when it can't be parsed.

    `known` are names it imports; `calls` are answers of functions without arguments. Takes bytes, because ast reads a
    byte order mark and an encoding line itself.
    """
    tree = parse(source, path)
    if isinstance(tree, Unknown):
        return tree
    env = Env(path, lines_of(source), dict(known or {}), calls or {})
    try:
        _run(tree.body, env)
    except TooMuch:
        why = f"takes more than {WORK} steps to evaluate"
        return Unknown(Spot(path, None, why), why)
    return env.names


def parse(source: bytes, path: str) -> ast.Module | Unknown:
    """The syntax tree, or why there is none: with the line."""
    if len(source) > SOURCE_LIMIT:
        why = f"{len(source)} bytes, more than the {SOURCE_LIMIT} that are parsed"
        return Unknown(Spot(path, None, why), why)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the engine's own string escapes
            return ast.parse(source)
    except SyntaxError as broken:
        line, says = broken.lineno, broken.msg
    except ValueError as broken:  # NUL bytes
        line, says = None, str(broken)
    except (RecursionError, MemoryError) as broken:
        line, says = None, f"nested too deeply ({type(broken).__name__})"
    why = f"not parsable by Python {platform.python_version()}: {says}"
    seen = spot_in(lines_of(source), path, ast.Pass(lineno=line)) if line else Spot(path, None, why)
    return Unknown(seen, why)


def _run(body: list[ast.stmt], env: Env) -> None:
    for statement in body:
        env.budget.spend(1)
        try:
            _STATEMENTS.get(type(statement), _blur)(statement, env)
        except RecursionError:
            _blur(statement, env, "is nested too deeply to be read")


def _assign(node: ast.Assign | ast.AnnAssign, env: Env) -> None:
    if node.value is None:
        return
    value = value_of(node.value, env)
    if isinstance(value, Table):
        value = value.at(env.spot(node))
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Subscript):
            _change(target.value, env, partial(_with_entry, target, value, env))
        else:
            bind(target, value, env)


def _with_entry(target: ast.Subscript, value: Any, env: Env, table: Table) -> Table:
    return table.having(value_of(target.slice, env), value, env.spot(target))


def _without_entry(key: ast.expr, env: Env, table: Table) -> Table:
    return table.without(value_of(key, env), env.spot(key))


def _assign_more(node: ast.AugAssign, env: Env) -> None:
    if not isinstance(node.target, ast.Name):
        return
    joined = value_of(ast.copy_location(ast.BinOp(_load(node.target), node.op, node.value), node), env)
    if isinstance(joined, Unknown) and isinstance(env.names.get(node.target.id), Table):
        joined = env.names[node.target.id].with_gap(joined)
    env.names[node.target.id] = joined


def _load(name: ast.Name) -> ast.Name:
    return ast.copy_location(ast.Name(name.id, ast.Load()), name)


def _expression(node: ast.Expr, env: Env) -> None:
    call = node.value
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return
    method, spot = call.func.attr, env.spot(call)
    if method == "update":
        _change(call.func.value, env, lambda table: dict_from_call(call, env, table))
    elif method == "pop" and call.args:
        _change(call.func.value, env, partial(_without_entry, call.args[0], env))
    elif method not in HARMLESS:
        _change(call.func.value, env, lambda table: table.with_gap(Unknown(spot, f"calls .{method}()")))


def _delete(node: ast.Delete, env: Env) -> None:
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            _change(target.value, env, partial(_without_entry, target.slice, env))
        elif isinstance(target, ast.Name):
            env.names.pop(target.id, None)


def _change(holder: ast.expr, env: Env, change: Callable[[Table], Table]) -> None:
    """Change a table that has a name; a list or another known value is Unknown afterwards."""
    if not isinstance(holder, ast.Name) or holder.id not in env.names:
        return
    table = env.names[holder.id]
    if isinstance(table, Table):
        env.budget.spend(len(table.entries) + len(table.gaps))
    env.names[holder.id] = change(table) if isinstance(table, Table) else env.unknown(holder, "changed in place")


def _class(node: ast.ClassDef, env: Env) -> None:
    """What its body gives to names; a class that is a dict, with dict's own way to be made, makes tables."""
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    is_dict = any(isinstance(base, ast.Name) and base.id in env.dict_classes for base in bases)
    own = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    if is_dict and not own & {"__init__", "__new__", "__contains__"}:
        env.dict_classes.add(node.name)
    inner = env.copy()
    _run(node.body, inner)
    for name, value in inner.names.items():
        if value is not env.names.get(name, inner):
            env.names[f"{node.name}.{name}"] = value
    env.names[node.name] = env.unknown(node, f"{node.name} is a class")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, env: Env) -> None:
    env.names[node.name] = env.unknown(node, f"{node.name} is a function")


def _if(node: ast.If, env: Env) -> None:
    is_typing = isinstance(node.test, ast.Name | ast.Attribute) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    test = False if is_typing else truth(node.test, env)
    if not isinstance(test, Unknown):
        return _run(node.body if test else node.orelse, env)
    one, other = env.copy(), env.copy()
    _run(node.body, one)
    _run(node.orelse, other)
    for name in one.names.keys() | other.names.keys():
        doubt = env.unknown(node, f"{name} depends on a condition")
        env.names[name] = _either(one.names.get(name, doubt), other.names.get(name, doubt), doubt)
    return None


def _either(one: Any, other: Any, doubt: Unknown) -> Any:
    """What two branches agree on."""
    if one is other or (isinstance(one, PLAIN) and isinstance(other, PLAIN) and one == other):
        return one
    if not (isinstance(one, Table) and isinstance(other, Table)):
        return doubt
    shared = {key: one.entries[key] for key in one.entries if key in other.entries}
    table = Table(one.where, shared, {key: one.spots[key] for key in shared}, one.gaps + other.gaps)
    return table if shared.keys() == one.entries.keys() == other.entries.keys() else table.with_gap(doubt)


def _try(node: ast.Try, env: Env) -> None:
    """The body is taken to succeed; what only a handler would add leaves a gap."""
    _run(node.body + node.orelse, env)
    for handler in node.handlers:
        failed = env.copy()
        _run(handler.body, failed)
        for name, value in failed.names.items():
            table = env.names.get(name)
            if isinstance(table, Table) and isinstance(value, Table) and value.entries.keys() - table.entries.keys():
                env.names[name] = table.with_gap(env.unknown(handler, f"{name} depends on an exception"))
            elif name not in env.names:
                env.names[name] = env.unknown(handler, f"{name} depends on an exception")
    _run(node.finalbody, env)


def _with(node: ast.With, env: Env) -> None:
    _run(node.body, env)


def _nothing(node: ast.stmt, env: Env) -> None:
    """Imports and the like: an imported name keeps what the caller knew of it."""


def _blur(node: ast.stmt, env: Env, why: str = "") -> None:
    """A loop, or another statement that isn't followed: every name it may change is uncertain afterwards."""
    doubt = env.unknown(node, why or f"{type(node).__name__.lower()} at the top of the module may change it")
    for name in _touched(node):
        value = env.names.get(name, doubt)
        env.names[name] = value.with_gap(doubt) if isinstance(value, Table) else doubt


def _touched(node: ast.AST) -> set[str]:
    found = set()
    for inner in ast.walk(node):  # walk doesn't recurse
        holder: ast.AST = inner
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr not in HARMLESS:
            holder = inner.func.value
        elif isinstance(inner, ast.Subscript) and not isinstance(inner.ctx, ast.Load):
            holder = inner.value
        elif not (isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load)):
            continue
        if isinstance(holder, ast.Name):
            found.add(holder.id)
    return found


_STATEMENTS: Mapping[type[ast.stmt], Callable[[Any, Env], None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _assign,
    ast.AugAssign: _assign_more,
    ast.Expr: _expression,
    ast.Delete: _delete,
    ast.ClassDef: _class,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.If: _if,
    ast.Try: _try,
    ast.With: _with,
    ast.Import: _nothing,
    ast.ImportFrom: _nothing,
    ast.Pass: _nothing,
    ast.Assert: _nothing,
}
