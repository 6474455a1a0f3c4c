"""SGLang: every module of srt/models says in EntryClass which architectures it has."""

from __future__ import annotations

import ast

from bascule.probe.literal import parse
from bascule.probe.packages import Package
from bascule.probe.readers.transformers import knows_class, knows_model_type, no_architecture
from bascule.probe.values import EXCERPT, Answer, Spot, Table, Unknown, ask
from bascule.probe.verdict import Answers, Opinion, Question, decide
from bascule.probe.views import Found, View, ere, word

MODELS = "sglang/srt/models/*.py"
CONFIGS = ("sglang/srt/configs/*.py",)
REGISTRIES = ("sglang/srt/utils/hf_transformers_utils.py", "sglang/srt/utils/hf_transformers/common.py")


async def look(view: View, question: Question, package: Package | None) -> Opinion:
    """Ask its model files, its configs, and transformers, to which it falls back."""
    architectures = question.model.architectures
    registered = await _registered(view, architectures) if architectures else no_architecture(question)
    model_type = await _model_type(view, question.model.model_type, package)
    stand_ins = []
    if registered.yes is False:
        stand_ins = [await knows_class(view, name, package) for name in architectures]
    return decide(question, Answers(registered, model_type, stand_ins))


async def _registered(view: View, architectures: tuple[str, ...]) -> Answer:
    answers = []
    for name in architectures:
        found = await view.search(word(name), MODELS)
        answers.append(await _entry_class(view, name, found))
        if answers[-1].yes:
            return answers[-1]
    return answers[0]


async def _entry_class(view: View, name: str, found: Found) -> Answer:
    """A name that no file mentions is in no EntryClass; of those that mention it, each EntryClass is read."""
    if not found.files:
        return Answer(None, (Spot(MODELS, None, "no such files"),), f"there are no {MODELS}")
    doubt = None
    for path in dict.fromkeys(hit.path for hit in found.hits):
        answer = ask(entry_classes(await view.read(path) or b"", path), name, f"EntryClass of {path}")
        if answer.yes:
            return answer
        doubt = doubt or (answer if answer.yes is None else None)
    seen = Spot("sglang/srt/models", None, f"no EntryClass is {name} in {found.files} files")
    return doubt or Answer(False, (seen,))


def entry_classes(source: bytes, path: str) -> Table | Unknown:
    """The classes of `EntryClass = Name` or `EntryClass = [Name, …]`; an empty table when there's none."""
    tree = parse(source, path)
    if isinstance(tree, Unknown):
        return tree
    lines = source.decode("utf-8-sig", errors="replace").splitlines()
    table = Table(Spot(path, None, "no EntryClass"))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Name) and node.id == "EntryClass" and isinstance(node.ctx, ast.Store)):
            continue
        value = _value_assigned(tree, node)
        classes = value.elts if isinstance(value, ast.List | ast.Tuple) else [value or node]
        for item in classes:
            spot = Spot(path, item.lineno, lines[item.lineno - 1].strip()[:EXCERPT])
            if isinstance(item, ast.Name) and item is not node:
                table = table.having(item.id, None, spot).at(spot)
            else:
                table = table.with_gap(Unknown(spot, "EntryClass is more than names"))
    return table


def _value_assigned(tree: ast.Module, name: ast.Name) -> ast.expr | None:
    """What the top of the module assigns to a name; None when it happens anywhere else."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and name in statement.targets:
            return statement.value
        if isinstance(statement, ast.AnnAssign) and statement.target is name:
            return statement.value
    return None


async def _model_type(view: View, model_type: str, package: Package | None) -> Answer:
    """Its own configs come first, then those of transformers."""
    shared = await knows_model_type(view, model_type, package)
    if shared.yes or not model_type:
        return shared
    quoted = rf"""["']{ere(model_type)}["']"""
    found = await view.search(rf"(model_type[^=]*=|_CONFIG_REGISTRY\[) *{quoted}", *CONFIGS, *REGISTRIES)
    if not found.files:
        return shared
    registered = {name for path in REGISTRIES for name in config_classes(await view.read(path) or b"", path)}
    for hit in found.hits:
        own = class_around(hit, await view.read(hit.path) or b"")
        if "_CONFIG_REGISTRY[" in hit.text or own in registered:
            return Answer(True, (hit,))
    if not found.hits:
        return shared
    return Answer(None, found.hits[:1], f"{model_type} has a config that is not registered by its name")


def config_classes(source: bytes, path: str) -> frozenset[str]:
    """The names in the list or comprehension that `_CONFIG_REGISTRY` is made of."""
    tree = parse(source, path)
    if isinstance(tree, Unknown):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "_CONFIG_REGISTRY" for target in targets):
                names |= {item.id for item in ast.walk(node.value) if isinstance(item, ast.Name)}
    return frozenset(names)


def class_around(hit: Spot, source: bytes) -> str | None:
    """The class in which a line stands."""
    tree = parse(source, hit.path)
    if isinstance(tree, Unknown) or hit.line is None:
        return None
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return next((node.name for node in classes if node.lineno <= hit.line <= (node.end_lineno or 0)), None)
