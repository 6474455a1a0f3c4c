"""A node that takes part in a copy: its helper, the questions to it and what it tells by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from bascule.core.nouns import Node
from bascule.distribute.weights import bundle
from bascule.distribute.weights.findings import Complaint
from bascule.distribute.weights.plan import Link
from bascule.errors import BasculeError, NodeUnreachable
from bascule.remote.channel import Channel, open_channel

PING_EVERY = 5.0  # seconds
SILENCE = 20.0  # seconds without a word after which a node counts as lost; a helper speaks three times a second

Event = dict[str, Any]


class Refused(Exception):
    """A node can't do what was asked; the copy to it ends with the complaint, or goes another way."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(complaint.says)
        self.complaint = complaint


class Station:
    """One helper. `on_event` hears what it tells by itself; the last event is `gone`."""

    def __init__(self, node: Node, path: str, channel: Channel) -> None:
        self.node, self.path = node, path
        self.links: tuple[Link, ...] = ()
        self.cores = 1
        self.gone = False
        self.on_event: Callable[[Event], None] = lambda event: None
        self._channel = channel
        self._asked: dict[int, asyncio.Future[Event]] = {}
        self._heard = time.monotonic()
        self._why = ""
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def ask(self, what: str, **data: Any) -> Event:
        """A question and its answer. Raises Refused."""
        if self.gone:
            raise Refused(self.complain(*_meaning(self._why), self._why))
        number = len(self._asked)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        await self._write({"ask": what, "number": number, **data})
        reply: Event = await answer
        if trouble := reply.get("trouble"):
            raise Refused(self.complain(**trouble))
        return reply

    def complain(self, kind: str, says: str, seen: str = "") -> Complaint:
        """Something that this node said, or that was seen of it."""
        return Complaint(kind, says, seen or says, self.node.name, self.path, datetime.now(UTC))

    async def begin(self) -> None:
        """Start the helper and hear where it is. Raises Refused."""
        try:
            await self._channel.write(bundle.modules())
        except NodeUnreachable as lost:
            self._lose(lost.seen)
        listener = asyncio.create_task(self._listen())
        pinger = asyncio.create_task(self._ping())
        self._tasks = (listener, pinger)
        hello = await self.ask("hello")
        self.cores = hello["cores"]
        self.links = tuple(Link(**row) for row in hello["addresses"])

    async def leave(self) -> None:
        """End its helper now."""
        self._lose("it was told to leave")
        await self._channel.end()

    async def end(self) -> None:
        """Stop listening; the helper ends when its channel does."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, message: Event) -> None:
        try:
            await self._channel.write(json.dumps(message).encode() + b"\n")
        except NodeUnreachable as lost:
            self._lose(lost.seen)

    async def _listen(self) -> None:
        while line := await self._channel.line():
            self._heard = time.monotonic()
            message = json.loads(line)
            if "answer" in message:
                self._asked[message["answer"]].set_result(message)
            else:
                self.on_event(message)
        self._lose((await self._channel.lost()).seen)

    async def _ping(self) -> None:
        while time.monotonic() - self._heard < SILENCE:
            await asyncio.sleep(PING_EVERY)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._write({"ask": "ping"}), PING_EVERY)
        self._lose(f"no word for {SILENCE:g} s")

    def _lose(self, seen: str) -> None:
        if self.gone:
            return
        self.gone, self._why = True, seen
        kind, says = _meaning(seen)
        trouble = {"trouble": {"kind": kind, "says": says, "seen": seen}}
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(trouble)
        self.on_event({"event": "gone", **trouble["trouble"]})


@contextlib.asynccontextmanager
async def open_station(node: Node, path: str) -> AsyncIterator[Station]:
    """A helper on the node for as long as the context lasts. Raises Refused."""
    try:
        async with open_channel(node, bundle.words()) as channel:
            station = Station(node, path, channel)
            try:
                await station.begin()
                yield station
            finally:
                await station.end()
    except BasculeError as lost:
        seen = lost.seen or lost.says
        complaint = Complaint("unreachable", lost.says, seen, node.name, path, datetime.now(UTC))
        raise Refused(complaint) from lost


def _meaning(seen: str) -> tuple[str, str]:
    if bundle.NO_PYTHON in seen:
        return "no-python", "there is no python3 on it"
    if bundle.OLD_PYTHON in seen:
        return "no-python", f"its python3 is {seen.rsplit(maxsplit=1)[-1]}, and 3.9 is needed"
    return "cut", "the connection to it was lost"
