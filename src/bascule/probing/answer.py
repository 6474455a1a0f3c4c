"""Targets against models: each pair is answered, as a table or as JSON lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bascule.core.nouns import Artefact, Candidate, Model, Node, Setting
from bascule.core.reading import Unreadable
from bascule.discover.named import named_model
from bascule.engines.base import Lore, settings_from_words
from bascule.errors import ProbeError
from bascule.probe import inside
from bascule.probe.kernels.rules import target as sm_of
from bascule.probe.readers import READERS
from bascule.probe.targets import Probed, is_docker_asked, no_engine, open_target
from bascule.probe.verdict import GOOD, Judgement, Question, Report, Word, all_alike
from bascule.probing.commands import Asked
from bascule.recipe.words import nodes_from_words
from bascule.registry.access import Access
from bascule.remote.connect import connect
from bascule.remote.facts import read_facts
from bascule.remote.runner import Runner
from bascule.show.plain import out, print_json, say

FAILED = 4


@dataclass(frozen=True, slots=True)
class Row:
    """One target and one model, answered."""

    target: str
    engine: str
    model: str
    report: Report
    bytes_read: int
    seconds: float

    def plain(self) -> dict[str, Any]:
        """As `--json` gives it."""
        overall = self.report.overall
        return {
            "target": self.target,
            "engine": self.engine,
            "release": self.report.label,
            "model": self.model,
            "overall": str(overall),
            "says": overall.says,
            "change": overall.change,
            "questions": {name: _plain(judgement) for name, judgement in self.report.questions.items()},
            "bytes_read": self.bytes_read,
            "seconds": round(self.seconds, 3),
        }


async def answer(targets: Sequence[str], asked: Asked) -> int:
    """All of it; exit status 0 when at least one target can serve one of the models. Raises BasculeError."""
    _check(asked)
    there = nodes_from_words([asked.node])[0]
    runner = connect([there])[there.name]
    docker = any(is_docker_asked(target, there) for target in targets)
    node = await read_facts(runner, there) if docker else there  # they take longer than all the rest
    models = [await named_model(text, runner, node) for text in asked.model]
    rows = []
    for target in targets:
        for row in await _target(asked, target, models, node, runner):
            rows.append(row)
            if asked.json:
                print_json(row.plain(), lines=True)
            elif len(targets) > 1:
                say(f"{target}  {row.model}  {row.report.overall}")
    if not asked.json:
        single = len(rows) == 1
        out("\n".join(_whole(rows[0]) if single else _matrix(rows)))
    return 0 if any(row.report.overall.word in GOOD for row in rows) else FAILED


def _check(asked: Asked) -> None:
    """Raises ProbeError for words that can't be meant."""
    if asked.engine and asked.engine not in READERS:
        advice = f"one of {', '.join(READERS)}"
        raise ProbeError("usage", f"nothing is known of the engine {asked.engine}", seen=asked.engine, advice=advice)
    if asked.gpu and sm_of(asked.gpu) is None:
        raise ProbeError("usage", f"{asked.gpu} is no GPU architecture", seen=asked.gpu, advice="such as sm_121")


async def _target(asked: Asked, text: str, models: Sequence[Model], node: Node, runner: Runner) -> list[Row]:
    began = time.monotonic()
    try:
        target = await open_target(text, node, runner, asked.platform, Access(insecure=asked.insecure))
        engine = asked.engine or next(iter(await target.engines()), "")
    except Unreadable as trouble:
        return [_unreadable(text, model, trouble, asked, time.monotonic() - began) for model in models]
    rows = []
    for model in models:
        report = await _report(asked, target, engine, model, runner)
        rows.append(Row(text, engine, model.path, report, target.bytes_read, time.monotonic() - began))
        began = time.monotonic()
    return rows


async def _report(asked: Asked, target: Probed, engine: str, model: Model, runner: Runner) -> Report:
    question = _question(asked, target.name, engine, model)
    if not engine:
        return no_engine(question, target.name)
    try:
        report = await target.report(question)
        return await inside.add_run(report, question, target, runner) if asked.run else report
    except Unreadable as trouble:
        return all_alike(question, _unknown(trouble))


def _question(asked: Asked, target: str, engine: str, model: Model) -> Question:
    candidate = Candidate(target, engine or "engine", Artefact("image", target), model.path, _settings(asked, engine))
    return Question(candidate, model, gpu=asked.gpu)


def _settings(asked: Asked, engine: str) -> tuple[Setting, ...]:
    if not asked.flag:
        return ()
    words = [word for flag in asked.flag for word in flag.split()]
    try:
        return settings_from_words(words, Lore(engine, "", (), {}, ()))
    except ValueError as wrong:
        raise ProbeError(
            "usage", str(wrong), seen=" ".join(words), advice='--flag "--reasoning-parser qwen3"'
        ) from wrong


def _unreadable(text: str, model: Model, trouble: Unreadable, asked: Asked, seconds: float) -> Row:
    question = _question(asked, text, asked.engine, model)
    return Row(text, asked.engine, model.path, all_alike(question, _unknown(trouble)), 0, seconds)


def _unknown(trouble: Unreadable) -> Judgement:
    return Judgement(Word.UNKNOWN, f"it could not be read: {trouble.why}", (trouble.spot,))


def _plain(judgement: Judgement) -> dict[str, Any]:
    evidence = [{"source": spot.source, "excerpt": spot.text} for spot in judgement.seen]
    found = {"verdict": str(judgement), "says": judgement.says, "change": judgement.change, "evidence": evidence}
    return found if judgement.asked else {**found, "asked": False}


def _whole(row: Row) -> Iterator[str]:
    """A block: the overall word, then each question with its evidence."""
    overall = row.report.overall
    yield f"{row.target}   {row.report.label or row.engine}   {row.model}   {overall}"
    questions = row.report.questions
    if len(set(questions.values())) == 1:  # one thing decides them all
        questions = {"all": overall}
    for name, judgement in questions.items():
        word = str(judgement) if judgement.asked else "-"
        yield f"  {name:<13} {word:<8} {judgement.says}"
        for spot in judgement.seen[:4]:
            yield f"  {'':<13} {'':<8}   {spot.source}   {spot.text}".rstrip()
        if judgement.change and judgement.asked:
            yield f"  {'':<13} {'':<8}   to change it: {judgement.change}"
    end = "" if "run" in row.report.questions else "; nothing was imported or run"
    yield f"  read {row.bytes_read / 1e6:.1f} MB in {row.seconds:.1f} s{end}"


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    """Targets down, models across."""
    models = list(dict.fromkeys(row.model for row in rows))
    targets = list(dict.fromkeys(row.target for row in rows))
    found = {(row.target, row.model): row for row in rows}
    first = max(map(len, targets))
    widths = [
        max(len(model), *(len(str(found[target, model].report.overall)) for target in targets)) for model in models
    ]
    yield "   ".join([" " * first, *(model.ljust(width) for model, width in zip(models, widths, strict=True))]).rstrip()
    for target in targets:
        words = [
            str(found[target, model].report.overall).ljust(width) for model, width in zip(models, widths, strict=True)
        ]
        yield "   ".join([target.ljust(first), *words]).rstrip()
    for row in rows:
        if row.report.overall.word not in GOOD:
            yield f"  {row.target}  {row.model}: {row.report.overall.says}"
