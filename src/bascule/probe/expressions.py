"""Expressions of Python source -> values, without running anything; what reading can't tell is Unknown."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from bascule.core.reading import Spot
from bascule.probe.comparisons import compare
from bascule.probe.values import Draft, Env, Table, Unknown

LONGEST = 100_000  # characters or items of what is joined; nothing that names a model is longer


def value_of(node: ast.expr, env: Env) -> Any:
    """The value of an expression, or Unknown. Raises TooMuch, and RecursionError for what is nested too deeply."""
    env.budget.spend(1)
    evaluate = _EXPRESSIONS.get(type(node))
    if evaluate is None:
        return env.unknown(node, f"{type(node).__name__} is not a literal")
    return evaluate(node, env)


def truth(node: ast.expr, env: Env) -> bool | Unknown:
    """Whether a condition holds: `unknown and False` is a clear no."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = truth(node.operand, env)
        return inner if isinstance(inner, Unknown) else not inner
    if isinstance(node, ast.BoolOp):
        decisive = isinstance(node.op, ast.Or)
        parts = [truth(part, env) for part in node.values]
        if decisive in parts:
            return decisive
        return next((part for part in parts if isinstance(part, Unknown)), not decisive)
    value = value_of(node, env)
    return value if isinstance(value, Unknown) else bool(value)


def dict_from_call(node: ast.Call, env: Env, start: Table | None = None) -> Table:
    """The table of `dict(…)`, `OrderedDict(…)` or `x.update(…)`: pairs, another dict, keywords, `**`."""
    draft = Draft.of(start) if start else Draft(env.spot(node))
    for argument in node.args:
        _add_argument(draft, argument, env)
    for keyword in node.keywords:
        value = value_of(keyword.value, env)
        if keyword.arg is None:
            _merge(draft, value, keyword, env)
        else:
            draft.add(keyword.arg, value, env.spot(keyword))
    return draft.table()


def _merge(draft: Draft, value: Any, node: ast.AST, env: Env) -> None:
    if isinstance(value, Table):
        env.budget.spend(len(value.entries) + len(value.gaps))
    draft.merge(value, env.spot(node))


def _add_argument(draft: Draft, argument: ast.expr, env: Env) -> None:
    if not isinstance(argument, ast.List | ast.Tuple):
        value = value_of(argument, env)
        if not isinstance(value, tuple):
            return _merge(draft, value, argument, env)
        rows = [(row, env.spot(argument)) for row in value]
    else:
        rows = [(value_of(row, env), env.spot(row)) for row in argument.elts]
    for row, spot in rows:
        if isinstance(row, tuple) and len(row) == 2:
            draft.add(row[0], row[1], spot)
        else:
            draft.gaps.append(Unknown(spot, "has a row that is no pair"))
    return None


def _name(node: ast.Name, env: Env) -> Any:
    return env.names.get(node.id, env.unknown(node, f"{node.id} is not defined by a literal here"))


def _sequence(node: ast.Tuple | ast.List | ast.Set, env: Env) -> Any:
    found: list[Any] = []
    for item in node.elts:
        value = value_of(item.value if isinstance(item, ast.Starred) else item, env)
        if not isinstance(item, ast.Starred):
            found.append(value)
        elif isinstance(value, tuple):
            found += value
        elif isinstance(value, Table) and not value.gaps:
            found += value.entries
        else:
            return env.unknown(item, "unpacks something that is no literal")
    return _joined(tuple(found), node, env)


