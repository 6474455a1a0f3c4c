"""Quoting, which a real `sh` must understand as it was meant: a slip here runs something else on a node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.remote import shell

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
names = st.from_regex(r"B_[A-Z0-9_]{0,8}", fullmatch=True)
few = settings(max_examples=40, deadline=None)


def sh(script: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", script], capture_output=True, timeout=10, check=False)


@few
@given(st.lists(texts, min_size=1, max_size=4))
def test_words_arrive_as_they_were_sent(words: list[str]) -> None:
    told = sh(shell.line(["printf", "%s\\0", *words]))
    assert told.stdout.decode().split("\0")[:-1] == words


@few
@given(st.dictionaries(names, texts, min_size=1, max_size=4))
def test_variables_arrive_as_they_were_sent(env: dict[str, str]) -> None:
    told = sh(shell.exports(env) + "env -0").stdout.decode().split("\0")
    assert {f"{name}={value}" for name, value in env.items()} <= set(told)


@few
@given(
    st.lists(st.sampled_from(["BASCULE_END", "BASCULE_END_", "$HOME", "`id`", "\\", "'", "\n", "ü", " "])).map("".join)
)
def test_a_file_arrives_as_it_was_sent(text: str) -> None:
    told = sh(shell.here_document("/dev/stdout", text)).stdout.decode()
    assert told == (text if text.endswith("\n") else text + "\n")


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "a 'b' $c"
    assert sh(shell.here_document(str(path), "text\n")).returncode == 0
    assert path.read_text() == "text\n"


@few
@given(st.integers(0, 255), texts, st.binary(max_size=30))
def test_the_exit_status_comes_back_behind_what_was_complained(status: int, said: str, complained: bytes) -> None:
    script = 'printf %s "$1"; printf "$2" >&2; exit "$3"'
    escaped = "".join(f"\\{byte:03o}" for byte in complained)
    told = sh(shell.with_markers(["sh", "-c", script, "sh", said, escaped, str(status)]))
    assert shell.split_end_marker(told.stderr) == (complained, status)
    assert shell.behind_begin_marker(told.stdout).decode() == said


@pytest.mark.parametrize(
    "stderr",
    [b"", b"ssh: connect to host a port 22: Connection refused\r\n", b"bascule-end\n", b"\nbascule-end 0\nmore\n"],
)
def test_without_the_marker_there_is_no_status(stderr: bytes) -> None:
    assert shell.split_end_marker(stderr) == (stderr, None)
    assert shell.split_end_marker(stderr + b"\nbascule-end 255\n") == (stderr, 255)


def test_only_the_last_marker_counts() -> None:
    assert shell.split_end_marker(b"x\nbascule-end 0\n\nbascule-end 7\n") == (b"x\nbascule-end 0\n", 7)


@pytest.mark.parametrize("noise", [b"", b"Welcome!\n", b"no newline", b"bascule-begin"])
def test_what_a_login_shell_printed_before_is_left_out(noise: bytes) -> None:
    assert shell.behind_begin_marker(noise + b"bascule-begin\nout\n") == b"out\n"
    assert shell.behind_begin_marker(noise) == noise


def test_the_node_itself_ends_a_command_that_is_over_its_time() -> None:
    assert sh(shell.line(shell.bounded(["sleep", "60"], 0.1))).returncode == 124
    assert sh(shell.line(shell.bounded(["sh", "-c", "exit 3"], 5))).returncode == 3
