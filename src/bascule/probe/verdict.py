"""The policy of the probe: from answered questions to one opinion. What was not checked is never a no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bascule.core.nouns import Candidate, Fate, Model
from bascule.probe.facts import first_release
from bascule.probe.values import Answer, Spot

KNOWN = "architecture-known"
ARCHITECTURE_UNKNOWN = "architecture-unknown"
MODEL_TYPE_UNKNOWN = "model-type-unknown"
ENGINE_MISSING = "engine-missing"
UNDECIDED = "probe-undecided"

# With one of these the engine looks further than its own tables: an absence there is no proof.
LOOPHOLES = (
    "--trust-remote-code",
    "--hf-overrides",
    "--model-impl",
    "--config-format",
    "--json-model-override-args",
    "SGLANG_EXTERNAL_MODEL_PACKAGE",
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, of which engine: `label` is how sentences name it, e.g. `vLLM 0.32.0`."""

    candidate: Candidate
    model: Model
    label: str = ""

    @property
    def architecture(self) -> str:
        """How sentences name the model's architecture."""
        return self.model.architectures[0] if self.model.architectures else self.model.model_type


@dataclass(frozen=True, slots=True)
class Opinion:
    """A Finding before it has a node and a time."""

    fate: Fate
    code: str
    says: str
    seen: tuple[Spot, ...]
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a reader found out about an engine and a model."""

    registered: Answer  # is the architecture in the engine's registry?
    model_type: Answer  # can the engine read this kind of config.json?
    stand_ins: Sequence[Answer] = ()  # might the engine serve it by another class of its own accord?
    outside: Sequence[Answer] = ()  # might something beside the engine's files teach it?
    advice: str = ""


def decide(question: Question, found: Answers) -> Opinion:
    """The one opinion that these answers allow."""
    registered, model_type = found.registered, found.model_type
    if registered.yes and model_type.yes:
        return Opinion(Fate.OK, KNOWN, _knows(question), registered.seen + model_type.seen)
    outside = next(
        (answer for answer in (*_loopholes(question.candidate), *found.outside) if answer.yes is not False), None
    )
    if outside:
        return undecided(question, outside.why, registered.seen + outside.seen)
    if registered.yes is False and all(answer.yes is False for answer in found.stand_ins):
        return _architecture_unknown(question, found)
    if model_type.yes is False:
        says = f"{question.label} does not know the model type {question.model.model_type}"
        says += _first(question, "transformers", question.model.model_type, "transformers ")
        return Opinion(Fate.HOPELESS, MODEL_TYPE_UNKNOWN, says, model_type.seen, found.advice)
    doubt = next(
        answer
        for answer in (registered, *found.stand_ins, model_type)
        if answer.yes is None or (answer.yes and answer in found.stand_ins)
    )
    return undecided(question, doubt.why, (*doubt.seen, *registered.seen))


def undecided(question: Question, why: str, seen: Sequence[Spot]) -> Opinion:
    """The opinion that there is none, and why."""
    asked = question.label or question.candidate.engine
    says = f"whether {asked} knows {question.architecture or 'this model'} could not be told: {why}"
    return Opinion(Fate.UNKNOWN, UNDECIDED, says, tuple(dict.fromkeys(seen)))


def missing(question: Question, says: str, seen: Spot) -> Opinion:
    """The opinion that there is no such engine."""
    return Opinion(Fate.HOPELESS, ENGINE_MISSING, says, (seen,))


def _knows(question: Question) -> str:
    return f"{question.label} knows {question.architecture}"


def _architecture_unknown(question: Question, found: Answers) -> Opinion:
    says = f"{question.label} does not know {question.architecture}"
    says += _first(question, question.candidate.engine, question.architecture, "")
    seen = found.registered.seen + tuple(spot for answer in found.stand_ins for spot in answer.seen)
    return Opinion(Fate.HOPELESS, ARCHITECTURE_UNKNOWN, says, tuple(dict.fromkeys(seen)), found.advice)


def _first(question: Question, engine: str, name: str, whose: str) -> str:
    release = first_release(engine, name)
    return f" (first in {whose}{release})" if release else ""


def _loopholes(candidate: Candidate) -> list[Answer]:
    return [
        Answer(True, (Spot("settings of the candidate", None, str(setting)),), f"{setting} may teach it more")
        for setting in candidate.in_force
        if setting.name in LOOPHOLES and setting.value is not None
    ]
