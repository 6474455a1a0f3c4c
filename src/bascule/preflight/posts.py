"""The helpers of a proof: one on each node, started together, asked by lines, ended with their context."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from bascule.core.nouns import Node
from bascule.errors import BasculeError, NodeUnreachable
from bascule.preflight import bundle
from bascule.remote.channel import Channel, open_channel

BEGIN_WITHIN = 20.0  # seconds until a helper says what it is


class Silent(Exception):
    """A helper did not answer; why."""


class Post:
    """One helper: `what` it runs in, or `why_not` when it could not be started or is gone."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.what = ""
        self.why_not = ""
        self._channel: Channel | None = None
        self._asked: dict[str, asyncio.Future[list[str]]] = {}

    async def ask(self, order: str, *words: str, within: float) -> list[str]:
        """An order and the words of its answer, without the tag. Raises Silent."""
        if self._channel is None:
            raise Silent(self.why_not)
        tag = str(len(self._asked))
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._asked[tag] = answer
        try:
            async with asyncio.timeout(within):
                await self._channel.write(f"{' '.join((order, tag, *words))}\n".encode())
                return await answer
        except TimeoutError:
            raise Silent(f"the helper on {self.node.name} did not answer within {within:g} s") from None
        except NodeUnreachable as lost:
            raise Silent(lost.seen or lost.says) from None

    async def begin(self, channel: Channel) -> None:
        """Hear what the node has, and send the script for it. Raises BasculeError, or TimeoutError."""
        async with asyncio.timeout(BEGIN_WITHIN):
            language, _, more = (await channel.line()).decode(errors="replace").strip().partition(" ")
            if language not in (bundle.PYTHON, bundle.PERL):
                self.why_not = f"neither python3 nor perl runs there: {more or channel.complaint}"
                return
            await channel.write(bundle.script(language))
        self.what, self._channel = f"{language} {more}", channel

    async def listen(self) -> None:
        """Hand out answers until the helper ends."""
        while self._channel and (line := await self._channel.line()):
            kind, tag, *words = line.decode(errors="replace").rstrip("\n").split(" ")
            answer = self._asked.get(tag)
            if answer and not answer.done():
                answer.set_result([kind, *words])
        if self._channel:
            self.lose((await self._channel.lost()).seen)

    def lose(self, why: str) -> None:
        """It is gone: everything that is asked gets no answer."""
        self._channel, self.why_not = None, why
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Silent(f"the helper on {self.node.name} is gone: {why}"))


@contextlib.asynccontextmanager
async def open_posts(nodes: Sequence[Node]) -> AsyncIterator[Mapping[str, Post]]:
    """A helper on each node, by its name; those that can't be started say why."""
    posts = {node.name: Post(node) for node in nodes}
    leave = asyncio.Event()
    ready = [asyncio.get_running_loop().create_future() for _ in nodes]
    pairs = zip(posts.values(), ready, strict=True)
    tasks = [asyncio.create_task(_keep(post, told, leave)) for post, told in pairs]
    try:
        await asyncio.wait(ready)
        yield posts
    finally:
        leave.set()
        for task, told in zip(tasks, ready, strict=True):
            if not told.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep(post: Post, ready: asyncio.Future[None], leave: asyncio.Event) -> None:
    """One helper from start to end, in a task of its own, so that all end at the same time."""
    try:
        async with open_channel(post.node, bundle.words()) as channel:
            await post.begin(channel)
            listener = asyncio.create_task(post.listen())
            ready.set_result(None)
            await leave.wait()
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
    except BasculeError as trouble:
        post.why_not = trouble.seen or trouble.says
    except TimeoutError:
        post.why_not = f"it began nothing within {BEGIN_WITHIN:g} s"
    finally:
        if not ready.done():
            ready.set_result(None)
