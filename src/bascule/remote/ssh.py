"""The Runner over OpenSSH: the user's own ssh and its configuration, one shared connection per node."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from bascule import settings
from bascule.core.nouns import Node
from bascule.errors import NodeUnreachable
from bascule.remote import shell
from bascule.remote.local import execute
from bascule.remote.runner import AT_ONCE, Result

CONNECT_TIMEOUT = 10  # seconds
_WITH_PORT = re.compile(r"(?P<destination>.+):(?P<port>\d+)\Z")


class SshRunner:
    """Runs commands through `ssh`, and tells a command's own failure from a lost connection."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._first = asyncio.Lock()
        self._connected = False

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """See Runner.run."""
        async with self._gate:
            async with self._first:  # one process makes the shared connection, the others wait for it
                if not self._connected:
                    result = await self._run(argv, stdin, within)
                    self._connected = True
                    return result
            return await self._run(argv, stdin, within)

    async def _run(self, argv: Sequence[str], stdin: str, within: float) -> Result:
        command = (*ssh_words(self.node.host), shell.with_markers(shell.bounded(argv, within)))
        try:
            async with asyncio.timeout(within + CONNECT_TIMEOUT + 5):
                _, out, err = await execute(command, stdin)
        except TimeoutError:
            raise self._unreachable(f"no answer within {within + CONNECT_TIMEOUT + 5:g} s") from None
        err, status = shell.split_end_marker(err)
        if status is None:
            raise self._unreachable(err.decode(errors="replace").strip() or "the connection ended early")
        return Result(tuple(argv), status, shell.behind_begin_marker(out), err)

    def _unreachable(self, seen: str) -> NodeUnreachable:
        self._connected = False
        return NodeUnreachable(
            "node-unreachable",
            f"{self.node.name} does not answer over ssh",
            seen=seen.splitlines()[-1],
            advice=f"`{shell.line(ssh_words(self.node.host))} true` must work without a question",
        )


def ssh_words(host: str) -> tuple[str, ...]:
    """The words of an ssh command up to and with the destination; `user@host:port` is understood."""
    found = _WITH_PORT.match(host)
    port = ("-p", found["port"]) if found else ()
    destination = found["destination"] if found else host
    return (*settings.ssh_command(), *_options(), *port, "--", destination)


def _options() -> tuple[str, ...]:
    wanted = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT),
        "ControlMaster": "auto",
        "ControlPath": f"{settings.control_dir()}/%C",
        "ControlPersist": "60",
        "ServerAliveInterval": "15",
    }
    return tuple(word for name, value in wanted.items() for word in ("-o", f"{name}={value}"))
