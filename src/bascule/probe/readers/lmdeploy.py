"""LMDeploy: two backends, each with a table of architectures; it takes TurboMind where it can, else its PyTorch one."""

from __future__ import annotations

from typing import Any

from bascule.core.reading import Spot
from bascule.probe.packages import Package
from bascule.probe.readers.base import Modules, any_of, engine_facts, no_architecture, reader_of
from bascule.probe.readers.transformers import knows_model_type
from bascule.probe.values import Answer, Table
from bascule.probe.verdict import Answers, Question
from bascule.probe.views.base import View, ere

NAME = "lmdeploy"


async def look(view: View, question: Question, package: Package | None) -> Answers:
    """Ask both tables; an architecture in neither is served by no backend (pytorch/models/patch.py raises)."""
    files = engine_facts(NAME)["files"]
    modules, names = Modules(view), question.model.architectures
    removed = None
    registered = no_architecture(question)
    if names:
        pytorch = await modules.value(files["pytorch"], "MODULE_MAP")
        turbomind = await modules.value(files["turbomind"], "SUPPORTED_ARCHS")
        registered = _either(any_of(pytorch, names, "MODULE_MAP"), any_of(turbomind, names, "SUPPORTED_ARCHS"))
        removed = _dropped(await modules.value(files["pytorch"], "REMOVED_MODEL_MAP"), names)
    model_type = await _model_type(view, question, package)
    return Answers(registered, model_type, removed=removed, quantization=await _quantization(view, question))


READER = reader_of(NAME, look)


def _either(one: Answer, other: Answer) -> Answer:
    """A yes of either backend; a no only when both say it."""
    if one.yes or other.yes:
        return one if one.yes else other
    if one.yes is None or other.yes is None:
        return one if one.yes is None else other
    return Answer(False, one.seen + other.seen)


def _dropped(table: Any, names: tuple[str, ...]) -> tuple[str, Spot] | None:
    """LMDeploy says that an earlier release had it, but not which."""
    for name in names:
        if isinstance(table, Table) and name in table.entries:
            return "an earlier release", table.spots[name]
    return None


async def _model_type(view: View, question: Question, package: Package | None) -> Answer:
    """What transformers can't read, newer releases try with a plain PretrainedConfig: then a no is none."""
    shared = await knows_model_type(view, question.model.model_type, package)
    if shared.yes is not False:
        return shared
    found = await view.search(r"PretrainedConfig\.from_pretrained", *engine_facts(NAME)["files"]["configs"])
    why = f"transformers has no {question.model.model_type}, and LMDeploy then takes a config without defaults"
    return Answer(None, (*shared.seen, *found.hits[:1]), why) if found.hits else shared


async def _quantization(view: View, question: Question) -> Answer | None:
    """Its backends compare the method with the names that they take; there is no table."""
    method = question.model.quantization
    if method is None:
        return None
    files = engine_facts(NAME)["files"]["quantization"]
    name = method.method.lower().replace("_", "-") if method.method.startswith("compressed") else method.method
    found = await view.search(rf"""quant_method == ["']{ere(name)}["']""", *files)
    if found.hits:
        return Answer(True, found.hits)
    return Answer(None, (Spot(files[0], None, f"no comparison with {name}"),), f"no backend of it names {name}")
