"""The probe of an image or a container that a node has: cheap looks first, all of it only when they don't decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bascule.core.nouns import Candidate, Finding, Model, Node
from bascule.core.reading import Spot, Unreadable
from bascule.probe.gather import finding, look_in
from bascule.probe.kernels.lore import places, tools
from bascule.probe.readers import READERS
from bascule.probe.readers.base import engine_facts
from bascule.probe.verdict import GOOD, Question, Report, all_alike, missing, undecided
from bascule.probe.views.container import Missing, Target, copied, describe, mounted, unpacked
from bascule.probe.views.folder import FolderView
from bascule.remote.runner import Runner

TEXTS = ("*-packages/*-info/METADATA", "*-packages/*-info/entry_points.txt", "*-packages/*.pth")


async def probe_image(
    candidate: Candidate, model: Model, runner: Runner, node: Node, now: Callable[[], datetime]
) -> Finding:
    """Does the engine in this image know this model? One Finding; UNKNOWN when the image can't be read."""
    question = Question(candidate, model, gpu=node.facts.sm)
    ref = candidate.artefact.ref
    try:
        report = await report_on(await _described(ref, runner, node), question, runner)
    except Unreadable as trouble:
        report = all_alike(question, undecided(question, trouble.why, (trouble.spot,)))
    return finding(report, node.name, now(), f"{ref} ")


async def _described(ref: str, runner: Runner, node: Node) -> Target:
    if node.facts.docker is None:
        raise Unreadable(ref, f"{node.name} has no docker")
    return await describe(runner, node.facts.docker.command, ref)


async def report_on(
    target: Target, question: Question, runner: Runner, count: Callable[[int], None] = lambda _: None
) -> Report:
    """The report about an image or a container; `count` is told the bytes read. Raises Unreadable, NodeUnreachable."""
    reader = READERS[question.candidate.engine]
    try:
        if view := await mounted(runner, target, reader.folder):
            return await _counted(view, question, count)
        if not question.gpu:
            paths = tuple(_paths(question.candidate.engine))
            async with copied(runner, target, reader.folder, reader.distributions, paths) as part:
                report = await _counted(part, question, count) if part else None
            if report and report.overall.word in GOOD:  # a no also needs what was left out: plugins, other classes
                return report
        async with unpacked(runner, target, reader.folder, _patterns(question)) as whole:
            return await _counted(whole, question, count)
    except Missing as trouble:
        ref = question.candidate.artefact.ref
        seen = Spot(ref, None, trouble.why)
        return all_alike(question, missing(f"there is no {reader.title} in {ref}", seen))


async def _counted(view: FolderView, question: Question, count: Callable[[int], None]) -> Report:
    try:
        return await look_in(view, question)
    finally:
        count(view.bytes_read)


def _paths(engine: str) -> Iterator[str]:
    """What an engine's reader asks for, and transformers beside it: files, and folders where it asks by a pattern."""
    for name in dict.fromkeys((engine, "transformers")):
        folder = READERS[name].folder
        for text in _texts(engine_facts(name)):
            if text.startswith(f"{folder}/"):
                yield text.split("*")[0].rpartition("/")[0] if "*" in text else text
    yield "transformers/models/auto"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _patterns(question: Question) -> tuple[str, ...]:
    """For GNU tar, whose * crosses a slash."""
    engine = question.candidate.engine
    reader, where = READERS[engine], places(engine)
    binary: list[str] = [f"{reader.folder}*/*.so*"] if engine == "llamacpp" else []
    if question.gpu and where:
        binary += [glob for place in where.libraries for glob in place.globs]
        binary += [tools().version, tools().declared, *tools().ptxas, *tools().nvcc]
    texts = (f"*-packages/{reader.folder}/*.py", "*-packages/transformers/*.py")
    return (*TEXTS, *texts, *(f"*-packages/{glob}" for glob in binary))
