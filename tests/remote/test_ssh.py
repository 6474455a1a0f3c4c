"""Over a real OpenSSH server: a command's own failure is told from a lost node, whatever happens on the way."""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bascule.core.nouns import Node
from bascule.errors import NodeUnreachable
from bascule.remote.connect import connect
from bascule.remote.facts import read_facts
from bascule.remote.runner import AT_ONCE, Result
from bascule.remote.ssh import SshRunner, ssh_words

T = TypeVar("T")


def run(node: Node, *argv: str, **more: Any) -> Result:
    return asyncio.run(SshRunner(node).run(argv, **more))


def lost(node: Node, *argv: str) -> NodeUnreachable:
    with pytest.raises(NodeUnreachable) as caught:
        run(node, *(argv or ("true",)))
    assert (caught.value.code, caught.value.exit_status) == ("node-unreachable", 3)
    assert caught.value.says == "b does not answer over ssh"
    return caught.value


def test_a_command_comes_back_with_its_status_and_both_outputs(sshd: Any) -> None:
    result = run(sshd.node(), "sh", "-c", "echo out; echo why >&2; exit 3")
    assert (result.status, result.stdout, result.stderr) == (3, b"out\n", b"why\n")


def test_words_arrive_as_they_were_sent(sshd: Any) -> None:
    words = ["a b", "$HOME", "it's", 'say "x"', "*", "", "ü", "new\nline", "\\n", "; exit 9"]
    assert run(sshd.node(), "printf", "%s\\0", *words).text.split("\0")[:-1] == words


@pytest.mark.parametrize("status", [0, 1, 254, 255])
def test_a_command_of_its_own_255_is_no_lost_node(sshd: Any, status: int) -> None:
    assert run(sshd.node(), "sh", "-c", f"exit {status}").status == status


def test_a_command_that_is_not_there_is_no_lost_node(sshd: Any) -> None:
    result = run(sshd.node(), "no-such-command")
    assert result.status == 127
    assert "no-such-command" in result.complaint


def test_standard_input_and_binary_output_come_through_whole(sshd: Any) -> None:
    text = "ü$`'\n" * 20_000
    assert run(sshd.node(), "cat", stdin=text).text == text
    assert run(sshd.node(), "printf", "\\000\\377\\r\\n").stdout == b"\x00\xff\r\n"


def test_the_node_ends_a_command_that_is_over_its_time(sshd: Any) -> None:
    result = run(sshd.node(), "sh", "-c", "echo begun; sleep 60", within=0.3)
    assert (result.timed_out, result.text) == (True, "begun\n")


def test_a_port_where_nobody_listens(sshd: Any) -> None:
    sshd.stop()
    error = lost(sshd.node())
    assert error.seen == f"ssh: connect to host 127.0.0.1 port {sshd.port}: Connection refused"
    assert f"{sshd.alias} true` must work without a question" in error.advice
    assert "-F" in error.advice, "it can be pasted"


def test_a_host_key_that_nobody_knows(sshd: Any) -> None:
    (sshd.folder / "known_hosts").write_text("")
    assert lost(sshd.node()).seen == "Host key verification failed."


def test_a_key_that_may_not_enter(sshd: Any) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    assert lost(sshd.node()).seen.startswith(f"{getpass.getuser()}@127.0.0.1: Permission denied (publickey")


def test_a_name_that_does_not_resolve(sshd: Any) -> None:
    assert "host.invalid" in lost(sshd.node(host="host.invalid")).seen


def test_a_host_that_looks_like_an_option_is_no_option(sshd: Any) -> None:
    assert "invalid characters" in lost(sshd.node(host=f"-oProxyCommand=touch {sshd.folder}/touched")).seen
    assert not (sshd.folder / "touched").exists()
    assert ssh_words("-x")[-2:] == ("--", "-x")


