"""The Runner for a node that is this very machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from bascule.core.nouns import Node
from bascule.errors import NodeTrouble
from bascule.remote import shell
from bascule.remote.runner import AT_ONCE, Result


class LocalRunner:
    """Runs commands as children of this process, each in a process group of its own."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """See Runner.run."""
        async with self._gate:
            status, out, err = await execute(shell.bounded(argv, within), stdin)
        return Result(tuple(argv), status, out, err)


async def execute(argv: Sequence[str], stdin: str) -> tuple[int, bytes, bytes]:
    """Run a child to its end; when the caller is cancelled, the child's process group is killed first."""
    making = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        child = await asyncio.shield(making)  # asyncio itself would kill the first process alone
        out, err = await child.communicate(stdin.encode())
    except FileNotFoundError as missing:
        raise NodeTrouble(
            "command-missing", f"{argv[0]} is not installed here", advice=f"install {argv[0]}"
        ) from missing
    except asyncio.CancelledError:
        with contextlib.suppress(FileNotFoundError):
            await _kill(await making)
        raise
    return child.returncode or 0, out, err


async def _kill(child: asyncio.subprocess.Process) -> None:
    """Its whole group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
