"""The dry run tells what would really be done, and a recording plays back what really was."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core.nouns import Node
from bascule.remote.connect import tellers
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Result, Runner
from bascule.remote.tape import RecordingRunner, ReplayingRunner, TellingRunner, pasteable

HERE = Node("here", "local")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def run(runner: Runner, *argv: str, stdin: str = "") -> Result:
    return asyncio.run(runner.run(argv, stdin=stdin))


def paste(text: str) -> bytes:
    return subprocess.run(["sh"], input=text.encode(), capture_output=True, timeout=10, check=True).stdout


def test_a_recording_plays_back_what_came(tmp_path: Path) -> None:
    recording = RecordingRunner(LocalRunner(HERE))
    failed = run(recording, "sh", "-c", "echo no >&2; exit 3")
    echoed = run(recording, "cat", stdin="ü\n")
    recording.save(tmp_path / "tape.jsonl")
    replaying = ReplayingRunner(tmp_path / "tape.jsonl")
    assert run(replaying, "cat", stdin="ü\n") == echoed
    assert run(replaying, "sh", "-c", "echo no >&2; exit 3") == failed


def test_answers_to_the_same_question_come_in_their_order(tmp_path: Path) -> None:
    recording = RecordingRunner(LocalRunner(HERE))
    count = ("sh", "-c", f"echo >>{tmp_path}/n; wc -l <{tmp_path}/n")
    recorded = [run(recording, *count).text for _ in range(3)]
    recording.save(tmp_path / "tape.jsonl")
    replaying = ReplayingRunner(tmp_path / "tape.jsonl")
    assert recorded == [run(replaying, *count).text for _ in range(3)] == ["1\n", "2\n", "3\n"]


@pytest.mark.parametrize(("argv", "stdin"), [(("cat", "x"), "in"), (("cat",), "other"), (("cat",), "in")])
def test_what_was_never_recorded_is_not_made_up(tmp_path: Path, argv: tuple[str, ...], stdin: str) -> None:
    recording = RecordingRunner(LocalRunner(HERE))
    run(recording, "cat", stdin="in")
    recording.save(tmp_path / "tape.jsonl")
    replaying = ReplayingRunner(tmp_path / "tape.jsonl")
    assert run(replaying, "cat", stdin="in").ok
    with pytest.raises(LookupError, match="not on the tape: cat"):
        run(replaying, *argv, stdin=stdin)


@settings(max_examples=30, deadline=None)
@given(st.lists(texts, min_size=1, max_size=3), texts)
def test_the_told_command_pasted_into_a_shell_does_the_same(words: list[str], stdin: str) -> None:
    argv = ("sh", "-c", 'printf "%s\\0" "$@"; cat', "sh", *words)
    told: list[str] = []
    run(TellingRunner(HERE, told.append), *argv, stdin=stdin)
    done = run(LocalRunner(HERE), *argv, stdin=stdin).stdout
    newline = b"\n" if stdin and not stdin.endswith("\n") else b""  # a here document ends with one
    assert paste(told[0]) == done + newline


def test_telling_runs_nothing(tmp_path: Path) -> None:
    result = run(tellers([HERE], lambda text: None)["here"], "touch", str(tmp_path / "touched"))
    assert (result.status, result.stdout, list(tmp_path.iterdir())) == (0, b"", [])


def test_a_command_for_another_node_is_told_as_one_would_type_it() -> None:
    assert pasteable(Node("b", "u@b:2222"), ("echo", "a b"), "") == "ssh -p 2222 u@b 'echo '\"'\"'a b'\"'\"''"
    assert pasteable(Node("b", "b"), ("cat",), "text\n") == "ssh b cat <<'BASCULE_END'\ntext\nBASCULE_END\n"


def test_a_command_told_for_another_node_does_the_same_there(sshd: Any) -> None:
    words, stdin = ["a b", "$HOME", "it's", "\\n"], "in $HOME\n"
    told = pasteable(sshd.node(), ("sh", "-c", 'printf "%s|" "$@"; cat', "sh", *words), stdin)
    typed = f'ssh() {{ command ssh -F {sshd.folder}/ssh_config "$@"; }}\n{told}'
    assert paste(typed).decode() == "a b|$HOME|it's|\\n|in $HOME\n"
