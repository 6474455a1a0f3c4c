"""With made-up weights only the shape of an answer is looked at, and nobody is told that it was verified."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bascule.benchmark.quick import quick
from bascule.core.decide import decide
from bascule.core.nouns import Artefact, Attempt, Candidate, Endpoint, Fate, Finding, Serve, Step
from bascule.engines.chat import Answer
from bascule.journal import Event
from bascule.show.story import Narrator
from bascule.verify.probes import completed
from bascule.verify.run import verify_shape
from verify.server import Server, chunk

NONSENSE = b"".join(
    f"data: {data}\n\n".encode()
    for data in (
        chunk({"content": "<|im_end|></think>"}),
        chunk({"content": "🦆"}, "length"),
        json.dumps({"choices": [], "usage": {"completion_tokens": 32}}),
        "[DONE]",
    )
)


def check(server: Server, folder: Path, context: int | None = None) -> Finding:
    endpoint = Endpoint(server.url, "tiny", "/health")
    return asyncio.run(verify_shape(endpoint, "a", context=context, folder=folder))


def test_nonsense_of_the_right_shape_is_enough_and_is_not_called_verified(tmp_path: Path) -> None:
    with Server(recorded=NONSENSE) as server:
        finding = check(server, tmp_path)
    assert (finding.step, finding.fate, finding.code) == (Step.VERIFY, Fate.OK, "not-verified")
    told = "32 tokens in 3 chunks, ended by `length`"
    assert finding.says == f"not verified: dummy weights can't be right; a completion streams: {told}"
    assert (tmp_path / "answer0.sse").read_text().count("\n") == 3
    candidate = Candidate("c", "vllm", Artefact("venv", "/v"), "/m")
    assert isinstance(decide([candidate], [Attempt(candidate, finding)]), Serve)


@pytest.mark.parametrize(("context", "tokens"), [(None, 32), (20, 10), (8192, 32)])
def test_few_tokens_are_asked_for(tmp_path: Path, context: int | None, tokens: int) -> None:
    with Server(recorded=NONSENSE) as server:
        check(server, tmp_path, context)
    assert [body["max_tokens"] for body in server.asked] == [tokens]


@pytest.mark.parametrize(
    ("mode", "fate", "code", "says"),
    [
        ("no usage", Fate.HOPELESS, "completion-malformed", "the completion lacks a count of tokens in usage"),
        ("HTTP 500", Fate.AGAIN, "completion-failed", "What is 17 + 25? got no answer: HTTP 500"),
        (
            "HTTP 200, error in the stream",
            Fate.AGAIN,
            "completion-failed",
            "What is 17 + 25? got no answer: the engine sent an error in the stream",
        ),
    ],
)
def test_each_fault_of_shape_is_told(tmp_path: Path, mode: str, fate: Fate, code: str, says: str) -> None:
    with Server(mode) as server:
        finding = check(server, tmp_path)
    assert (finding.fate, finding.code, finding.says, finding.scope) == (fate, code, says, "candidate")


@pytest.mark.parametrize(
    ("answer", "lacks"),
    [
        (Answer(finish_reason="stop", completion_tokens=2, raw=["a", "b"]), ""),
        (Answer(finish_reason="error", completion_tokens=2, raw=["a", "b"]), "a finish_reason"),
        (Answer(finish_reason="stop", completion_tokens=0, raw=["a", "b"]), "a count of tokens in usage"),
        (Answer(finish_reason="stop", completion_tokens=2, raw=["a"]), "chunks of a stream"),
        (Answer(raw=["a", "b"]), "a finish_reason, a count of tokens in usage"),
    ],
)
def test_a_whole_completion_has_three_things(answer: Answer, lacks: str) -> None:
    outcome = completed(answer)
    assert outcome.fate is (Fate.HOPELESS if lacks else Fate.OK)
    assert outcome.says == (f"the completion lacks {lacks}" if lacks else "2 tokens in 2 chunks, ended by `stop`")


def test_a_timed_answer_is_no_longer_than_was_said() -> None:
    with Server() as server:
        asyncio.run(quick(Endpoint(server.url, "tiny", "/health"), context=None, rounds=2, most=128))
    assert [body["max_tokens"] for body in server.asked] == [128, 128]


@pytest.mark.parametrize(
    ("more", "told"), [({"verified": False}, "   (dummy weights: not verified)"), ({"verified": True}, ""), ({}, "")]
)
def test_who_reads_that_it_serves_reads_that_it_is_not_verified(more: dict[str, bool], told: str) -> None:
    endpoint = {"url": "http://10.0.0.1:8000/v1", "model": "qwen"}
    event = Event(1, datetime(2026, 12, 1, tzinfo=UTC), "served", {"endpoint": endpoint, **more})
    assert [say.text for say in Narrator().tell(event)] == [f"http://10.0.0.1:8000/v1   model qwen{told}"]