def _joined(value: str | tuple[Any, ...], node: ast.expr, env: Env) -> Any:
    """What was put together: within bounds, so that no file makes one thing of gigabytes."""
    env.budget.spend(len(value) // 100)
    return value if len(value) <= LONGEST else env.unknown(node, f"joins more than {LONGEST} items")


def _dict(node: ast.Dict, env: Env) -> Table:
    draft = Draft(env.spot(node))
    for key, item in zip(node.keys, node.values, strict=True):
        value = value_of(item, env)
        if key is None:
            _merge(draft, value, item, env)
        else:
            draft.add(value_of(key, env), value, env.spot(key))
    return draft.table()


def _binary(node: ast.BinOp, env: Env) -> Any:
    left, right = value_of(node.left, env), value_of(node.right, env)
    if isinstance(node.op, ast.BitOr) and isinstance(left, Table):
        env.budget.spend(len(left.entries) + len(left.gaps))
        draft = Draft.of(left)
        _merge(draft, right, node.right, env)
        return draft.table()
    if isinstance(node.op, ast.Add):
        if isinstance(left, str) and isinstance(right, str):
            return _joined(left + right, node, env)
        if isinstance(left, tuple) and isinstance(right, tuple):
            return _joined(left + right, node, env)
    return env.unknown(node, "an operation that is not a literal")


def _f_string(node: ast.JoinedStr, env: Env) -> Any:
    words = []
    for part in node.values:
        plain = isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1
        value = value_of(part.value, env) if isinstance(part, ast.FormattedValue) else value_of(part, env)
        small = isinstance(value, str) or (isinstance(value, int) and abs(value) < 1 << 63)
        if not small or (isinstance(part, ast.FormattedValue) and not plain):
            return env.unknown(node, "an f-string of more than literals")
        words.append(str(value))
    return _joined("".join(words), node, env)


def _call(node: ast.Call, env: Env) -> Any:
    function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    if isinstance(function, ast.Name):
        name = function.id
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name = function.attr
    else:
        name = ""
    if name in env.dict_classes:
        return dict_from_call(node, env)
    if name in env.calls and not node.args and not node.keywords:
        return env.calls[name]
    if name in ("tuple", "list", "set", "frozenset") and len(node.args) == 1:
        rows = _rows(node.args[0], env)[0]
        return next((row for row in rows if isinstance(row, Unknown)), rows)
    return env.unknown(node, f"calls {name or 'something'}()")


def _dict_comprehension(node: ast.DictComp, env: Env) -> Table:
    draft = Draft(env.spot(node))
    sources = [_rows(generator.iter, env)[1] for generator in node.generators]
    for inner in _rounds(node.generators, env):
        if isinstance(inner, Unknown):
            draft.gaps.append(inner)
            continue
        key = value_of(node.key, inner)
        own_line = (spots[key] for spots in sources if isinstance(key, str) and key in spots)
        draft.add(key, value_of(node.value, inner), next(own_line, draft.where))
    return draft.table()


def _list_comprehension(node: ast.ListComp | ast.SetComp | ast.GeneratorExp, env: Env) -> Any:
    found = []
    for inner in _rounds(node.generators, env):
        if isinstance(inner, Unknown):
            return inner
        found.append(value_of(node.elt, inner))
    return tuple(found)


def _rounds(generators: list[ast.comprehension], env: Env) -> list[Env | Unknown]:
    """One Env per round of a comprehension; a round that may or may not happen is Unknown."""
    if not generators:
        return [env]
    first, *others = generators
    found: list[Env | Unknown] = []
    for row in _rows(first.iter, env)[0]:
        if isinstance(row, Unknown):
            found.append(row)
            continue
        inner = env.inner()
        bind(first.target, row, inner)
        tests = [truth(test, inner) for test in first.ifs]
        doubt = next((test for test in tests if isinstance(test, Unknown)), None)
        if doubt is not None:
            found.append(doubt)
        elif all(tests):
            found += _rounds(others, inner)
    return found


def _rows(node: ast.expr, env: Env) -> tuple[tuple[Any, ...], Mapping[Any, Spot]]:
    """What a comprehension runs over, its gaps as rows; and the lines of a dict's keys, which a copy keeps."""
    which = "keys"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
        which, node = node.func.attr, node.func.value
    value = value_of(node, env)
    if isinstance(value, Table):
        return (*_VIEWS[which](value), *value.gaps), value.spots
    if isinstance(value, tuple):
        return value, {}
    return (value if isinstance(value, Unknown) else env.unknown(node, "runs over no literal"),), {}


def bind(target: ast.expr, value: Any, env: Env) -> None:
    """Give a value to a name or to a tuple of names."""
    if isinstance(target, ast.Name):
        env.names[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        fits = isinstance(value, tuple) and len(value) == len(target.elts)
        for place, item in enumerate(target.elts):
            bind(item, value[place] if fits else env.unknown(target, "unpacks no literal"), env)


def _compare(node: ast.Compare, env: Env) -> Any:
    left, right = value_of(node.left, env), value_of(node.comparators[0], env)
    env.budget.spend(len(right) if isinstance(right, tuple | str) else 1)
    holds = compare(node.ops[0], left, right) if len(node.ops) == 1 else None
    return env.unknown(node, "a comparison of more than literals") if holds is None else holds


def _not(node: ast.UnaryOp, env: Env) -> Any:
    value = value_of(node.operand, env)
    if isinstance(value, Unknown):
        return value
    if isinstance(node.op, ast.Not):
        return not value
    return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else value


def _all_or_any(node: ast.BoolOp, env: Env) -> Any:
    value: Any = None
    for item in node.values:
        value = value_of(item, env)
        if isinstance(value, Unknown) or bool(value) == isinstance(node.op, ast.Or):
            return value
    return value


def _either(node: ast.IfExp, env: Env) -> Any:
    test = truth(node.test, env)
    if isinstance(test, Unknown):
        return test
    return value_of(node.body if test else node.orelse, env)


def _subscript(node: ast.Subscript, env: Env) -> Any:
    """An item of a table or a list, or what `Literal[…]` names."""
    if isinstance(node.value, ast.Name) and node.value.id == "Literal":
        value = value_of(node.slice, env)
        return value if isinstance(value, tuple | Unknown) else (value,)
    holder, key = value_of(node.value, env), value_of(node.slice, env)
    if isinstance(holder, Table) and isinstance(key, str | int) and key in holder.entries:
        return holder.entries[key]
    if isinstance(holder, tuple) and isinstance(key, int) and -len(holder) <= key < len(holder):
        return holder[key]
    return env.unknown(node, "looks up what is no literal")


def _attribute(node: ast.Attribute, env: Env) -> Any:
    """What the body of a class of this file gave to a name."""
    name = f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else ""
    return env.names.get(name, env.unknown(node, "Attribute is not a literal"))


_VIEWS: Mapping[str, Callable[[Table], tuple[Any, ...]]] = {
    "keys": lambda table: tuple(table.entries),
    "values": lambda table: tuple(table.entries.values()),
    "items": lambda table: tuple(table.entries.items()),
}

_EXPRESSIONS: Mapping[type[ast.expr], Callable[[Any, Env], Any]] = {
    ast.Constant: lambda node, env: node.value,
    ast.Name: _name,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.BinOp: _binary,
    ast.JoinedStr: _f_string,
    ast.Call: _call,
    ast.DictComp: _dict_comprehension,
    ast.ListComp: _list_comprehension,
    ast.SetComp: _list_comprehension,
    ast.GeneratorExp: _list_comprehension,
    ast.Compare: _compare,
    ast.UnaryOp: _not,
    ast.BoolOp: _all_or_any,
    ast.IfExp: _either,
    ast.Subscript: _subscript,
    ast.Attribute: _attribute,
}
