"""transformers: the classes it has and the model types it reads; `transformers serve`, and what others take from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from bascule.core.reading import EXCERPT, Spot
from bascule.probe.facts import Known, known, looked_at, unknown_before
from bascule.probe.literal import evaluate
from bascule.probe.packages import Package, admits, admits_only_from, installed, stays_below
from bascule.probe.readers.base import Modules, any_of, engine_facts, no_architecture, reader_of
from bascule.probe.readers.quantization import row_of
from bascule.probe.values import Answer, Unknown, ask
from bascule.probe.verdict import Answers, Question
from bascule.probe.views.base import View, ere

NAME = "transformers"
AUTO = "transformers/models/auto"
MODELING = ("transformers/models/*/modeling_*.py", "transformers/models/*/*/modeling_*.py")


async def look(view: View, question: Question, package: Package | None) -> Answers:
    """`transformers serve` takes the class that config.json names from the package itself."""
    model = question.model
    names = model.architectures[:1]
    registered = await knows_class(view, names[0], model.model_type, package) if names else no_architecture(question)
    model_type = await knows_model_type(view, model.model_type, package)
    return Answers(registered, model_type, quantization=await _quantization(view, question))


READER = reader_of(NAME, look)


async def _quantization(view: View, question: Question) -> Answer | None:
    method, facts = question.model.quantization, engine_facts(NAME)
    if method is None:
        return None
    table = await Modules(view).value(facts["files"]["quantization"], "AUTO_QUANTIZATION_CONFIG_MAPPING")
    names = row_of(method, facts["quantization"])["names"]
    return any_of(table, names, "AUTO_QUANTIZATION_CONFIG_MAPPING")


async def knows_model_type(view: View, model_type: str, engine: Package | None) -> Answer:
    """Whether the transformers beside an engine reads this model_type; a bare engine is judged by what it requires."""
    if not model_type:
        return Answer(None, (Spot("config.json", None, "no model_type"),), "its config.json names no model_type")
    configuration = await view.read(f"{AUTO}/configuration_auto.py")
    if configuration is None:
        return _by_requirement(model_type, engine)
    mappings = await view.read(f"{AUTO}/auto_mappings.py")  # from 5.6.0 on
    return model_type_in(model_type, configuration, mappings)


def model_type_in(model_type: str, configuration: bytes, mappings: bytes | None) -> Answer:
    """Whether CONFIG_MAPPING_NAMES has it: of configuration_auto.py, which may build on auto_mappings.py."""
    names = configuration_names(configuration, mappings)
    table = names if isinstance(names, Unknown) else names.get("CONFIG_MAPPING_NAMES")
    return ask(table, model_type, "CONFIG_MAPPING_NAMES of transformers")


@lru_cache(maxsize=8)  # many models are asked of one engine
def configuration_names(configuration: bytes, mappings: bytes | None) -> Any:
    """The names of configuration_auto.py, on top of those of auto_mappings.py where there is one; or Unknown."""
    names = evaluate(mappings, f"{AUTO}/auto_mappings.py") if mappings is not None else {}
    return names if isinstance(names, Unknown) else evaluate(configuration, f"{AUTO}/configuration_auto.py", names)


async def knows_class(view: View, name: str, model_type: str, engine: Package | None) -> Answer:
    """Whether the transformers beside an engine has a model class of this name.

    It is looked for in the folder of the model_type first: a yes there saves reading the 700 files of a no.
    """
    if not name.isidentifier():
        return Answer(None, (Spot("config.json", None, name),), f"{name!r} is no name of a class")
    folder = model_type.replace("-", "_")
    near = (f"transformers/models/{folder}/modeling_{folder}.py",) if folder.isidentifier() else MODELING
    for globs in dict.fromkeys((near, MODELING)):
        found = await view.search(f"^class {ere(name)}[(: ]", *globs)
        if found.hits:
            return Answer(True, found.hits[:1], f"transformers has a class {name}, which may be served through it")
    if not found.files:
        return _by_requirement(name, engine)
    package = await installed(view, (NAME,))
    seen = Spot(f"{NAME}/models", None, f"no class {name} in {found.files} files modeling_*.py")
    return Answer(False, (seen, *((package.spot,) if package else ())))


async def backend_takes(view: View, name: str, model_type: str, engine: Package | None) -> Answer:
    """Whether an engine's generic backend might serve this class of transformers; yes is a maybe, no is firm."""
    found = await knows_class(view, name, model_type, engine)
    if not found.yes or not found.seen[0].path.endswith(".py"):
        return found
    path = found.seen[0].path
    refused = refused_by_backend(await view.read(path) or b"", path)
    return Answer(False, (refused,)) if refused else found


