"""One helper on one node: it is started over a channel, asked, and ends with its context."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from bascule.core.nouns import Node
from bascule.distribute.images import bundle
from bascule.errors import NodeUnreachable
from bascule.remote.channel import Channel, open_channel

PING_EVERY = 5.0  # seconds
SILENCE = 30.0  # seconds without a word after which a helper counts as lost; it answers each ping
REFUSALS = (0.3, 1.0, 2.0, 4.0)  # seconds before another try when sshd sends us away at once, as with MaxStartups
_SENT_AWAY = ("kex_exchange_identification", "connection reset", "connection closed", "not allowed at this time")

Progress = Callable[[dict[str, Any]], None]


class HelperTrouble(Exception):
    """What a helper named: a code and what it saw."""

    def __init__(self, code: str, seen: str) -> None:
        super().__init__(f"{code}: {seen}")
        self.code = code
        self.seen = seen


class Session:
    """The controller's end of a helper."""

    def __init__(self, node: Node, channel: Channel) -> None:
        self.node = node
        self.codecs: tuple[str, ...] = ()
        self.cores = 1
        self.on_progress: Progress = lambda _: None
        self._channel = channel
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._lost: NodeUnreachable | None = None
        self._heard = time.monotonic()

    async def ask(self, do: str, **what: Any) -> Any:
        """A request and its answer. Raises HelperTrouble, or NodeUnreachable once the helper is lost."""
        if self._lost:
            raise self._lost
        number = len(self._asked)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        await self._channel.write(json.dumps({"do": do, "number": number, **what}).encode() + b"\n")
        return await answer

    async def begin(self) -> None:
        """Send the helper and wait for its first word."""
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE):
                await self._channel.write(bundle.script())
                line = await self._channel.line()
        if not line:
            raise await self._channel.lost()
        ready = json.loads(line)
        self.codecs, self.cores = tuple(ready["codecs"]), ready["cores"]

    async def listen(self) -> None:
        """Hand out answers and progress until the helper ends; then every question is answered with the loss."""
        while line := await self._channel.line():
            self._heard = time.monotonic()
            self._take(json.loads(line))
        self.lose(await self._channel.lost())

    async def watch(self) -> None:
        """Ping it; silence is a loss, since a cut cable says nothing."""
        while time.monotonic() - self._heard < SILENCE:
            await asyncio.sleep(PING_EVERY)
            with contextlib.suppress(NodeUnreachable):
                async with asyncio.timeout(PING_EVERY):
                    await self._channel.write(b'{"do": "ping"}\n')
        says = f"{self.node.name} has said nothing for {SILENCE:g} s"
        self.lose(NodeUnreachable("node-unreachable", says, seen=says))

    def lose(self, lost: NodeUnreachable) -> None:
        """Answer everything that is still asked with this error."""
        self._lost = lost
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(lost)

    def _take(self, said: dict[str, Any]) -> None:
        if "progress" in said:
            self.on_progress(said["progress"])
        elif "number" in said:
            answer = self._asked[said["number"]]
            if answer.done():
                return
            if "code" in said:
                answer.set_exception(HelperTrouble(said["code"], said["seen"]))
            else:
                answer.set_result(said["answer"])


@contextlib.asynccontextmanager
async def open_session(node: Node, root: str) -> AsyncIterator[Session]:
    """A helper on the node. Raises NodeUnreachable."""
    async with contextlib.AsyncExitStack() as stack:
        session = Session(node, await _open(stack, node, root))
        await session.begin()
        tasks = [asyncio.create_task(each) for each in (session.listen(), session.watch())]
        try:
            yield session
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _open(stack: contextlib.AsyncExitStack, node: Node, root: str) -> Channel:
    for wait in REFUSALS:
        try:
            return await stack.enter_async_context(open_channel(node, bundle.words(root)))
        except NodeUnreachable as lost:
            if not sent_away(lost):
                raise
        await asyncio.sleep(wait)
    return await stack.enter_async_context(open_channel(node, bundle.words(root)))


def sent_away(lost: NodeUnreachable) -> bool:
    """True when sshd answered and would not have us just now."""
    return any(words in lost.seen.lower() for words in _SENT_AWAY)
