"""vLLM: one table of architectures, its own configs, and the ways by which an absent architecture may be served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bascule.core.reading import Spot
from bascule.probe.packages import Package
from bascule.probe.readers import arguments, flags, quantization
from bascule.probe.readers.base import Modules, any_of, engine_facts, lookup, no_architecture, reader_of
from bascule.probe.readers.transformers import backend_takes, knows_model_type
from bascule.probe.values import Answer, Draft, Table, Unknown, ask, lines_of
from bascule.probe.verdict import Answers, Question
from bascule.probe.views.base import View

NAME = "vllm"
ALLOW_DEPRECATED = "--allow-deprecated-quantization"


async def look(view: View, question: Question, package: Package | None) -> Answers:
    """Ask its registry, its configs, and what stands beside it, in the order in which vLLM resolves a model."""
    files, modules = engine_facts(NAME)["files"], Modules(view)
    registry = await modules.names(files["registry"])
    table = lookup(registry, "_VLLM_MODELS")
    names = question.model.architectures
    registered = any_of(table, names) if names else no_architecture(question)
    model_type = await _model_type(modules, question, package)
    stand_ins = [] if registered.yes is not False else await _stand_ins(modules, question, table, package)
    return Answers(
        registered,
        model_type,
        stand_ins,
        [] if registered.yes and model_type.yes else [await modules.plugins(NAME)],
        generic=_generic(registry, table, names),
        removed=_said_of(registry, "_PREVIOUSLY_SUPPORTED_MODELS", names),
        plugin=_said_of(registry, "_OOT_SUPPORTED_MODELS", names),
        quantization=await _quantization(modules, question),
        flags=await _flags(modules, question),
    )


READER = reader_of(NAME, look)


def _generic(registry: Any, table: Any, names: tuple[str, ...]) -> Answer | None:
    """Whether what is registered is the generic backend of transformers: vLLM takes the first name that it has."""
    name = next((name for name in names if isinstance(table, Table) and name in table.entries), None)
    if name is None or isinstance(registry, Unknown):
        return None
    groups = ("_TRANSFORMERS_SUPPORTED_MODELS", "_TRANSFORMERS_BACKEND_MODELS")
    answers = [ask(registry[group], name, group) for group in groups if group in registry]
    return next((answer for answer in answers if answer.yes), None)


async def _stand_ins(modules: Modules, question: Question, table: Any, package: Package | None) -> list[Answer]:
    """Another class under a name with another ending, or the generic backend for a class of transformers."""
    model = question.model
    suffixes = await modules.names(engine_facts(NAME)["files"]["suffixes"])
    by_suffix = _by_suffix(table, model.architectures, lookup(suffixes, "_SUFFIX_TO_DEFAULTS"))
    return [by_suffix, await backend_takes(modules.view, model.architectures[0], model.model_type, package)]


def _by_suffix(table: Any, architectures: tuple[str, ...], suffixes: Any) -> Answer:
    """vLLM swaps the end of a name it doesn't know for each of its suffixes, and takes what it then knows."""
    if not isinstance(suffixes, tuple):
        seen = suffixes.spot if isinstance(suffixes, Unknown) else Spot("_SUFFIX_TO_DEFAULTS", None, "is no list")
        return Answer(None, (seen,), suffixes.why if isinstance(suffixes, Unknown) else seen.text)
    ends = [row[0] for row in suffixes if isinstance(row, tuple) and row and isinstance(row[0], str)]
    for name in architectures:
        for end in (end for end in ends if name.endswith(end)):
            others = (name.removesuffix(end) + other for other in ends)
            for other in others:
                if isinstance(table, Table) and other in table.entries:
                    return Answer(True, (table.spots[other],), f"it would take {other} in its place")
    return Answer(False, ())


def _said_of(names: Any, table: str, architectures: tuple[str, ...]) -> tuple[str, Spot] | None:
    """What vLLM itself says of an architecture that it dropped or that lives elsewhere."""
    entries = names.get(table) if not isinstance(names, Unknown) else None
    for name in architectures:
        if isinstance(entries, Table) and name in entries.entries:
            return str(entries.entries[name]), entries.spots[name]
    return None


async def _model_type(modules: Modules, question: Question, package: Package | None) -> Answer:
    """Its own configs come first, then those of transformers; a config.json without a type may have it from a table."""
    files = engine_facts(NAME)["files"]["configs"]
    names = await modules.names(files)
    name = question.model.model_type or _implied(names, question.model.architectures)
    own = config_in(name, names, files[0], await modules.source(files[0]) or b"")
    if own.yes:
        return own
    shared = await knows_model_type(modules.view, name, package)
    return shared if shared.yes or own.yes is False else own


def _implied(names: Any, architectures: tuple[str, ...]) -> str:
    """The model_type that vLLM (from 0.32 on) gives to an architecture whose config.json has none."""
    table = None if isinstance(names, Unknown) else names.get("_ARCHITECTURE_TO_MODEL_TYPE")
    found = table.entries.get(architectures[0]) if isinstance(table, Table) and architectures else None
    return found if isinstance(found, str) else ""


