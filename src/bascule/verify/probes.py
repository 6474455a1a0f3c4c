"""Questions with one right answer, and what an answer shows about the service: one function each (pure)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bascule.core.nouns import Fate
from bascule.engines.chat import Answer

FINISHED = ("stop", "length")
TAGS = re.compile(r"</?think>|<\|[a-z_]+\|>|</?tool_call>")


@dataclass(frozen=True, slots=True)
class Sum:
    """A question whose answer nobody can argue about."""

    a: int
    b: int

    @property
    def question(self) -> str:
        """As it is asked."""
        return f"What is {self.a} + {self.b}?"

    @property
    def answer(self) -> str:
        """As it must be found in the content."""
        return str(self.a + self.b)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check says of one answer."""

    fate: Fate
    code: str
    says: str


def sums(seed: int) -> tuple[Sum, ...]:
    """The sum everybody can read along, and two that change from run to run."""
    chance = random.Random(seed)
    return (Sum(17, 25), *(Sum(chance.randint(10, 99), chance.randint(10, 99)) for _ in range(2)))


def right_answer(asked: Sum, answer: Answer, thinks: bool) -> Outcome:
    """The last number of the content is the sum."""
    if answer.finish_reason == "length" and not answer.content.strip():
        return Outcome(Fate.UNKNOWN, "thinking-too-long", f"{asked.question} used up its tokens in thinking")
    numbers = re.findall(r"\d+", answer.content.replace(",", ""))
    if numbers and numbers[-1] == asked.answer:
        return Outcome(Fate.OK, "right-answer", f"{asked.question} {asked.answer}")
    got = answer.content.strip()[-80:] or "nothing"
    return Outcome(Fate.HOPELESS, "wrong-answer", f"{asked.question} is answered with {got!r}, not {asked.answer}")


def no_leaked_tags(asked: Sum, answer: Answer, thinks: bool) -> Outcome:
    """No markup of the chat template is left in the content."""
    if leak := TAGS.search(answer.content):
        return Outcome(
            Fate.HOPELESS, "tags-leaked", f"the content holds {leak.group()}: reasoning is not told from the answer"
        )
    return Outcome(Fate.OK, "no-leaked-tags", "no tag in the content")


def reasoning_apart(asked: Sum, answer: Answer, thinks: bool) -> Outcome:
    """A model that thinks does so in a field of its own."""
    if thinks and not answer.reasoning.strip():
        return Outcome(Fate.HOPELESS, "reasoning-missing", "the model thinks, but no reasoning field comes back")
    where = f"reasoning in `{answer.reasoning_field}`" if answer.reasoning else "no reasoning, none expected"
    return Outcome(Fate.OK, "reasoning-apart", where)


def completed(answer: Answer) -> Outcome:
    """A whole completion: tokens that came one after another, an end with a reason, and their number.

    It says nothing about what they mean. Tokens that have no text, such as marks, are counted and not seen.
    """
    lacks = [
        what
        for what, there in (
            ("a finish_reason", answer.finish_reason in FINISHED),
            ("a count of tokens in usage", bool(answer.completion_tokens)),
            ("chunks of a stream", len(answer.raw) > 1),
        )
        if not there
    ]
    if lacks:
        return Outcome(Fate.HOPELESS, "completion-malformed", f"the completion lacks {', '.join(lacks)}")
    says = f"{answer.completion_tokens} tokens in {len(answer.raw)} chunks, ended by `{answer.finish_reason}`"
    return Outcome(Fate.OK, "completed", says)


CHECKS: Sequence[Callable[[Sum, Answer, bool], Outcome]] = (no_leaked_tags, reasoning_apart, right_answer)
