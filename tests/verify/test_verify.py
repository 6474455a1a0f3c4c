"""A service that answers wrongly, leaks its markup or breaks off is never served; each fault is told by its name."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from bascule.core.nouns import Endpoint, Fate, Finding, Step
from bascule.engines.chat import Answer, CompletionFailed, ask
from bascule.verify.probes import Sum, no_leaked_tags, right_answer, sums
from bascule.verify.run import verify
from verify.server import REASONING, Server

LOGS = Path(__file__).parents[1] / "logs"


def check(server: Server, folder: Path, *, thinks: bool = True, context: int | None = None) -> Finding:
    endpoint = Endpoint(server.url, "tiny", "/health")
    return asyncio.run(verify(endpoint, "a", thinks=thinks, context=context, seed=7, folder=folder))


def question(server: Server) -> Answer:
    return asyncio.run(ask(server.url, "tiny", "What is 17 + 25?", max_tokens=100))


@pytest.mark.parametrize("mode", ["right", "reasoning in reasoning_content", "no usage"])
def test_a_right_service_is_verified(tmp_path: Path, mode: str) -> None:
    with Server(mode) as server:
        finding = check(server, tmp_path)
    assert (finding.step, finding.fate, finding.code) == (Step.VERIFY, Fate.OK, "verified")
    assert finding.says == "9 of 9 checks passed: sums right, reasoning apart, no tags in the content"
    assert json.loads(finding.evidence[0].excerpt) == {
        "question": "What is 17 + 25?",
        "reasoning": REASONING,
        "content": "42",
    }


FAULTS = {
    "wrong number": (Fate.HOPELESS, "wrong-answer", "What is 17 + 25? is answered with '43', not 42"),
    "think tags in the content": (
        Fate.HOPELESS,
        "tags-leaked",
        "the content holds </think>: reasoning is not told from the answer",
    ),
    "no reasoning": (Fate.HOPELESS, "reasoning-missing", "the model thinks, but no reasoning field comes back"),
    "tokens used up": (Fate.UNKNOWN, "thinking-too-long", "What is 17 + 25? used up its tokens in thinking"),
    "HTTP 500": (Fate.AGAIN, "completion-failed", "What is 17 + 25? got no answer: HTTP 500"),
    "HTTP 200, error in the stream": (
        Fate.AGAIN,
        "completion-failed",
        "What is 17 + 25? got no answer: the engine sent an error in the stream",
    ),
    "no JSON": (
        Fate.AGAIN,
        "completion-failed",
        "What is 17 + 25? got no answer: a chunk of the stream is no JSON",
    ),
    "connection cut": (
        Fate.AGAIN,
        "completion-failed",
        "What is 17 + 25? got no answer: the request failed: RemoteProtocolError",
    ),
    "empty stream": (Fate.AGAIN, "completion-failed", "What is 17 + 25? got no answer: the stream was empty"),
}


@pytest.mark.parametrize(("mode", "told"), FAULTS.items())
def test_each_fault_is_told_by_its_name(tmp_path: Path, mode: str, told: tuple[Fate, str, str]) -> None:
    with Server(mode) as server:
        finding = check(server, tmp_path)
    assert (finding.fate, finding.code, finding.says) == told
    assert (finding.step, finding.scope) == (Step.VERIFY, "candidate")
    assert finding.evidence[0].node == "a"
    assert finding.evidence[0].source == f"POST {server.url}/chat/completions"


def test_nobody_listens(tmp_path: Path) -> None:
    with Server() as server:
        pass
    finding = check(server, tmp_path)
    assert (finding.code, finding.says) == (
        "completion-failed",
        "What is 17 + 25? got no answer: the request failed: ConnectError",
    )


def test_a_model_that_does_not_think_needs_no_reasoning(tmp_path: Path) -> None:
    with Server("no reasoning") as server:
        finding = check(server, tmp_path, thinks=False)
    assert (finding.fate, finding.says) == (Fate.OK, "9 of 9 checks passed: sums right, no tags in the content")


def test_the_answers_are_kept_as_they_came_over_the_wire(tmp_path: Path) -> None:
    with Server() as server:
        check(server, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer0.sse", "answer1.sse", "answer2.sse"]
    chunks = [json.loads(line) for line in (tmp_path / "answer0.sse").read_text().splitlines()]
    assert chunks[-1]["usage"] == {"completion_tokens": 12}


@pytest.mark.parametrize(("context", "tokens"), [(None, 2048), (1024, 512), (100_000, 2048)])
def test_it_asks_at_temperature_0_for_no_more_tokens_than_fit(tmp_path: Path, context: int | None, tokens: int) -> None:
    with Server() as server:
        check(server, tmp_path, context=context)
    assert [body["messages"][0]["content"] for body in server.asked] == [one.question for one in sums(7)]
    for body in server.asked:
        assert (body["model"], body["temperature"], body["max_tokens"], body["stream"]) == ("tiny", 0, tokens, True)


def test_one_sum_is_the_same_in_every_run_and_two_change() -> None:
    assert sums(1)[0] == sums(2)[0] == Sum(17, 25)
    assert sums(1) == sums(1)
    assert sums(1)[1:] != sums(2)[1:]


@pytest.mark.parametrize(
    ("content", "fate"),
    [
        ("42", Fate.OK),
        ("17 + 25 = 42.", Fate.OK),
        ("**42**", Fate.OK),
        ("43", Fate.HOPELESS),
        ("42 or 43", Fate.HOPELESS),
        ("142", Fate.HOPELESS),
        ("forty-two", Fate.HOPELESS),
        ("", Fate.HOPELESS),
    ],
)
def test_the_last_number_is_the_answer(content: str, fate: Fate) -> None:
    assert right_answer(Sum(17, 25), Answer(content=content, finish_reason="stop"), False).fate is fate


def test_a_thousands_comma_is_no_other_number() -> None:
    assert right_answer(Sum(999, 2), Answer(content="1,001"), False).fate is Fate.OK


# --- the client itself ---


def test_an_answer_is_kept_with_its_times_and_counts() -> None:
    with Server() as server:
        answer = question(server)
    assert (answer.content, answer.reasoning, answer.reasoning_field) == ("42", REASONING, "reasoning")
    assert (answer.finish_reason, answer.model, answer.completion_tokens) == ("stop", "tiny", 12)
    assert answer.chunks == len(REASONING.split()) + 2
    assert answer.first_token_at is not None
    assert answer.last_token_at is not None
    assert 0 < answer.first_token_at <= answer.last_token_at


@pytest.mark.parametrize(
    ("engine", "field", "content"),
    [
        ("vllm/vllm-0.32-tp2", "reasoning", "\n\n4"),
        ("llamacpp/llamacpp", None, "Two plus two is four.\n</think>\n\n4"),
        ("transformers/transformers", "reasoning_content", "\n\n4"),
    ],
)
def test_the_streams_of_real_engines_are_understood(engine: str, field: str | None, content: str) -> None:
    with Server(recorded=(LOGS / f"{engine}-chat.sse").read_bytes()) as server:
        answer = question(server)
    assert (answer.content, answer.reasoning_field) == (content, field)
    assert (answer.completion_tokens, answer.finish_reason) == (18, "stop")
    assert (no_leaked_tags(Sum(2, 2), answer, True).fate is Fate.OK) == ("</think>" not in content)


def test_tokens_that_were_not_counted_are_not_made_up() -> None:
    with Server("no usage") as server:
        assert question(server).completion_tokens is None


def test_the_field_of_the_reasoning_is_known() -> None:
    with Server("reasoning in reasoning_content") as server:
        answer = question(server)
    assert (answer.reasoning_field, answer.reasoning) == ("reasoning_content", REASONING)


def test_an_engine_that_says_nothing_is_left_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        answer = asyncio.run(ask(url, "tiny", "What is 1 + 1?", max_tokens=1, within=0.1))
    assert answer.cut
    assert answer.raw == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Server() as server:
        assert question(server).content == "42"


def test_what_an_engine_says_beside_its_status_is_kept() -> None:
    with Server("HTTP 500") as server, pytest.raises(CompletionFailed) as caught:
        question(server)
    assert "out of luck" in caught.value.seen
