"""A way from one node's helper to another's through the controller's ssh, for nodes that can't reach each other."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from bascule.core.nouns import Node
from bascule.errors import NodeUnreachable
from bascule.remote.channel import Channel, child
from bascule.remote.ssh import ssh_words

READY_WITHIN = 20.0  # seconds
_ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward")
# A connection of its own for each leg: a shared one is one core and one window for everything.
_ALONE = ("-N", "-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes")


@contextlib.asynccontextmanager
async def tunnel(source: Node, address: str, port: int, target: Node) -> AsyncIterator[int]:
    """A port on the target's 127.0.0.1 that leads to address:port as the source sees it. Raises NodeUnreachable."""
    end = f"{address}:{port}"
    async with contextlib.AsyncExitStack() as stack:
        if target.is_local:
            near = _free_port()
            await stack.enter_async_context(_leg(source, ("-L", f"127.0.0.1:{near}:{end}")))
            await _until(lambda: _answers(near))
            yield near
            return
        if not source.is_local:
            socket_path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bascule-"))) / "s"
            await stack.enter_async_context(_leg(source, ("-L", f"{socket_path}:{end}")))
            await _until(socket_path.exists)
            end = str(socket_path)
        yield await _allocated(await stack.enter_async_context(_leg(target, ("-R", f"127.0.0.1:0:{end}"))))


@contextlib.asynccontextmanager
async def _leg(node: Node, forward: tuple[str, str]) -> AsyncIterator[Channel]:
    words = ssh_words(node.host)
    async with child(node, (words[0], *_ALONE, *forward, *words[1:]), patience=0) as channel:
        yield channel


async def _until(there: Callable[[], bool]) -> None:
    """Wait for the near end of a leg. Raises TimeoutError."""
    async with asyncio.timeout(READY_WITHIN):
        while not there():
            await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


async def _allocated(far: Channel) -> int:
    """The port that the target's sshd chose; ssh says it on standard error."""
    for _ in range(int(READY_WITHIN / 0.1)):
        if found := _ALLOCATED.search(far.said):
            return int(found[1])
        if far.ended:
            break
        await asyncio.sleep(0.1)
    raise NodeUnreachable(
        "no-forwarding", f"sshd on {far.node.name} gives no forward", seen=far.complaint or "nothing was said"
    )
