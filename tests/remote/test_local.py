"""Commands on this very machine: status, both outputs, time, and no child left when bascule is interrupted."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bascule.core.nouns import Node
from bascule.errors import NodeTrouble
from bascule.remote.local import LocalRunner, execute
from bascule.remote.runner import AT_ONCE, Result


def run(*argv: str, **more: Any) -> Result:
    return asyncio.run(LocalRunner(Node("here", "local")).run(argv, **more))


async def until(holds: Callable[[], bool], within: float = 5) -> None:
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it didn't happen"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_comes_back_with_its_status_and_both_outputs() -> None:
    result = run("sh", "-c", "echo out; echo why >&2; exit 3")
    assert result == Result(("sh", "-c", "echo out; echo why >&2; exit 3"), 3, b"out\n", b"why\n")
    assert (result.ok, result.timed_out, result.text, result.complaint) == (False, False, "out\n", "why")
    assert run("true").ok


def test_a_command_that_says_nothing_complains_by_its_status() -> None:
    assert run("sh", "-c", "exit 4").complaint == "exit status 4"


def test_standard_input_arrives_whole() -> None:
    text = "ü$`'\n" * 50_000
    assert run("cat", stdin=text).text == text
    assert run("true", stdin=text).ok, "a command that doesn't read is no trouble"


def test_bytes_that_are_no_text_come_back_as_they_are() -> None:
    result = run("printf", "\\377\\000\\n")
    assert (result.stdout, result.text) == (b"\xff\x00\n", "\ufffd\x00\n")


def test_a_command_over_its_time_is_ended() -> None:
    result = run("sleep", "60", within=0.2)
    assert (result.timed_out, result.status) == (True, 124)
    assert Result((), 137, b"", b"").timed_out, "by KILL, when TERM wasn't enough"
    assert not run("sh", "-c", "exit 1").timed_out


def test_a_command_that_is_not_there_is_a_result_like_any_other() -> None:
    result = run("no-such-command")
    assert result.status == 127
    assert "no-such-command" in result.complaint


def test_a_machine_without_our_own_tools_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NodeTrouble, match="timeout is not installed here"):
        run("true")


def test_an_interrupt_kills_the_command_and_what_it_started(tmp_path: Path) -> None:
    async def interrupted() -> list[int]:
        pids = tmp_path / "pids"
        script = f"sleep 60 & echo $! >{pids}.new; echo $$ >>{pids}.new; mv {pids}.new {pids}; wait"
        task = asyncio.create_task(LocalRunner(Node("here", "local")).run(("sh", "-c", script)))
        await until(pids.exists)
        started = [int(pid) for pid in pids.read_text().split()]
        assert all(map(is_alive, started))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await task
        await until(lambda: not any(map(is_alive, started)), within=1)
        return started

    assert len(asyncio.run(interrupted())) == 2


def test_an_interrupt_while_the_command_is_made_kills_what_it_starts() -> None:
    """The process is there before asyncio has a word for it: whatever the moment, nothing is left."""

    seconds = str(10**6 + os.getpid())

    async def interrupted(turns: int) -> None:
        task = asyncio.create_task(execute(("sh", "-c", f"sleep {seconds} & wait"), ""))
        for _ in range(turns):
            await asyncio.sleep(0)
        time.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(20):
                await task

    for turns in range(1, 8):
        asyncio.run(interrupted(turns))
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if seconds.encode() in _bytes_of(path)]
    assert left == []


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_an_interrupt_that_comes_after_the_end_is_no_trouble() -> None:
    async def late() -> tuple[int, bytes, bytes]:
        task = asyncio.create_task(execute(("true",), ""))
        await asyncio.wait([task])
        task.cancel()
        return await task

    assert asyncio.run(late()) == (0, b"", b"")


def test_at_most_eight_commands_run_at_once(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/$1; ls {tmp_path} | wc -l; sleep 0.1; rmdir {tmp_path}/$1"

    async def many() -> list[Result]:
        runner = LocalRunner(Node("here", "local"))
        return await asyncio.gather(*(runner.run(("sh", "-c", script, "sh", str(at))) for at in range(20)))

    seen = [int(result.text) for result in asyncio.run(many())]
    assert 1 < max(seen) <= AT_ONCE
    assert not any(tmp_path.iterdir())
