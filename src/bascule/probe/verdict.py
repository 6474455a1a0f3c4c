"""The policy of the probe: from answered questions to one word each, and one overall. What was not checked is no no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from bascule.core.nouns import Candidate, Fate, Model
from bascule.core.reading import Spot
from bascule.probe.facts import first_release, unknown_before
from bascule.probe.values import Answer

KNOWN = "architecture-known"
ARCHITECTURE_UNKNOWN = "architecture-unknown"
MODEL_TYPE_UNKNOWN = "model-type-unknown"
QUANTIZATION_UNKNOWN = "quantization-unknown"
FLAG_UNKNOWN = "flag-unknown"
KERNELS_MISSING = "kernels-missing"
ENGINE_MISSING = "engine-missing"
IMAGE_ARCHITECTURE = "image-architecture"
UNDECIDED = "probe-undecided"

QUESTIONS = ("architecture", "config", "quantization", "kernels", "flags")

# With one of these the engine looks further than its own tables: an absence there is no proof.
LOOPHOLES = (
    "--trust-remote-code",
    "--hf-overrides",
    "--model-impl",
    "--config-format",
    "--json-model-override-args",
    "SGLANG_EXTERNAL_MODEL_PACKAGE",
)


class Word(StrEnum):
    """How a question is answered; from the best to the worst."""

    YES = "YES"
    VIA_TRANSFORMERS = "YES-via-transformers"  # by the engine's generic backend, which its own table says
    LIKELY = "LIKELY"
    MAYBE = "MAYBE"
    UNKNOWN = "UNKNOWN"  # not checked: never a yes, never a no
    PLUGIN = "PLUGIN"  # a plugin that isn't there has it
    REMOVED = "REMOVED"  # an earlier release had it
    NO = "NO"


GOOD = (Word.YES, Word.VIA_TRANSFORMERS, Word.LIKELY)
BAD = (Word.PLUGIN, Word.REMOVED, Word.NO)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, of which engine: `label` is how sentences name it, e.g. `vLLM 0.32.0`."""

    candidate: Candidate
    model: Model
    label: str = ""
    gpu: str = ""  # e.g. sm_121; "" = kernels are not asked about
    release: str = ""  # e.g. 0.32.0

    @property
    def architecture(self) -> str:
        """How sentences name the model's architecture."""
        return self.model.architectures[0] if self.model.architectures else self.model.model_type


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer to one question: a word, a sentence, what was seen, and what would change it."""

    word: Word
    says: str
    seen: tuple[Spot, ...] = ()
    detail: str = ""  # the last release that had it, or where the plugin is
    change: str = ""  # what would change it, e.g. `first release that knows it: 0.17.0`
    code: str = UNDECIDED  # of the finding, when this decides
    asked: bool = True  # False: the question doesn't count, e.g. kernels without a GPU

    def __str__(self) -> str:
        return f"{self.word}({self.detail})" if self.detail else str(self.word)


@dataclass(frozen=True, slots=True)
class Report:
    """All that the probe says about one target and one model."""

    label: str  # `vLLM 0.32.0`
    questions: Mapping[str, Judgement]
    release: str = ""  # `0.32.0`; empty where no METADATA tells it

    @property
    def overall(self) -> Judgement:
        """A no wins; else the weakest answer; else the architecture."""
        asked = [judgement for judgement in self.questions.values() if judgement.asked]
        bad = next((judgement for judgement in asked if judgement.word in BAD), None)
        return bad or max(asked, key=lambda judgement: list(Word).index(judgement.word))


@dataclass(frozen=True, slots=True)
class Opinion:
    """A Finding before it has a node and a time."""

    fate: Fate
    code: str
    says: str
    seen: tuple[Spot, ...]
    advice: str = ""
    scope: Literal["artefact", "candidate"] = "artefact"


@dataclass(frozen=True, slots=True)
class Answers:
    """What a reader found out about an engine and a model; an empty sequence is "nothing to ask"."""

    registered: Answer  # is the architecture in the engine's registry?
    model_type: Answer  # can the engine read this kind of config.json?
    stand_ins: Sequence[Answer] = ()  # might the engine serve it by another class of its own accord?
    outside: Sequence[Answer] = ()  # might something beside the engine's files teach it?
    generic: Answer | None = None  # yes: registered, but only for the generic backend of transformers
    removed: tuple[str, Spot] | None = None  # the last release that had it, as the engine says
    plugin: tuple[str, Spot] | None = None  # where a plugin is that has it, as the engine says
    quantization: Answer | None = None  # None: nothing of the model is quantized
    flags: Mapping[str, Answer] = field(default_factory=dict)  # `--flag`, or `--flag value` -> is it there?


def judge(question: Question, found: Answers, kernels: Judgement | None = None) -> Report:
    """The report that these answers allow."""
    outside = _first_doubt((*_loopholes(question.candidate), *found.outside))
    questions = {
        "architecture": _architecture(question, found, outside),
        "config": _config(question, found.model_type, outside),
        "quantization": _quantization(question, found.quantization),
        "kernels": kernels or not_asked("no GPU was named"),
        "flags": _flags(question, found.flags),
    }
    return Report(question.label, questions, question.release)


def not_asked(why: str) -> Judgement:
    """The judgement of a question that nobody asked."""
    return Judgement(Word.UNKNOWN, why, asked=False)


def all_alike(question: Question, judgement: Judgement) -> Report:
    """A report in which one thing decides every question, e.g. that there is no engine."""
    return Report(question.label, dict.fromkeys(QUESTIONS, judgement), question.release)


def opinion(report: Report) -> Opinion:
    """What the pivot loop makes of a report."""
    overall = report.overall
    if overall.word in GOOD:
        seen = report.questions["architecture"].seen + report.questions["config"].seen
        return Opinion(Fate.OK, KNOWN, report.questions["architecture"].says, seen)
    fate = Fate.HOPELESS if overall.word in BAD else Fate.UNKNOWN
    advice = overall.change if fate is Fate.HOPELESS else ""
    says = overall.says
    if overall.word is Word.UNKNOWN and report.questions["architecture"].word in GOOD:
        says = f"{says}; {report.questions['architecture'].says}"  # one open question doesn't undo what is known
    by_settings = overall.code in (FLAG_UNKNOWN, QUANTIZATION_UNKNOWN)  # another candidate may leave them out
    scope: Literal["artefact", "candidate"] = "candidate" if by_settings and fate is Fate.HOPELESS else "artefact"
    return Opinion(fate, overall.code, says, overall.seen, advice, scope)


def undecided(question: Question, why: str, seen: Sequence[Spot], word: Word = Word.UNKNOWN) -> Judgement:
    """The judgement that it could not be told, and why."""
    asked = question.label or question.candidate.engine
    says = f"whether {asked} knows {question.architecture or 'this model'} could not be told: {why}"
    return Judgement(word, says, tuple(dict.fromkeys(seen)), code=UNDECIDED)


def missing(says: str, seen: Spot) -> Judgement:
    """The judgement that there is no such engine."""
    return Judgement(Word.NO, says, (seen,), code=ENGINE_MISSING)


def _architecture(question: Question, found: Answers, outside: Answer | None) -> Judgement:
    registered = found.registered
    if registered.yes:
        if found.generic and found.generic.yes:
            says = f"{question.label} serves {question.architecture} through its transformers backend"
            return Judgement(Word.VIA_TRANSFORMERS, says, registered.seen + found.generic.seen, code=KNOWN)
        return Judgement(Word.YES, f"{question.label} knows {question.architecture}", registered.seen, code=KNOWN)
    if outside:
        return undecided(question, outside.why, registered.seen + outside.seen, Word.MAYBE)
    stand_in = next((answer for answer in found.stand_ins if answer.yes), None)
    if stand_in:
        return undecided(question, stand_in.why, stand_in.seen + registered.seen, Word.MAYBE)
    doubt = next((answer for answer in (registered, *found.stand_ins) if answer.yes is None), None)
    if doubt:
        return undecided(question, doubt.why, (*doubt.seen, *registered.seen))
    return _unknown_architecture(question, found)


def _unknown_architecture(question: Question, found: Answers) -> Judgement:
    release = first_release(question.candidate.engine, question.architecture)
    says = f"{question.label} does not know {question.architecture}" + (f" (first in {release})" if release else "")
    seen = found.registered.seen + tuple(spot for answer in found.stand_ins for spot in answer.seen)
    no = Judgement(Word.NO, says, tuple(dict.fromkeys(seen)), code=ARCHITECTURE_UNKNOWN)
    if found.removed:
        last, spot = found.removed
        return replace(
            no, word=Word.REMOVED, detail=last, seen=(spot, *no.seen), change=f"last release with it: {last}"
        )
    if found.plugin:
        where, spot = found.plugin
        return replace(no, word=Word.PLUGIN, detail=where, seen=(spot, *no.seen), change=f"a plugin has it: {where}")
    return replace(no, change=f"first release that knows it: {release}" if release else "")


def _config(question: Question, model_type: Answer, outside: Answer | None) -> Judgement:
    name = question.model.model_type
    if model_type.yes:
        return Judgement(Word.YES, f"{question.label} reads the model type {name}", model_type.seen, code=KNOWN)
    if outside:
        return undecided(question, outside.why, model_type.seen + outside.seen, Word.MAYBE)
    if model_type.yes is None:
        return undecided(question, model_type.why, model_type.seen)
    release = first_release("transformers", name)
    says = f"{question.label} does not know the model type {name}"
    says += f" (first in transformers {release})" if release else ""
    since = unknown_before("transformers", name)
    change = f"transformers {since} or newer beside it" if since else ""
    return Judgement(Word.NO, says, model_type.seen, change=change, code=MODEL_TYPE_UNKNOWN)


def _quantization(question: Question, answer: Answer | None) -> Judgement:
    method = question.model.quantization
    if method is None and question.model.path == question.architecture:
        return not_asked("only the name of the architecture is known")
    if answer is None:
        spot = Spot(f"{question.model.path}/config.json", None, "no quantization_config")
        return Judgement(Word.YES, "the model is not quantized", (spot,), code=KNOWN)
    if answer.yes:
        return Judgement(Word.YES, f"{question.label} takes {method}", answer.seen, code=KNOWN)
    if answer.yes is None:
        return undecided(question, answer.why, answer.seen)
    says = f"{question.label} does not take the quantization {method}" + (f": {answer.why}" if answer.why else "")
    return Judgement(Word.NO, says, answer.seen, code=QUANTIZATION_UNKNOWN)


def _flags(question: Question, flags: Mapping[str, Answer]) -> Judgement:
    bad = {name: answer for name, answer in flags.items() if answer.yes is False}
    if bad:
        says = f"{question.label} has no {', '.join(bad)}"
        return Judgement(Word.NO, says, tuple(s for answer in bad.values() for s in answer.seen), code=FLAG_UNKNOWN)
    doubt = next(((name, answer) for name, answer in flags.items() if answer.yes is None), None)
    if doubt:
        says = f"whether {question.label} has {doubt[0]} could not be told: {doubt[1].why}"
        return Judgement(Word.UNKNOWN, says, doubt[1].seen)
    if not flags:
        return not_asked("no flags to look for")
    seen = tuple(spot for answer in flags.values() for spot in answer.seen[:1])
    return Judgement(Word.YES, f"{question.label} has {', '.join(flags)}", seen, code=KNOWN)


def _first_doubt(answers: Sequence[Answer]) -> Answer | None:
    return next((answer for answer in answers if answer.yes is not False), None)


def _loopholes(candidate: Candidate) -> list[Answer]:
    return [
        Answer(True, (Spot("settings of the candidate", None, str(setting)),), f"{setting} may teach it more")
        for setting in candidate.in_force
        if setting.name in LOOPHOLES and setting.value is not None
    ]
