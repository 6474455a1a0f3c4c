"""The quick benchmark: one stream at a time, tokens from usage, times from the wire."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bascule.core.nouns import Endpoint
from bascule.engines.chat import Answer, CompletionFailed, ask

QUESTION = "What is 86 + 57?"
ROUNDS = 3
TOKENS = 512  # of one answer at most
SPAN = 20.0  # seconds for all rounds: a slow service is as well measured by a part of one answer


@dataclass(frozen=True, slots=True)
class Speed:
    """Batch-1 speed; medians over the rounds."""

    ttft_s: float  # request sent to first token, reasoning included
    tokens_per_s: float  # (N - 1) / (last token - first token)
    tokens: int  # of the last round
    rounds: int
    cut: bool = False  # no answer ended in time: chunks were counted, which may have more tokens than one


async def quick(
    endpoint: Endpoint, *, context: int | None, rounds: int = ROUNDS, most: int = TOKENS, span: float = SPAN
) -> Speed | None:
    """Measure a service that answers; None when an answer fails, when no tokens came in time, or none are counted.

    most: tokens of one answer; a model with dummy weights ends none of them by itself.
    span: seconds for all rounds; one is begun only where there is time for it.
    """
    tokens = min(most, context // 2) if context else most
    found, began, left = list[Speed](), time.monotonic(), span
    while len(found) < rounds and left * (len(found) + 1) >= span:
        try:
            answer = await ask(
                endpoint.url, endpoint.model, QUESTION, max_tokens=tokens, within=left, socket=endpoint.socket
            )
        except CompletionFailed:
            return None
        left = span - (time.monotonic() - began)
        if found and answer.cut:
            break
        one = _speed(answer)
        if one is None or one.cut:
            return one
        found.append(one)
    return _median(found)


def _speed(answer: Answer) -> Speed | None:
    """Of one answer; tokens of one that was cut are not told, and its chunks are counted."""
    count = answer.chunks if answer.cut else answer.completion_tokens or 0
    if answer.first_token_at is None or answer.last_token_at is None or count < 2:
        return None
    seconds = max(answer.last_token_at - answer.first_token_at, 1e-6)
    return Speed(answer.first_token_at, (count - 1) / seconds, count, 1, answer.cut)


def _median(found: Sequence[Speed]) -> Speed:
    ttft, rate = median(one.ttft_s for one in found), median(one.tokens_per_s for one in found)
    return Speed(ttft, rate, found[-1].tokens, len(found))