def config_in(model_type: str, names: Any, path: str, source: bytes) -> Answer:
    """Whether vLLM has a config class of its own for it; a mention outside the table is no clear no."""
    answer = ask(lookup(names, "_CONFIG_REGISTRY"), model_type, "_CONFIG_REGISTRY")
    mention = f'"{model_type}"'
    if answer.yes is not False or not model_type or mention not in source.decode(errors="replace"):
        return answer
    lines = lines_of(source)
    number = next(place for place, line in enumerate(lines, 1) if mention in line)
    return Answer(None, (Spot(path, number, lines[number - 1].strip()),), f"{model_type} has a case of its own")


async def _quantization(modules: Modules, question: Question) -> Answer | None:
    """Whether the release has the method, still allows it, and takes this GPU."""
    method, facts = question.model.quantization, engine_facts(NAME)
    if method is None:
        return None
    row, files = quantization.row_of(method, facts["quantization"]), facts["files"]
    answer, known = await quantization.method_answer(modules, NAME, row, files["quantization"], "QuantizationMethods")
    if not answer.yes:
        return answer
    doubts = (
        await _refused_algorithm(modules, row, method.algorithm),
        await _deprecated(modules, question, known[0]),
        await quantization.capability_answer(modules, files["quantization"][0], known, question.gpu),
    )
    worse = [doubt for doubt in doubts if doubt]
    return next((doubt for doubt in worse if doubt.yes is False), worse[0] if worse else answer)


async def _refused_algorithm(modules: Modules, row: Mapping[str, Any], algorithm: str) -> Answer | None:
    """ModelOpt checkpoints name one of several algorithms, and a release takes those of its list."""
    if not algorithm or "algorithms" not in row:
        return None
    table = await modules.value(engine_facts(NAME)["files"]["modelopt"], row["algorithms"])
    answer = ask(table, algorithm.upper(), row["algorithms"])
    if answer.yes:
        return None
    return Answer(answer.yes, answer.seen, answer.why or f"not the algorithm {algorithm}")


async def _deprecated(modules: Modules, question: Question, method: str) -> Answer | None:
    """vLLM refuses what it calls deprecated, unless a flag allows it; releases without such a list refuse nothing."""
    name, files = "DEPRECATED_QUANTIZATION_METHODS", engine_facts(NAME)["files"]["quantization"]
    if name not in await modules.names(files) or ALLOW_DEPRECATED in flags.asked(question.candidate):
        return None
    answer = ask(await modules.value(files, name), method, name)
    if answer.yes:
        return Answer(False, answer.seen, f"it is deprecated there, and only taken with {ALLOW_DEPRECATED}")
    return answer if answer.yes is None else None


async def _flags(modules: Modules, question: Question) -> dict[str, Answer]:
    facts = engine_facts(NAME)
    wanted = flags.asked(question.candidate)
    if not wanted:
        return {}
    files = facts["files"]
    values = {
        "--reasoning-parser": await modules.value(files["reasoning"], "_REASONING_PARSERS_TO_REGISTER"),
        "--tool-call-parser": await modules.value(files["tools"], "_TOOL_PARSERS_TO_REGISTER"),
    }
    asks_method = any(name in ("--quantization", "-q") for name in wanted)
    if asks_method and (await modules.plugins(NAME)).yes is False:  # else a plugin may bring methods of its own
        methods = await modules.value(files["quantization"], "QuantizationMethods")
        values |= {"--quantization": methods, "-q": methods}
    return flags.answers(wanted, await known_flags(modules), values, facts["flags"])


async def known_flags(modules: Modules) -> Table:
    """Each flag of `vllm serve`, and whether it has a --no- form."""
    facts = engine_facts(NAME)["flags"]
    engine = arguments.Source(await modules.source(facts["engine"]), facts["engine"])
    booleans: dict[str, bool] = {}
    for node in engine.classes():
        booleans |= arguments.fields(node) if node.name == facts["engine_fields"] else {}
    draft = Draft(Spot(facts["engine"], None))
    unclear = arguments.literal_arguments(engine, booleans, draft)
    servers = [arguments.Source(await modules.source(path), path) for path in await modules.view.find(*facts["server"])]
    for file in servers:
        arguments.literal_arguments(file, {}, draft)  # the call with a computed name is the one that takes the fields
        for node in (node for node in file.classes() if node.name in facts["fields"]):
            arguments.field_flags(file, node, draft)
    draft.gaps += [Unknown(spot, "adds a flag whose name is no literal") for spot in unclear]
    draft.gaps += [file.broken for file in (engine, *servers) if file.broken]
    if not servers:
        draft.gaps.append(Unknown(Spot(facts["server"][0], None, "no such file"), "there is no cli_args.py"))
    return draft.table()