def test_a_node_that_is_lost_in_the_middle_of_a_command(sshd: Any, tmp_path: Path) -> None:
    async def cut() -> None:
        task = asyncio.create_task(SshRunner(sshd.node()).run(("sh", "-c", f"touch {tmp_path}/begun; sleep 5")))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        sshd.stop()
        await task

    began = time.monotonic()
    with pytest.raises(NodeUnreachable) as caught:
        asyncio.run(cut())
    assert caught.value.seen in ("the connection ended early", "Connection to 127.0.0.1 closed by remote host.")
    assert time.monotonic() - began < 4, "it is not waited for"


def test_a_node_that_was_lost_is_found_again(sshd: Any) -> None:
    async def lose_and_find() -> Result:
        runner = SshRunner(sshd.node())
        assert (await runner.run(("true",))).ok
        sshd.stop()
        with pytest.raises(NodeUnreachable):
            await runner.run(("true",))
        sshd.start()
        return await runner.run(("echo", "back"))

    assert asyncio.run(lose_and_find()).text == "back\n"


def test_thirty_commands_go_eight_at_a_time_over_one_connection(sshd: Any, tmp_path: Path) -> None:
    """Each waits until some have been there together: how many, is not left to how fast they begin."""
    script = (
        f"cd {tmp_path}; mkdir at.$1; for i in $(seq 100); do n=$(ls -d at.* | wc -l); [ $n -gt 1 ] && : >together; "
        "[ -e together ] && break; sleep 0.1; done; echo $n; sleep 0.05; rmdir at.$1"
    )

    async def many() -> list[Result]:
        runner = SshRunner(sshd.node())
        return await asyncio.gather(*(runner.run(("sh", "-c", script, "sh", str(at))) for at in range(30)))

    results = asyncio.run(many())
    assert all(result.ok for result in results)
    assert 1 < max(int(result.text) for result in results) <= AT_ONCE
    assert (sshd.folder / "sshd.log").read_text().count("Accepted publickey") == 1


def test_the_first_commands_do_not_wait_for_each_other(sshd: Any, tmp_path: Path) -> None:
    """Each of two waits for the other's sign of life; behind one another they would both fail."""
    script = (
        f"touch {tmp_path}/$1; for i in 1 2 3 4 5 6 7 8; do [ -e {tmp_path}/$2 ] && exit 0; sleep 0.1; done; exit 1"
    )

    async def both() -> list[Result]:
        runner = SshRunner(sshd.node())
        first = runner.run(("true",))
        return await asyncio.gather(
            first,
            runner.run(("sh", "-c", script, "sh", "left", "right")),
            runner.run(("sh", "-c", script, "sh", "right", "left")),
        )

    assert [result.status for result in asyncio.run(both())] == [0, 0, 0]


def test_user_host_and_port_in_one_word(sshd: Any) -> None:
    host = f"{getpass.getuser()}@127.0.0.1:{sshd.port}"
    assert run(sshd.node(host=host), "echo", "here").text == "here\n"


@pytest.mark.parametrize("noise", ["echo noise", "echo noise >&2", "printf '=== noise'"])
def test_a_login_shell_that_prints_something_is_not_taken_for_the_command(sshd: Any, noise: str) -> None:
    login = sshd.folder / "login"
    login.write_text(f'#!/bin/sh\n{noise}\neval "$SSH_ORIGINAL_COMMAND"\n')
    login.chmod(0o755)
    sshd.stop()
    sshd.start(f"ForceCommand {login}")
    result = run(sshd.node(), "sh", "-c", "printf '=== out\\n'; exit 7")
    assert (result.status, result.stdout) == (7, b"=== out\n")


def test_facts_are_read_over_ssh(sshd: Any) -> None:
    node = sshd.node()
    facts = asyncio.run(read_facts(connect([node])["b"], node)).facts
    assert (facts.hostname, facts.gpus is None) == (os.uname().nodename, "gpus" in facts.unknown)
