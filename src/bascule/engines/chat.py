"""A small client of the OpenAI chat API that keeps what a library hides: raw deltas and the time of each."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

CONNECT = 10.0  # seconds
BETWEEN_CHUNKS = 300.0  # seconds without a byte until the answer is given up: the first one may compile kernels


@dataclass
class Answer:
    """One streamed chat completion as it came over the wire; times are seconds since it was asked."""

    content: str = ""
    reasoning: str = ""
    reasoning_field: str | None = None  # "reasoning" (vLLM >= 0.16) or "reasoning_content" (SGLang, transformers)
    finish_reason: str | None = None
    model: str | None = None
    completion_tokens: int | None = None  # from usage; chunks are not tokens
    first_token_at: float | None = None
    last_token_at: float | None = None
    chunks: int = 0  # that carry text; each is of one token or more
    cut: bool = False  # it was left before its end, as its time was over
    raw: list[str] = field(default_factory=list)


class CompletionFailed(Exception):
    """The request did not end in an answer; says why."""

    def __init__(self, says: str, seen: str = "") -> None:
        super().__init__(says)
        self.says = says
        self.seen = seen


def client_of(url: str, timeout: httpx2.Timeout, socket: str | None) -> httpx2.AsyncClient:
    """A client for an engine at a url, or behind a Unix socket that leads there.

    The machine's certificates are loaded for https alone: that takes 75 ms of a core, and engines speak plain http.
    """
    trusted = True if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    transport = httpx2.AsyncHTTPTransport(uds=socket, verify=trusted) if socket else None
    return httpx2.AsyncClient(timeout=timeout, trust_env=False, transport=transport, verify=trusted)


async def ask(
    url: str, model: str, question: str, *, max_tokens: int, within: float | None = None, socket: str | None = None
) -> Answer:
    """Ask one question at temperature 0 and read the stream to its end. Raises CompletionFailed.

    within: seconds after which the stream is left, with what came until then; None: it is read to its end.
    socket: the path of a Unix socket that leads to the url's host and port, where they can't be reached from here.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer, began = Answer(), time.monotonic()
    timeout = httpx2.Timeout(BETWEEN_CHUNKS, connect=CONNECT)
    try:
        async with asyncio.timeout(within), client_of(url, timeout, socket) as client:
            async for data in _events(client, f"{url}/chat/completions", body):
                answer.raw.append(data)
                _take(answer, _object(data), time.monotonic() - began)
    except TimeoutError:
        answer.cut = True
    except (AttributeError, TypeError) as trouble:  # a chunk that is JSON, but not of the API's shape
        raise CompletionFailed("a chunk of the stream has another shape", answer.raw[-1][:400]) from trouble
    except httpx2.HTTPError as trouble:
        raise CompletionFailed(f"the request failed: {type(trouble).__name__}", str(trouble)) from trouble
    if not (answer.raw or answer.cut):
        raise CompletionFailed("the stream was empty")
    return answer


async def _events(client: httpx2.AsyncClient, url: str, body: dict[str, Any]) -> AsyncIterator[str]:
    """The data of each server-sent event, without the final [DONE]."""
    async with client.stream("POST", url, json=body) as response:
        if response.status_code != 200:
            seen = (await response.aread()).decode(errors="replace")
            raise CompletionFailed(f"HTTP {response.status_code}", seen[:400])
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data != "[DONE]":
                yield data


def _object(data: str) -> dict[str, Any]:
    try:
        chunk = json.loads(data)
    except ValueError as trouble:
        raise CompletionFailed("a chunk of the stream is no JSON", data[:400]) from trouble
    if not isinstance(chunk, dict) or "error" in chunk:
        raise CompletionFailed("the engine sent an error in the stream", data[:400])
    return chunk


def _take(answer: Answer, chunk: dict[str, Any], at: float) -> None:
    answer.model = chunk.get("model") or answer.model
    if usage := chunk.get("usage"):
        answer.completion_tokens = usage.get("completion_tokens", answer.completion_tokens)
    for choice in chunk.get("choices") or []:
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        _take_delta(answer, choice.get("delta") or {}, at)


def _take_delta(answer: Answer, delta: dict[str, Any], at: float) -> None:
    content = delta.get("content") or ""
    for name in ("reasoning", "reasoning_content"):
        if delta.get(name):
            answer.reasoning_field = answer.reasoning_field or name
    reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
    if content or reasoning:
        answer.content += content
        answer.reasoning += reasoning
        answer.chunks += 1
        answer.first_token_at = answer.first_token_at if answer.first_token_at is not None else at
        answer.last_token_at = at
