"""transformers: the classes it has and the model types it reads; `transformers serve`, and what others take from it."""

from __future__ import annotations

from bascule.probe.facts import first_release
from bascule.probe.literal import evaluate
from bascule.probe.packages import Package, installed, stays_below
from bascule.probe.values import Answer, Spot, Unknown, ask
from bascule.probe.verdict import Answers, Opinion, Question, decide
from bascule.probe.views import View, ere

TITLE = "transformers"
FOLDER = "transformers"
AUTO = "transformers/models/auto"
MODELING = ("transformers/models/*/modeling_*.py", "transformers/models/*/*/modeling_*.py")


async def look(view: View, question: Question, package: Package | None) -> Opinion:
    """`transformers serve` takes the class that config.json names from the package itself."""
    architectures = question.model.architectures[:1]
    registered = await knows_class(view, architectures[0], package) if architectures else no_architecture(question)
    return decide(question, Answers(registered, await knows_model_type(view, question.model.model_type, package)))


def no_architecture(question: Question) -> Answer:
    """The answer for a model whose config.json names no class."""
    spot = Spot(f"{question.model.path}/config.json", None, "no architectures")
    return Answer(None, (spot,), "its config.json names no architectures")


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
    names = evaluate(mappings, f"{AUTO}/auto_mappings.py") if mappings is not None else {}
    if not isinstance(names, Unknown):
        names = evaluate(configuration, f"{AUTO}/configuration_auto.py", names)
    table = names if isinstance(names, Unknown) else names.get("CONFIG_MAPPING_NAMES")
    return ask(table, model_type, "CONFIG_MAPPING_NAMES of transformers")


async def knows_class(view: View, name: str, engine: Package | None) -> Answer:
    """Whether the transformers beside an engine has a model class of this name."""
    if not name.isidentifier():
        return Answer(None, (Spot("config.json", None, name),), f"{name!r} is no name of a class")
    found = await view.search(f"^class {ere(name)}[(: ]", *MODELING)
    if not found.files:
        return _by_requirement(name, engine)
    if found.hits:
        return Answer(True, found.hits[:1], f"transformers has a class {name}, which may be served through it")
    package = await installed(view, (TITLE,))
    seen = Spot(f"{FOLDER}/models", None, f"no class {name} in {found.files} files modeling_*.py")
    return Answer(False, (seen, *((package.spot,) if package else ())))


def _by_requirement(name: str, engine: Package | None) -> Answer:
    release = first_release(TITLE, name)
    wanted = engine.requires.get(TITLE) if engine else None
    if wanted and release and stays_below(wanted.specifier, release):
        return Answer(False, (wanted.spot,))
    seen = wanted.spot if wanted else Spot(FOLDER, None, "no such folder here")
    asks = f" (it requires {wanted.specifier})" if wanted and wanted.specifier else ""
    return Answer(None, (seen,), f"no transformers beside it that could be read{asks}")
