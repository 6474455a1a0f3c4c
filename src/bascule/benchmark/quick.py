"""The quick benchmark: one stream at a time, tokens from usage, times from the wire."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from bascule.core.nouns import Endpoint
from bascule.engines.chat import CompletionFailed, ask

QUESTION = "What is 86 + 57?"
ROUNDS = 3
TOKENS = 512  # of one answer at most
LONG = 30.0  # seconds after which no further round is begun: a slow service is as well measured by one


@dataclass(frozen=True, slots=True)
class Speed:
    """Batch-1 speed; medians over the rounds."""

    ttft_s: float  # request sent to first token, reasoning included
    tokens_per_s: float  # (N - 1) / (last token - first token)
    tokens: int  # of the last round
    rounds: int


async def quick(endpoint: Endpoint, *, context: int | None, rounds: int = ROUNDS, most: int = TOKENS) -> Speed | None:
    """Measure a service that answers; None when the engine counts no tokens or an answer fails.

    most: tokens of one answer; a model with dummy weights ends none of them by itself.
    """
    tokens = min(most, context // 2) if context else most
    ttfts, rates, count, began = [], [], 0, time.monotonic()
    for _ in range(rounds):
        if time.monotonic() - began > LONG:
            break
        try:
            answer = await ask(endpoint.url, endpoint.model, QUESTION, max_tokens=tokens, socket=endpoint.socket)
        except CompletionFailed:
            return None
        count = answer.completion_tokens or 0
        if answer.first_token_at is None or answer.last_token_at is None or count < 2:
            return None
        ttfts.append(answer.first_token_at)
        rates.append((count - 1) / max(answer.last_token_at - answer.first_token_at, 1e-6))
    return Speed(median(ttfts), median(rates), count, len(rates))
