"""The shell that stays open: it answers call after call over a real sshd, and a hang or a loss costs one call."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Node
from bascule.errors import NodeUnreachable
from bascule.remote.local import LocalRunner
from bascule.watch.sampler import Sampler
from bascule.watch.steady import LARGEST, SteadyRunner

SCRIPT = """say() { printf '%s|' "$@"; printf 'é\\n'; }
look() { echo "looked $$"; }
fails() { echo why >&2; return 7; }
hangs() { sleep 60; }
eats() { cat; echo eaten; }
talks() { yes; }
forges() { printf '=== done 9 0\\nno newline'; }
[ $# = 0 ] || "$@"
"""


def calls(runner, *wanted, within=10.0):
    """The results of these calls, one behind the other; an error is given back as one."""

    async def ask():
        found = []
        for words in wanted:
            argv = ("sh", "-s", "--", *words)
            try:
                found.append(await runner.run(argv, stdin=SCRIPT, within=within))
            except NodeUnreachable as lost:
                found.append(lost)
        await runner.close()
        return found

    return asyncio.run(ask())


@pytest.mark.parametrize("over", ["here", "ssh"])
def test_words_arrive_as_they_are_and_answers_and_statuses_come_back(over, request):
    node = Node("a", "local") if over == "here" else request.getfixturevalue("sshd").node("a")
    said, failed, eaten, forged, again = calls(
        SteadyRunner(node),
        ("say", "a b", "$(id)", "'\"\\", "*", ""),
        ("fails",),
        ("eats",),
        ("forges",),
        ("say", "x"),
    )
    assert said.stdout == "a b|$(id)|'\"\\|*||é\n".encode()
    assert failed.status == 7
    assert eaten.stdout == b"eaten\n"  # its input is empty: it takes none of the calls that follow
    assert forged.stdout == b"=== done 9 0\nno newline"
    assert again.stdout == "x|é\n".encode()


def test_one_shell_answers_all_looks():
    first, second = calls(SteadyRunner(Node("a", "local")), ("look",), ("look",))
    assert first.stdout == second.stdout
    assert first.stdout.startswith(b"looked ")


def test_a_call_that_hangs_ends_in_time_and_the_next_one_has_a_new_shell():
    began = time.monotonic()
    hung, after = calls(SteadyRunner(Node("a", "local")), ("hangs",), ("say", "x"), within=0.5)
    assert hung.timed_out
    assert hung.complaint == "no answer within 0.5 s"
    assert after.stdout == "x|é\n".encode()
    assert time.monotonic() - began < 8


def test_a_look_does_not_wait_for_another_call_that_hangs():
    async def both():
        runner = SteadyRunner(Node("a", "local"))
        hanging = asyncio.ensure_future(runner.run(("sh", "-s", "--", "hangs"), stdin=SCRIPT, within=5))
        look = await runner.run(("sh", "-s", "--", "look"), stdin=SCRIPT, within=5)
        still = not hanging.done()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        await runner.close()
        return look, still

    look, still = asyncio.run(both())
    assert look.stdout.startswith(b"looked ")
    assert still


def test_an_answer_without_end_is_given_up():
    began = time.monotonic()
    (talk,) = calls(SteadyRunner(Node("a", "local")), ("talks",))
    assert talk.timed_out
    assert talk.stdout == b""
    assert time.monotonic() - began < 10
    assert LARGEST < 10 * 1024 * 1024


def test_a_lost_connection_is_told_and_the_next_call_makes_a_new_one(sshd):
    async def ask():
        runner = SteadyRunner(sshd.node("a"))
        argv = ("sh", "-s", "--", "look")
        first = await runner.run(argv, stdin=SCRIPT, within=10)
        sshd.stop()
        with pytest.raises(NodeUnreachable, match=r"ended early|does not answer|began nothing"):
            await runner.run(argv, stdin=SCRIPT, within=10)
        sshd.start()
        second = await runner.run(argv, stdin=SCRIPT, within=10)
        await runner.close()
        return first, second

    first, second = asyncio.run(ask())
    assert first.stdout != second.stdout


def test_the_sampler_sees_the_same_over_it_as_with_a_command_each(ranks, sshd):
    ranks.start("exec sleep 300")
    remote = replace(sshd.node("a"), facts=NodeFacts(run_dir=str(ranks.folder), gpus=()))

    async def look(runner, node):
        sampler = Sampler(runner, node, ranks.watched)
        await sampler.look()
        await sampler.settle()
        (sample,) = await sampler.look()
        await sampler.close()
        return sample

    async def both():
        steady = SteadyRunner(remote)
        try:
            return await look(steady, remote), await look(LocalRunner(ranks.node), ranks.node)
        finally:
            await steady.close()

    one, other = asyncio.run(both())
    assert one.values == other.values
    assert one.values["processes"] == 2


def test_nothing_of_it_is_left_when_it_is_closed():
    async def ask():
        runner = SteadyRunner(Node("a", "local"))
        result = await runner.run(("sh", "-s", "--", "look"), stdin=SCRIPT, within=10)
        pid = int(result.text.split()[1])
        alive = Path(f"/proc/{pid}").exists()
        await runner.close()
        return alive, Path(f"/proc/{pid}").exists()

    assert asyncio.run(ask()) == (True, False)
