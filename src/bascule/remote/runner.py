"""The Runner: how a command reaches a node, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

AT_ONCE = 8  # commands at once on one node; sshd's MaxSessions is 10
TIMED_OUT = (124, 137)  # exit status of `timeout` when it ended the command, by TERM or by KILL


@dataclass(frozen=True, slots=True)
class Result:
    """What a command gave back."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        """True when the command itself said so."""
        return self.status == 0

    @property
    def timed_out(self) -> bool:
        """True when the command was ended because its time was over."""
        return self.status in TIMED_OUT

    @property
    def text(self) -> str:
        """Its standard output; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """The last line of its standard error, for messages."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else f"exit status {self.status}"


class Runner(Protocol):
    """A way to run short commands on one node."""

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """Run a command there and wait for it, at most `within` seconds.

        Raises NodeUnreachable when the node doesn't answer. A command that fails is a Result like any other.
        """
        ...
