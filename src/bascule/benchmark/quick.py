"""The quick benchmark: one stream at a time, tokens from usage, times from the wire."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from bascule.core.nouns import Endpoint
from bascule.engines.chat import CompletionFailed, ask

QUESTION = "What is 86 + 57?"
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Speed:
    """Batch-1 speed; medians over the rounds."""

    ttft_s: float  # request sent to first token, reasoning included
    tokens_per_s: float  # (N - 1) / (last token - first token)
    tokens: int  # of the last round
    rounds: int


async def quick(endpoint: Endpoint, *, context: int | None, rounds: int = ROUNDS) -> Speed | None:
    """Measure a verified service; None when the engine counts no tokens or an answer fails."""
    tokens = min(512, context // 2) if context else 512
    ttfts, rates, count = [], [], 0
    for _ in range(rounds):
        try:
            answer = await ask(endpoint.url, endpoint.model, QUESTION, max_tokens=tokens, socket=endpoint.socket)
        except CompletionFailed:
            return None
        count = answer.completion_tokens or 0
        if answer.first_token_at is None or answer.last_token_at is None or count < 2:
            return None
        ttfts.append(answer.first_token_at)
        rates.append((count - 1) / max(answer.last_token_at - answer.first_token_at, 1e-6))
    return Speed(median(ttfts), median(rates), count, rounds)
