"""Command-line arguments that Python source declares: literal `add_argument` calls, and fields of classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from bascule.core.reading import Spot
from bascule.probe.literal import parse
from bascule.probe.values import Draft, Unknown, lines_of, spot_in

MARKERS = ("A", "Annotated")  # SGLang writes `name: A[type, "help"]` or `name: A[type, Arg(…)]`


class Source:
    """One parsed file; `broken` says why where there is none."""

    def __init__(self, source: bytes | None, path: str) -> None:
        gone = Unknown(Spot(path, None, "no such file"), f"{path} is missing")
        parsed = gone if source is None else parse(source, path)
        self.path = path
        self.broken = parsed if isinstance(parsed, Unknown) else None
        self.tree = ast.Module([], []) if isinstance(parsed, Unknown) else parsed
        self._lines = [] if self.broken else lines_of(source or b"")

    def spot(self, node: ast.AST) -> Spot:
        """Where a node stands."""
        return spot_in(self._lines, self.path, node)

    def classes(self) -> Iterator[ast.ClassDef]:
        """The classes at its top."""
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))

    def calls(self, name: str) -> Iterator[ast.Call]:
        """The calls of a method or function of this name, wherever they stand."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called == name:
                    yield node


def literal_arguments(file: Source, booleans: Mapping[str, bool], draft: Draft) -> list[Spot]:
    """Add each flag of an `add_argument("--flag", …)`; the spots of calls whose flag is no literal are given back.

    `booleans` tells of fields whether they are booleans: their flags have a --no- form where the call's `action` comes
    with the `**` of such a field.
    """
    unclear = []
    for call in file.calls("add_argument"):
        words = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if len(words) < len(call.args) or not words:
            unclear.append(file.spot(call))
        flags = [word for word in words if word.startswith("-")]
        for flag in flags:
            draft.add(flag, flag.startswith("--") and _negated(call, flags, booleans), file.spot(call.args[0]))
    return unclear


def _negated(call: ast.Call, flags: Sequence[str], booleans: Mapping[str, bool]) -> bool | None:
    """Whether `--no-flag` exists, too: with argparse.BooleanOptionalAction; None when that can't be told."""
    action = next((word.value for word in call.keywords if word.arg == "action"), None)
    if action is not None:
        return _has_negation(action)
    spread = [word.value for word in call.keywords if word.arg is None]
    if not spread:
        return False
    names = [flag.lstrip("-").replace("-", "_") for flag in flags]
    names += [
        item.value for item in ast.walk(spread[0]) if isinstance(item, ast.Constant) and isinstance(item.value, str)
    ]
    return next((booleans[name] for name in names if name in booleans), None)


def literal_choices(file: Source, flag: str) -> dict[str, Spot]:
    """The texts among the `choices` of a flag's `add_argument`, e.g. "auto" of `["auto"] + names`."""
    found: dict[str, Spot] = {}
    for call in file.calls("add_argument"):
        if any(isinstance(item, ast.Constant) and item.value == flag for item in call.args):
            given = [word.value for word in call.keywords if word.arg == "choices"]
            items = [item for node in given for item in ast.walk(node) if isinstance(item, ast.Constant)]
            found |= {item.value: file.spot(item) for item in items if isinstance(item.value, str)}
    return found


def fields(node: ast.ClassDef) -> dict[str, bool]:
    """The annotated fields of a class, and which of them are booleans alone (`bool`, `bool | None`)."""
    found = {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            words = {inner.id for inner in ast.walk(item.annotation) if isinstance(inner, ast.Name)}
            found[item.target.id] = "bool" in words and "str" not in words
    return found


def field_flags(file: Source, node: ast.ClassDef, draft: Draft) -> None:
    """Add a flag for each field of a class, named after it."""
    kinds = fields(node)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            name = item.target.id
            draft.add(f"--{name.replace('_', '-')}", kinds[name], file.spot(item))


def marked_flags(file: Source, node: ast.ClassDef, draft: Draft) -> None:
    """Add the flags of the fields that are marked as arguments: `A[type, "help"]`, `A[type, Arg(aliases=[…], …)]`."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            for name in _marked(item.target.id, item.annotation):
                if name is None:
                    draft.gaps.append(Unknown(file.spot(item), "has a name that is no literal"))
                else:
                    draft.add(name, name.startswith("--") and _has_negation(item.annotation), file.spot(item))


def _has_negation(node: ast.expr) -> bool:
    """Whether argparse.BooleanOptionalAction is named in it."""
    return any(isinstance(item, ast.Attribute) and item.attr == "BooleanOptionalAction" for item in ast.walk(node))


def _marked(field: str, annotation: ast.expr) -> list[str | None]:
    if not (isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") in MARKERS):
        return []
    words = annotation.slice.elts[1:] if isinstance(annotation.slice, ast.Tuple) else []
    for word in words:
        if isinstance(word, ast.Constant | ast.JoinedStr | ast.BinOp):  # a help text
            return [f"--{field.replace('_', '-')}"]
        if isinstance(word, ast.Call) and getattr(word.func, "id", "") == "Arg":
            return _of_arg(field, {item.arg: item.value for item in word.keywords})
    return []


def _of_arg(field: str, words: Mapping[str | None, ast.expr]) -> list[str | None]:
    hidden = words.get("no_cli")
    if isinstance(hidden, ast.Constant) and hidden.value:
        return []
    name = words.get("cli_name")
    aliases = words.get("aliases")
    given = aliases.elts if isinstance(aliases, ast.List | ast.Tuple) else [aliases] if aliases else []
    first = [f"--{field.replace('_', '-')}"] if name is None or _text(name) == "" else [_text(name)]
    unsure: list[str | None] = [] if hidden is None or isinstance(hidden, ast.Constant) else [None]
    return [*first, *map(_text, given), *unsure]


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
