"""Asks the service its questions and gives one Finding: the first check that fails, or that all passed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bascule.core.nouns import Endpoint, Evidence, Fate, Finding, Step
from bascule.engines.chat import Answer, CompletionFailed, ask
from bascule.verify.probes import CHECKS, Sum, completed, sums

MAX_TOKENS = 2048
SHAPE_TOKENS = 32
NOT_VERIFIED = "not-verified"


async def verify(
    endpoint: Endpoint, head: str, *, thinks: bool, context: int | None, seed: int, folder: Path
) -> Finding:
    """Verify a service; every answer is kept in `folder` as it came over the wire."""
    tokens = min(MAX_TOKENS, context // 2) if context else MAX_TOKENS
    passed: list[str] = []
    evidence: list[Evidence] = []
    for number, asked in enumerate(sums(seed)):
        try:
            answer = await ask(endpoint.url, endpoint.model, asked.question, max_tokens=tokens, socket=endpoint.socket)
        except CompletionFailed as failed:
            return _not_answered(asked, failed, endpoint, head)
        (folder / f"answer{number}.sse").write_text("\n".join(answer.raw) + "\n")
        evidence.append(_seen(asked, answer, endpoint, head))
        for check in CHECKS:
            outcome = check(asked, answer, thinks)
            if outcome.fate is not Fate.OK:
                return _finding(outcome.fate, outcome.code, outcome.says, (evidence[-1],))
            passed.append(outcome.code)
    says = f"{len(passed)} of {len(passed)} checks passed: sums right, reasoning apart, no tags in the content"
    if not thinks:
        says = says.replace("reasoning apart, ", "")
    return _finding(Fate.OK, "verified", says, evidence)


async def verify_shape(endpoint: Endpoint, head: str, *, context: int | None, folder: Path) -> Finding:
    """Verify what can be of a service with made-up weights: a completion streams. It is never called verified.

    The finding is OK, since no more was asked for, and its code says that no answer was looked at.
    """
    tokens = min(SHAPE_TOKENS, context // 2) if context else SHAPE_TOKENS
    asked = sums(0)[0]
    try:
        answer = await ask(endpoint.url, endpoint.model, asked.question, max_tokens=tokens, socket=endpoint.socket)
    except CompletionFailed as failed:
        return _not_answered(asked, failed, endpoint, head)
    (folder / "answer0.sse").write_text("\n".join(answer.raw) + "\n")
    seen, outcome = _seen(asked, answer, endpoint, head), completed(answer)
    if outcome.fate is not Fate.OK:
        return _finding(outcome.fate, outcome.code, outcome.says, (seen,))
    says = f"not verified: dummy weights can't be right; a completion streams: {outcome.says}"
    return _finding(Fate.OK, NOT_VERIFIED, says, (seen,))


def _not_answered(asked: Sum, failed: CompletionFailed, endpoint: Endpoint, head: str) -> Finding:
    seen = Evidence(head, f"POST {endpoint.url}/chat/completions", datetime.now(UTC), failed.seen or failed.says)
    return _finding(Fate.AGAIN, "completion-failed", f"{asked.question} got no answer: {failed.says}", (seen,))


def _finding(fate: Fate, code: str, says: str, seen: Sequence[Evidence]) -> Finding:
    """About this candidate alone: the same artefact with other settings may well answer rightly."""
    return Finding(Step.VERIFY, fate, code, says, tuple(seen), scope="candidate")


def _seen(asked: Sum, answer: Answer, endpoint: Endpoint, head: str) -> Evidence:
    told = {"question": asked.question, "reasoning": answer.reasoning, "content": answer.content}
    return Evidence(
        head, f"POST {endpoint.url}/chat/completions", datetime.now(UTC), json.dumps(told, ensure_ascii=False)
    )
