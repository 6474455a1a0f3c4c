"""A Runner for calls that come every two seconds: one shell on the node stays open, and waits for the next call.

A command over ssh begins with the login shell of the user, whose start-up files may take more CPU than the command:
100 ms was seen where they set up pyenv. Nothing but looking depends on this shell, and it ends with the connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack

from bascule.core.nouns import Node
from bascule.remote import shell
from bascule.remote.channel import Channel, open_channel
from bascule.remote.runner import Result

LARGEST = 8 * 1024 * 1024  # bytes of an answer
# The shell reads the script byte by byte, so that it takes nothing of what follows; then it answers line by line.
_LOOP = """eval "$(dd bs=1 count=SIZE 2>/dev/null)"
while IFS= read -r call; do
  eval "set -- $call"; number=$1; shift
  ("$@") </dev/null; status=$?
  echo; echo "=== done $number $status"
done"""


class SteadyRunner:
    """Calls functions of one script, `sh -s -- FUNCTION WORD...` with the script as input, as any Runner would.

    The function `look` has a shell to itself: it never waits for a command that hangs in another one.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._lanes = (_Lane(node), _Lane(node))

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """See Runner.run. The time has to do for opening the connection as well, where there is none yet."""
        return await self._lanes["look" in argv].ask(argv, stdin, within)

    async def close(self) -> None:
        """End the shells."""
        for lane in self._lanes:
            await lane.close()


class _Lane:
    """One shell on the node, made when it is needed and after it was lost."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._open = AsyncExitStack()
        self._channel: Channel | None = None
        self._turn = asyncio.Lock()
        self._number = 0

    async def ask(self, argv: Sequence[str], script: str, within: float) -> Result:
        """One call; when its answer did not come whole, for whatever reason, the shell is given up."""
        async with self._turn:
            result = None
            try:
                async with asyncio.timeout(within):
                    result = await self._ask(argv, script)
            except TimeoutError:
                return Result(tuple(argv), 124, b"", f"no answer within {within:g} s".encode())
            finally:
                if result is None:
                    await self.close()
            return result

    async def close(self) -> None:
        """End the shell, if there is one."""
        self._channel = None
        await self._open.aclose()

    async def _ask(self, argv: Sequence[str], script: str) -> Result:
        if self._channel is None:
            words = ("sh", "-c", _LOOP.replace("SIZE", str(len(script.encode()))))
            self._channel = await self._open.enter_async_context(open_channel(self._node, words))
            await self._channel.write(script.encode())
        self._number += 1
        await self._channel.write(f"{self._number} {shell.line(argv[argv.index('--') + 1 :])}\n".encode())
        return await self._answer(argv, self._channel)

    async def _answer(self, argv: Sequence[str], channel: Channel) -> Result:
        out = b""
        end = re.compile(rb"\n=== done %d (\d{1,3})\n\Z" % self._number)
        while len(out) <= LARGEST:
            more = await channel.read()
            if not more:
                raise await channel.lost()
            out += more
            if found := end.search(out, max(0, len(out) - 50)):
                return Result(tuple(argv), int(found[1]), out[: found.start()], channel.said.encode())
        raise TimeoutError
