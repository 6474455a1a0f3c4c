"""A long-running process on a node with pipes to and from it: the door for what streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence

from bascule.core.nouns import Node
from bascule.errors import NodeTrouble, NodeUnreachable
from bascule.remote import shell
from bascule.remote.ssh import ssh_words

LONGEST_LINE = 64 * 1024 * 1024  # bytes
BEGIN_WITHIN = 30.0  # seconds from the start of ssh to that of the process
PATIENCE = 3.0  # seconds that a process has to end once its input is closed
PIPES_WITHIN = 1.0  # seconds that the pipes of a process that ended may stay open
_COMPLAINTS = 4000  # bytes of standard error that are kept


class Channel:
    """The process: write to it, read from it; it ends with its context."""

    def __init__(self, node: Node, process: asyncio.subprocess.Process) -> None:
        self.node = node
        self._process = process
        self._complaints = b""
        self._listener = asyncio.create_task(self._listen())

    async def write(self, data: bytes) -> None:
        """Send it, and wait while the pipe is full. Raises NodeUnreachable when nobody reads any more."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(data)
            await stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self.lost() from None

    def end_input(self) -> None:
        """Close its standard input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def line(self) -> bytes:
        """The next line; empty at the end."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def read(self, size: int = 1 << 20) -> bytes:
        """Up to so many bytes; empty at the end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(size)

    async def status(self) -> int:
        """Its exit status, once it ended; ssh has 255 for a lost connection."""
        return await self._process.wait()

    @property
    def ended(self) -> bool:
        """True once it is gone."""
        return self._process.returncode is not None

    @property
    def said(self) -> str:
        """All that is kept of its standard error."""
        return self._complaints.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """What it said last on standard error."""
        lines = self.said.strip().splitlines()
        return lines[-1].strip() if lines else ""

    async def lost(self) -> NodeUnreachable:
        """The error that says that it is gone, with its last words."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listener), 1)
        says = f"the connection to {self.node.name} ended early"
        return NodeUnreachable("node-unreachable", says, seen=self.complaint or f"exit {self._process.returncode}")

    async def end(self, patience: float = PATIENCE) -> None:
        """Close its input and, when that is not enough after `patience` seconds, end its process group."""
        self.end_input()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), patience if number is None else PATIENCE)
                break
        with contextlib.suppress(TimeoutError):  # its pipes end with it, unless somebody else holds them
            async with asyncio.timeout(PIPES_WITHIN):
                await asyncio.gather(self._listener, self._rest())

    async def _rest(self) -> None:
        """Read what nobody wants any more: a full pipe that nobody reads is never closed."""
        assert self._process.stdout is not None
        with contextlib.suppress(RuntimeError):  # somebody still reads it
            while await self._process.stdout.read(1 << 20):
                pass

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while said := await self._process.stderr.read(4096):
            self._complaints = (self._complaints + said)[-_COMPLAINTS:]


@contextlib.asynccontextmanager
async def open_channel(node: Node, argv: Sequence[str]) -> AsyncIterator[Channel]:
    """A command on the node for as long as the context lasts; what its login shell prints first is skipped.

    Raises NodeUnreachable when the node doesn't answer.
    """
    script = f"echo {shell.BEGIN_MARKER}; exec {shell.line(argv)}"
    async with child(node, _words(node, script)) as channel:
        await _begun(channel)
        yield channel


@contextlib.asynccontextmanager
async def child(node: Node, words: Sequence[str], *, patience: float = PATIENCE) -> AsyncIterator[Channel]:
    """A process here that has to do with the node, such as a forward of ssh; it ends with the context.

    patience is for those that end by themselves once their input is closed.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, limit=LONGEST_LINE
        )
    except FileNotFoundError as missing:
        raise NodeTrouble(
            "command-missing", f"{words[0]} is not installed here", advice=f"install {words[0]}"
        ) from missing
    channel = Channel(node, process)
    try:
        yield channel
    finally:
        await asyncio.shield(channel.end(patience))


async def _begun(channel: Channel) -> None:
    """Read up to the begin marker."""
    try:
        async with asyncio.timeout(BEGIN_WITHIN):
            while (line := await channel.line()) != f"{shell.BEGIN_MARKER}\n".encode():
                if not line:
                    raise await channel.lost()
    except TimeoutError:
        says = f"{channel.node.name} began nothing within {BEGIN_WITHIN:g} s"
        raise NodeUnreachable("node-unreachable", says, seen=channel.complaint or says) from None


def _words(node: Node, script: str) -> tuple[str, ...]:
    words = ("sh", "-c", script)
    return words if node.is_local else (*ssh_words(node.host), shell.line(words))
