"""Runners that only tell what would be run, or play back what was recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bascule.core.nouns import Node
from bascule.remote import shell
from bascule.remote.runner import Result, Runner
from bascule.remote.ssh import ssh_words


class TellingRunner:
    """The dry run: hands each command to a teller as text that a person can paste, and runs nothing."""

    def __init__(self, node: Node, tell: Callable[[str], None]) -> None:
        self.node = node
        self._tell = tell

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """Tell it; the command is taken to succeed and to print nothing."""
        self._tell(pasteable(self.node, argv, stdin))
        return Result(tuple(argv), 0, b"", b"")


def pasteable(node: Node, argv: Sequence[str], stdin: str) -> str:
    """The command as one would type it on the controller."""
    words = shell.line(argv)
    if not node.is_local:
        destination = ssh_words(node.host)
        words = shell.line(("ssh", *_after_options(destination), words))
    if not stdin:
        return words
    return words + shell.here_document("", stdin).removeprefix("cat > ''")


def _after_options(words: Sequence[str]) -> tuple[str, ...]:
    port = words.index("-p") if "-p" in words else None
    return (*(words[port : port + 2] if port is not None else ()), words[-1])


@dataclass
class RecordingRunner:
    """Passes everything on to another Runner and keeps what came back."""

    inner: Runner
    kept: list[dict[str, str | int]] = field(default_factory=list)

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """See Runner.run."""
        result = await self.inner.run(argv, stdin=stdin, within=within)
        self.kept.append(
            {
                "argv": shell.line(argv),
                "stdin": stdin,
                "status": result.status,
                "stdout": result.text,
                "stderr": result.stderr.decode(errors="replace"),
            }
        )
        return result

    def save(self, path: Path) -> None:
        """Write what was kept as JSON lines."""
        path.write_text("".join(json.dumps(entry) + "\n" for entry in self.kept))


class ReplayingRunner:
    """Answers from a recording, by command and standard input, in the order they were recorded."""

    def __init__(self, path: Path) -> None:
        self._left = [json.loads(text) for text in path.read_text().splitlines()]

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        """Give back the recorded result; LookupError when nothing like it was recorded."""
        asked = (shell.line(argv), stdin)
        for entry in self._left:
            if (entry["argv"], entry["stdin"]) == asked:
                self._left.remove(entry)
                return Result(tuple(argv), entry["status"], entry["stdout"].encode(), entry["stderr"].encode())
        raise LookupError(f"not on the tape: {asked[0]}")
