"""What a service tells when it is asked: its counters, and whether it still gives a token."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import httpx2

from bascule.core.nouns import Endpoint, Node
from bascule.engines.chat import CompletionFailed, ask, client_of
from bascule.errors import BasculeError
from bascule.remote.tunnel import tunnel
from bascule.watch.load import Load, parse_metrics

METRICS_WITHIN = 5.0  # seconds
LARGEST = 4 * 2**20  # characters of /metrics
QUESTION = "1"
# Of a forward by ssh: it is gone, or sshd opens no connection, because it may not or because nobody listens there.
_WAY_IS_SHUT = ("ConnectError", "ReadError", "without sending a response")
API_PORT = {"http": 80, "https": 443}


class Asker:
    """Asks the head of a service, through ssh where its address can't be reached from here."""

    def __init__(self, endpoint: Endpoint, head: Node, engine: str) -> None:
        self._endpoint, self._head, self._engine = endpoint, head, engine
        self._open: AsyncExitStack | None = None
        self._socket: str | None = None
        self._turn = asyncio.Lock()

    async def load(self) -> Load:
        """The engine's own counters; one of which it says nothing is None."""
        base = self._endpoint.url.removesuffix("/v1")
        now = time.monotonic()
        try:
            await self._find_way()
            async with client_of(base, httpx2.Timeout(METRICS_WITHIN), self._socket) as client:
                answer = await client.get(f"{base}/metrics")
        except httpx2.ConnectError:
            await self.close()
            return Load(now)
        except (BasculeError, httpx2.HTTPError):
            return Load(now)
        return parse_metrics(answer.text[:LARGEST], self._engine, now) if answer.status_code == 200 else Load(now)

    async def ask(self) -> tuple[str, str]:
        """Ask for one token: why it failed, or why it could not be asked; two empty texts are an answer."""
        one = self._endpoint
        try:
            await self._find_way()
            await ask(one.url, one.model, QUESTION, max_tokens=1, socket=self._socket)
        except CompletionFailed as failed:
            told = f"{failed.says} {failed.seen}".strip()
            if self._socket and any(sign in told for sign in _WAY_IS_SHUT):
                await self.close()
                return "", told
            return ("", told) if failed.says.startswith("HTTP 4") else (told, "")
        except BasculeError as trouble:
            return "", f"{trouble.says}: {trouble.seen}"
        return "", ""

    async def close(self) -> None:
        """Close the way there; it is made anew when it is needed."""
        async with self._turn:
            if self._open:
                await self._open.aclose()
            self._open = self._socket = None

    async def _find_way(self) -> None:
        async with self._turn:
            if self._open is None:
                place = urlsplit(self._endpoint.url)
                port = place.port or API_PORT[place.scheme]
                stack = AsyncExitStack()
                self._socket = await stack.enter_async_context(tunnel(self._head, place.hostname or "", port))
                self._open = stack