def refused_by_backend(source: bytes, path: str) -> Spot | None:
    """The class for which generic backends refuse all models of a module modeling_*.py; None: they may take them.

    Engines ask `is_backend_compatible()` (the class's `_supports_attention_backend`), and newer ones also take a module
    whose attention goes through ALL_ATTENTION_FUNCTIONS, or that has none of its own (modeling_utils.py of
    transformers, `_can_set_attn_implementation`). A module with an attention of its own and none of these is refused:
    for all 1472 classes that transformers 5.19.0 maps, this is what the two methods return.
    """
    if re.search(rb"ALL_ATTENTION_FUNCTIONS|_supports_attention_backend *= *True", source):
        return None
    own = re.search(rb"^class \w*Attention\w*\(nn\.Module\):", source, re.MULTILINE)
    if own is None:
        return None
    return Spot(path, source[: own.start()].count(b"\n") + 1, own[0].decode(errors="replace")[:EXCERPT])


def _by_requirement(name: str, engine: Package | None) -> Answer:
    """What the range of releases that an engine requires says about a name."""
    wanted = engine.requires.get(NAME) if engine else None
    if wanted is None:
        seen = Spot(NAME, None, "no such folder here")
        return Answer(None, (seen,), "no transformers beside it that could be read, and none is required")
    has, record = range_has(name, wanted.specifier), known(NAME, name)
    asks = f"it requires transformers {wanted.specifier or 'of any release'}"
    if has:
        return Answer(True, (wanted.spot,), f"{asks}, and each such release on record has {name}")
    if has is None and record:
        until = f" up to {record.until}" if record.last else ""
        return Answer(None, (wanted.spot,), f"only with transformers >= {record.since}{until} ({asks})")
    return Answer(has, (wanted.spot,), "" if has is False else f"no transformers beside it that could be read ({asks})")


def range_has(name: str, specifier: str) -> bool | None:
    """Whether all releases of transformers that satisfy a specifier have a name, or none; None: some, or not known.

    A range that is open to releases beyond the newest on record is judged by those on record.
    """
    looked, record = looked_at(NAME), known(NAME, name)
    allowed = [release for release in looked if admits(specifier, release)]
    older = not looked or not admits_only_from(specifier, looked[0])  # the range reaches below what is on record
    newer = not looked or not stays_below(specifier, looked[-1])
    if record is None:
        return False if allowed and not older and not newer and _on_record(name) else None
    having = [release for release in allowed if _has(record, release, looked)]
    unsure = record.last.startswith(">=")  # the release after that one could not be read
    if allowed and len(having) == len(allowed):
        return None if older or unsure else True
    first = unknown_before(NAME, name)
    if first and stays_below(specifier, first):
        return False
    certain = not (older and not first) and not (newer and record.last) and not unsure
    return False if allowed and not having and certain else None


def _has(record: Known, release: str, looked: Sequence[str]) -> bool:
    """Whether a release on record has a name."""
    first, last = record.first.removeprefix("<="), record.last.removeprefix(">=")
    after = first in looked and looked.index(first) <= looked.index(release)
    return (
        after and release not in record.missing and (last not in looked or looked.index(release) <= looked.index(last))
    )


def _on_record(name: str) -> bool:
    """Whether a release that had it would be on record: every model type is, and every class with these endings."""
    return name.islower() or bool(re.fullmatch(r"(?!TF[A-Z]|Flax)[A-Z]\w*For(CausalLM|ConditionalGeneration)", name))
