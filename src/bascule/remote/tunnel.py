"""The way to a port that only a node can reach: a Unix socket here, forwarded by ssh for as long as it is needed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

from bascule import settings
from bascule.core.nouns import Node
from bascule.errors import NodeUnreachable
from bascule.remote import shell
from bascule.remote.ssh import CONNECT_TIMEOUT, ssh_words

PATIENCE = 30.0  # seconds


@asynccontextmanager
async def tunnel(node: Node, address: str, port: int) -> AsyncIterator[str | None]:
    """The path of a socket that leads to address:port as the node sees it; None for a node that is this machine.

    Raises NodeUnreachable when sshd there refuses to forward.
    """
    if node.is_local:
        yield None
        return
    with tempfile.TemporaryDirectory(dir=settings.control_dir()) as folder:
        socket = f"{folder}/s"
        child = await _open(node, socket, f"{socket}:{address}:{port}")
        try:
            yield socket
        finally:
            await _end(child)


async def _open(node: Node, socket: str, what: str) -> asyncio.subprocess.Process:
    """Open the forward; a node that is out of reach for a moment is tried again for PATIENCE seconds."""
    until = time.monotonic() + PATIENCE
    while True:
        child = await _forward(node, what)
        try:
            await _wait_for(child, Path(socket), node)
        except NodeUnreachable:
            await _end(child)
            if time.monotonic() > until:
                raise
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await _end(child)
            raise
        else:
            return child


async def _end(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    await child.wait()


async def _forward(node: Node, what: str) -> asyncio.subprocess.Process:
    *words, dashes, destination = ssh_words(node.host)
    options = ("-N", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes", "-L", what)
    return await asyncio.create_subprocess_exec(
        *_without_sharing(words),
        *options,
        dashes,
        destination,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )


def _without_sharing(words: list[str]) -> list[str]:
    """A forward of its own: one in the shared connection would outlive the command that asked for it."""
    pairs = list(pairwise(words))
    shared = {at for at, (one, other) in enumerate(pairs) if one == "-o" and other.startswith("Control")}
    return [word for at, word in enumerate(words) if at not in shared and at - 1 not in shared]


async def _wait_for(child: asyncio.subprocess.Process, socket: Path, node: Node) -> None:
    until = time.monotonic() + CONNECT_TIMEOUT + 5
    while not socket.exists():
        if child.returncode is not None or time.monotonic() > until:
            seen = (await child.stderr.read()).decode(errors="replace") if child.stderr and child.returncode else ""
            raise NodeUnreachable(
                "no-tunnel",
                f"{node.name} forwards no connection over ssh",
                seen=(seen.strip().splitlines() or ["no answer"])[-1],
                advice=f"`{shell.line(ssh_words(node.host))}` must be allowed to forward (AllowTcpForwarding)",
            )
        await asyncio.sleep(0.05)
