"""The probe itself: reads an engine's files through a view and gives one Report, and one Finding for the pivot loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from bascule.core.nouns import Candidate, Evidence, Finding, Model, Node, Step
from bascule.core.reading import Spot, Unreadable
from bascule.probe.kernels.look import look as kernels
from bascule.probe.packages import Package, installed
from bascule.probe.readers import READERS, Reader
from bascule.probe.verdict import BAD, Question, Report, all_alike, judge, missing, not_asked, opinion, undecided
from bascule.probe.views.base import View
from bascule.probe.views.folder import FolderView, open_folder
from bascule.probe.views.path import open_path
from bascule.probe.views.registry import RegistryView
from bascule.remote.runner import Runner


async def probe(candidate: Candidate, model: Model, runner: Runner, node: Node, now: Callable[[], datetime]) -> Finding:
    """Does the engine in this Python environment know this model, on the node's GPUs? Raises NodeUnreachable."""
    question = Question(candidate, model, gpu=node.facts.sm)
    try:
        report = await _look(question, runner)
    except Unreadable as trouble:
        report = all_alike(question, undecided(question, trouble.why, (trouble.spot,)))
    return finding(report, node.name, now())


def finding(report: Report, node: str, seen_at: datetime, prefix: str = "") -> Finding:
    """What the pivot loop makes of a report; `prefix` stands before the sources, e.g. the name of an image."""
    formed = opinion(report)
    evidence = tuple(Evidence(node, f"{prefix}{spot.source}", seen_at, spot.text) for spot in formed.seen)
    made = Finding(Step.PROBE, formed.fate, formed.code, formed.says, evidence, advice=formed.advice)
    return replace(made, scope=formed.scope, release=report.release)


async def look_in(view: View, question: Question) -> Report:
    """The report about the engine among these packages. Raises Unreadable."""
    reader = READERS[question.candidate.engine]
    package = await installed(view, reader.distributions)
    folder = await view.find(reader.folder)
    if package is None and not folder:
        return await _absent(question, view, reader)
    question = replace(question, label=_label(reader, package), release=package.version if package else "")
    if not folder:
        why = f"{reader.folder}/ is not beside its METADATA (an editable install?)"
        return all_alike(question, undecided(question, why, (package.spot,) if package else ()))
    report = judge(question, await reader.look(view, question, package))
    if not question.gpu:
        return report
    if report.overall.word in BAD and isinstance(view, RegistryView):  # no more is fetched than decides it
        return replace(report, questions={**report.questions, "kernels": not_asked("it is decided without them")})
    return replace(report, questions={**report.questions, "kernels": await kernels(view, question)})


async def _look(question: Question, runner: Runner) -> Report:
    candidate = question.candidate
    ref = candidate.artefact.ref
    reader = READERS.get(candidate.engine)
    if reader is None or candidate.artefact.kind != "venv":
        why = "images are read by probe_image" if reader else f"no reader for {candidate.engine} yet"
        return all_alike(question, undecided(question, why, (Spot(ref, None, why),)))
    view = await open_folder(runner, ref)
    if view is None:
        return all_alike(question, missing(f"there is no folder {ref}", Spot(ref, None, "no such folder")))
    python = candidate.artefact.python
    return await look_in(await open_path(runner, view, python) if python else view, question)


async def _absent(question: Question, view: View, reader: Reader) -> Report:
    """No such engine in this folder; a path file or a venv that shows the system's packages makes that no proof."""
    elsewhere = await view.search(r"^ *(/|\.)", "*.pth")
    if elsewhere.hits:
        why = f"{elsewhere.hits[0].path} leads to another folder"
        return all_alike(question, undecided(question, why, elsewhere.hits[:1]))
    ref = question.candidate.artefact.ref
    if isinstance(view, FolderView):
        config = await FolderView(view.runner, ref).search("^include-system-site-packages *= *true", "pyvenv.cfg")
        if config.hits:
            why = "the environment also has the packages of its system"
            return all_alike(question, undecided(question, why, config.hits[:1]))
    packages = await view.find("*.dist-info")
    seen = Spot(view.root, None, f"neither {reader.folder}/ nor its METADATA among {len(packages)} distributions")
    return all_alike(question, missing(f"there is no {reader.title} in {ref}", seen))


def _label(reader: Reader, package: Package | None) -> str:
    """`vLLM 0.32.0`; without a METADATA the release is not known."""
    return f"{reader.title} {package.version}" if package else f"{reader.title} of an unknown release"
