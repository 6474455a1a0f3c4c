"""SGLang: every module of srt/models says in EntryClass which architectures it has."""

from __future__ import annotations

import ast
from typing import Any

from bascule.core.reading import Spot
from bascule.probe.literal import parse
from bascule.probe.packages import Package
from bascule.probe.readers import arguments, flags, quantization
from bascule.probe.readers.base import Modules, engine_facts, no_architecture, reader_of
from bascule.probe.readers.transformers import backend_takes, knows_model_type
from bascule.probe.values import Answer, Draft, Table, Unknown, ask, lines_of, spot_in
from bascule.probe.verdict import Answers, Question
from bascule.probe.views.base import Found, View, ere, word

NAME = "sglang"


async def look(view: View, question: Question, package: Package | None) -> Answers:
    """Ask its model files, its configs, and transformers, to which it falls back."""
    facts, model = engine_facts(NAME), question.model
    on_nvidia = question.gpu.startswith("sm_")
    modules = Modules(view, facts["cuda"] if on_nvidia else None)
    registered = await _registered(view, model.architectures) if model.architectures else no_architecture(question)
    model_type = await _model_type(view, model.model_type, package)
    stand_ins = []
    if registered.yes is False:
        stand_ins = [await backend_takes(view, name, model.model_type, package) for name in model.architectures]
    return Answers(
        registered,
        model_type,
        stand_ins,
        [] if registered.yes and model_type.yes else [await modules.plugins(NAME)],
        quantization=await _quantization(modules, question),
        flags=await _flags(modules, question),
    )


READER = reader_of(NAME, look)


async def _registered(view: View, architectures: tuple[str, ...]) -> Answer:
    globs = engine_facts(NAME)["models"]["globs"]
    answers = []
    for name in architectures:
        answers.append(await _entry_class(view, name, await view.search(word(name), *globs)))
        if answers[-1].yes:
            return answers[-1]
    return next((answer for answer in answers if answer.yes is None), answers[0])


async def _entry_class(view: View, name: str, found: Found) -> Answer:
    """A name that no file mentions is in no EntryClass; of those that mention it, each EntryClass is read."""
    if not found.files:
        return Answer(None, (Spot("sglang/srt/models", None, "no such files"),), "there are no sglang/srt/models/*.py")
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
    lines = lines_of(source)
    table = Table(Spot(path, None, "no EntryClass"))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Name) and node.id == "EntryClass" and isinstance(node.ctx, ast.Store)):
            continue
        value = _value_assigned(tree, node)
        classes = value.elts if isinstance(value, ast.List | ast.Tuple) else [value or node]
        for item in classes:
            spot = spot_in(lines, path, item)
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
    models = engine_facts(NAME)["models"]
    quoted = rf"""["']{ere(model_type)}["']"""
    pattern = rf"(model_type[^=]*=|_CONFIG_REGISTRY\[) *{quoted}"
    found = await view.search(pattern, *models["configs"], *models["registries"])
    if not found.hits:
        return shared
    registered = {name for path in models["registries"] for name in config_classes(await view.read(path) or b"", path)}
    for hit in found.hits:
        own = class_around(hit, await view.read(hit.path) or b"")
        if "_CONFIG_REGISTRY[" in hit.text or own in registered:
            return Answer(True, (hit,))
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


async def _quantization(modules: Modules, question: Question) -> Answer | None:
    """Whether the release has the method; some are there only on some platforms, and the GPU tells which."""
    method, facts = question.model.quantization, engine_facts(NAME)
    if method is None:
        return None
    row, files = quantization.row_of(method, facts["quantization"]), facts["files"]["quantization"]
    answer, known = await quantization.method_answer(modules, NAME, row, files, "QUANTIZATION_METHODS")
    if not answer.yes:
        return answer
    return await quantization.capability_answer(modules, files[0], known, question.gpu) or answer


async def _flags(modules: Modules, question: Question) -> dict[str, Answer]:
    facts = engine_facts(NAME)
    wanted = flags.asked(question.candidate)
    if not wanted:
        return {}
    files = facts["files"]
    places = {
        "--reasoning-parser": (files["reasoning"], "ReasoningParser.DetectorMap"),
        "--tool-call-parser": (files["tools"], "FunctionCallParser.ToolCallParserEnum"),
        "--quantization": (files["choices"], "QUANTIZATION_CHOICES"),
    }
    values = {flag: await _values(modules, flag, *place) for flag, place in places.items() if flag in wanted}
    return flags.answers(wanted, await known_flags(modules), values, facts["flags"])


async def _values(modules: Modules, flag: str, paths: list[str], name: str) -> Any:
    """What a flag takes: the names of a table, and what the flag itself adds to them."""
    table = await modules.value(paths, name)
    if not isinstance(table, Table):
        return table
    path = engine_facts(NAME)["flags"]["engine"]
    for value, spot in arguments.literal_choices(arguments.Source(await modules.source(path), path), flag).items():
        table = table.having(value, None, spot)
    return table


async def known_flags(modules: Modules) -> Table:
    """Each flag of the server: literal calls, and from 0.5.10 on marked fields of ServerArgs or of its namespaces."""
    facts = engine_facts(NAME)["flags"]
    paths = [facts["engine"], *await modules.view.find(*facts["server"])]
    files = [arguments.Source(await modules.source(path), path) for path in paths]
    draft = Draft(Spot(facts["engine"], None))
    unclear = arguments.literal_arguments(files[0], {}, draft)
    count = len(draft.entries)
    for file in files:
        for node in file.classes():
            arguments.marked_flags(file, node, draft)
    if len(draft.entries) == count and any(True for _ in files[0].calls("add_cli_args_from_dataclass")):
        draft.gaps.append(Unknown(Spot(facts["engine"], None), "takes flags from fields that were not found"))
    draft.gaps += [Unknown(spot, "adds a flag whose name is no literal") for spot in unclear]
    draft.gaps += [file.broken for file in files if file.broken]
    return draft.table()
