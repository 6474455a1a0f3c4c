"""The probe itself: reads an engine's files on a node through its Runner and gives one Finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from bascule.core.nouns import Candidate, Evidence, Finding, Model, Step
from bascule.engines.base import read_lore
from bascule.probe.packages import Package, installed
from bascule.probe.readers import READERS, Reader
from bascule.probe.values import Spot
from bascule.probe.verdict import Opinion, Question, missing, undecided
from bascule.probe.views import FolderView, Unreadable, open_folder
from bascule.remote.runner import Runner


async def probe(candidate: Candidate, model: Model, runner: Runner, node: str, now: Callable[[], datetime]) -> Finding:
    """Does the engine in this Python environment know this model? Raises NodeUnreachable."""
    question = Question(candidate, model)
    try:
        opinion = await _look(question, runner)
    except Unreadable as trouble:
        opinion = undecided(question, trouble.why, (trouble.spot,))
    evidence = tuple(Evidence(node, spot.source, now(), spot.text) for spot in opinion.seen)
    return Finding(Step.PROBE, opinion.fate, opinion.code, opinion.says, evidence, advice=opinion.advice)


async def _look(question: Question, runner: Runner) -> Opinion:
    candidate = question.candidate
    ref = candidate.artefact.ref
    reader = READERS.get(candidate.engine)
    if reader is None or candidate.artefact.kind != "venv":
        why = "images are read by probe_image" if reader else f"no reader for {candidate.engine} yet"
        return undecided(question, why, (Spot(ref, None, why),))
    view = await open_folder(runner, ref)
    if view is None:
        return missing(question, f"there is no folder {ref}", Spot(ref, None, "no such folder"))
    return await look_in(view, question)


async def look_in(view: FolderView, question: Question) -> Opinion:
    """The opinion about the engine among these packages. Raises Unreadable."""
    candidate, reader = question.candidate, READERS[question.candidate.engine]
    package = await installed(view, read_lore(candidate.engine).packages)
    folder = await view.find(reader.folder)
    if package is None and not folder:
        return await _absent(question, view, reader)
    if not folder:
        why = f"{reader.folder}/ is not beside its METADATA (an editable install?)"
        return undecided(replace(question, label=_label(reader, package)), why, (package.spot,) if package else ())
    return await reader.look(view, replace(question, label=_label(reader, package)), package)


async def _absent(question: Question, view: FolderView, reader: Reader) -> Opinion:
    """No such engine in this folder; a path file or a venv that shows the system's packages makes that no proof."""
    elsewhere = await view.search(r"^ *(/|\.)", "*.pth")
    if elsewhere.hits:
        return undecided(question, f"{elsewhere.hits[0].path} leads to another folder", elsewhere.hits[:1])
    ref = question.candidate.artefact.ref
    config = await FolderView(view.runner, ref).search("^include-system-site-packages *= *true", "pyvenv.cfg")
    if config.hits:
        return undecided(question, "the environment also has the packages of its system", config.hits[:1])
    packages = await view.find("*.dist-info")
    seen = Spot(view.root, None, f"neither {reader.folder}/ nor its METADATA among {len(packages)} distributions")
    return missing(question, f"there is no {reader.title} in {ref}", seen)


def _label(reader: Reader, package: Package | None) -> str:
    """`vLLM 0.32.0`; without a METADATA the release is not known."""
    return f"{reader.title} {package.version}" if package else f"{reader.title} of an unknown release"
