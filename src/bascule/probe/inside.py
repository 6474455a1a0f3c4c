"""The last step of the probe, only when asked: the engine's own registry is imported where it is installed.

In an image it runs without network, GPU, capabilities and a writable root; its answer is one more question.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

from bascule.core.reading import Spot
from bascule.probe.targets import Files, OnNode, Probed
from bascule.probe.verdict import ARCHITECTURE_UNKNOWN, KNOWN, Judgement, Question, Report, Word
from bascule.probe.views.folder import FolderView
from bascule.remote.runner import Runner

WITHIN = 180.0  # seconds
ENGINES = ("vllm", "sglang", "lmdeploy", "transformers")
CONFINED = (
    *("--rm", "--interactive", "--pull", "never"),
    *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--pids-limit", "512", "--tmpfs", "/tmp:rw,nosuid,nodev,size=256m", "--workdir", "/tmp"),
    *("--env", "HOME=/tmp", "--env", "NVIDIA_VISIBLE_DEVICES=void", "--env", "CUDA_VISIBLE_DEVICES="),
)


async def add_run(report: Report, question: Question, target: Probed, runner: Runner) -> Report:
    """The report with the question `run`: what the engine says of itself. Raises NodeUnreachable."""
    return replace(report, questions={**report.questions, "run": await _run(question, target, runner)})


async def _run(question: Question, target: Probed, runner: Runner) -> Judgement:
    engine = question.candidate.engine
    words = _words(target)
    if words is None or engine not in ENGINES:
        why = f"{engine} in {target.name} can't be run: only images and environments of {', '.join(ENGINES)} can"
        return Judgement(Word.UNKNOWN, why, (Spot(target.name, None, why),), asked=False)
    script = resources.files("bascule.probe").joinpath("data/inside.py").read_text()
    argv = (*words, "-", engine, question.architecture, question.model.model_type)
    result = await runner.run(argv, stdin=script, within=WITHIN)
    line = next((line for line in result.text.splitlines() if line.startswith("=== {")), "")
    if not line:
        why = f"took more than {WITHIN:g} s" if result.timed_out else result.complaint
        return Judgement(Word.UNKNOWN, f"it could not be run: {why}", (Spot(target.name, None, why),))
    return _judged(question, json.loads(line.removeprefix("=== ")), target.name)


def _words(target: Probed) -> Sequence[str] | None:
    """The command that runs Python where the engine is, reading its program from standard input."""
    if isinstance(target, OnNode) and target.target.kind == "image":
        return (*target.target.docker.split(), "run", *CONFINED, "--entrypoint", "python3", target.target.id)
    if isinstance(target, Files) and isinstance(target.view, FolderView):
        top, found, _ = target.view.root.partition("/lib/python3")
        return (f"{top}/bin/python", "-I") if found else None
    return None


def _judged(question: Question, said: object, name: str) -> Judgement:
    answers = said if isinstance(said, dict) else {}
    architecture = answers.get("architecture")
    seen = (Spot(f"imported in {name}", None, json.dumps(said)[:300]),)
    if architecture is True:
        return Judgement(Word.YES, f"its own registry has {question.architecture}", seen, code=KNOWN)
    if architecture is False:
        says = f"its own registry does not have {question.architecture}"
        return Judgement(Word.NO, says, seen, code=ARCHITECTURE_UNKNOWN)
    return Judgement(Word.UNKNOWN, f"its registry could not be imported: {architecture}", seen)
