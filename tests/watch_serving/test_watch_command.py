"""`bascule watch` on real ranks that end, are stopped, are taken down, or whose node goes away."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from watch_serving.serving_parts import SLEEPS, Stand, lines_of

SOON = 15.0  # seconds; it is 1 s on a quiet machine


def test_a_service_that_nobody_asks_is_well(stand):
    stand.serve(SLEEPS, SLEEPS)
    told = stand.bascule("watch", "s", "--once", "--json")
    assert told.returncode == 0, told.stderr
    first, last = lines_of(told.stdout)
    assert first["says"].startswith(f"start {stand.generation}: rank 0 on a, rank 1 on b")
    assert (last["state"], last["says"], last["rank"]) == ("serving", "nothing speaks against it", None)
    assert stand.broke() == []


def test_a_rank_that_is_killed_is_told_at_once_and_the_service_is_broken(stand):
    stand.serve(SLEEPS, "echo last words; " + SLEEPS)
    with stand.watching() as watch:
        stand.send(1, signal.SIGKILL)
        killed = time.monotonic()
        line = watch.stdout.readline()
        assert time.monotonic() - killed < SOON
        assert re.match(r"\d\d:\d\d:\d\d   b  rank 1  DEAD  ended without leaving a status \(killed\)\n", line)
        assert watch.wait(60) == 1
        said = watch.stderr.read()
    assert said.startswith("error[rank-died]: s is broken: rank 1 on b ended without leaving a status (killed)")
    assert f"more: bascule why {stand.run_number}" in said
    (finding,) = stand.broke()
    assert (finding["code"], finding["evidence"][0]["node"]) == ("rank-died", "b")
    assert {"rank0.log", "rank1.log", "counters.csv", "a.processes.txt"} <= stand.kept()
    story = stand.bascule("why", str(stand.run_number)).stdout
    assert "BROKE" in story
    assert "rank-died" in story
    assert len(stand.pids(0)) > 1, "the other rank is left alone"
    later = stand.bascule("watch", "--once")
    assert (later.returncode, "error[rank-died]" in later.stderr) == (1, True), "it is found afterwards as well"


def test_what_a_rank_said_before_it_ended_names_the_failure(stand):
    error = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
    stand.serve(SLEEPS, f"echo up; sleep 4; echo '{error}'; exit 1")
    with stand.watching() as watch:
        assert "rank 1  DEAD  ended with status 1" in watch.stdout.readline()
        assert watch.wait(60) == 1
        assert watch.stderr.read().startswith("error[gpu-lost]: s is broken: ")
    (finding,) = stand.broke()
    assert (finding["code"], finding["evidence"][0]["excerpt"]) == ("gpu-lost", error)


def test_a_rank_that_a_signal_stops_is_told_and_left_as_it_is(stand):
    stand.serve(SLEEPS, SLEEPS)
    with stand.watching() as watch:
        stand.send(1, signal.SIGSTOP)
        pids = stand.pids(1)
        assert "b  rank 1  STOPPED" in watch.stdout.readline()
        assert watch.wait(60) == 1
        said = watch.stderr.read()
    assert "error[rank-stopped]: s is broken: rank 1 on b is stopped by a signal" in said
    assert f"kill -CONT {pids[0]} " in said
    assert _state(pids[0]) == "T"


def test_a_service_that_is_taken_down_is_not_broken(stand):
    stand.serve(SLEEPS, SLEEPS)
    with stand.watching("--json") as watch:
        assert stand.bascule("down", "s").returncode == 0
        assert watch.wait(60) == 0, watch.stderr.read()
        rows = lines_of(watch.stdout.read())
    assert rows[-1]["says"] == f"was taken down: nothing is left of start {stand.generation}"
    assert stand.broke() == []


def test_ctrl_c_ends_the_watch_and_leaves_the_service_alone(stand):
    stand.serve(SLEEPS, SLEEPS)
    with stand.watching() as watch:
        time.sleep(2)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 130
        assert "the service goes on; nobody watches it now" in watch.stderr.read()
    assert all(_state(pid) in "SR" for rank in (0, 1) for pid in stand.pids(rank)[:1])


def test_what_does_not_serve_can_not_be_watched(stand):
    assert stand.bascule("watch").returncode == 2
    stand.serve(SLEEPS, SLEEPS)
    stand.bascule("down", "s")
    told = stand.bascule("watch", "--once")
    assert (told.returncode, told.stderr.splitlines()[0]) == (
        1,
        "error[not-serving]: s is not running: its nodes have no rank of it",
    )
    stand.journal.record(stand.run_number, "gave-up", because="test")
    stand.serve(SLEEPS, SLEEPS)
    stand.journal.record(stand.run_number, "gave-up", because="test")
    told = stand.bascule("watch", "--once")
    assert (told.returncode, "error[not-serving]: s does not serve" in told.stderr) == (1, True)


@pytest.fixture
def over_ssh(sshd, state, tmp_path):
    """Rank 1 on a node that is reached over a real sshd."""
    made = Stand(tmp_path)
    made.node("a")
    made.node("b", host=sshd.alias, address="127.0.0.2")
    yield made.serve(SLEEPS, SLEEPS)
    made.end()


def test_a_node_that_does_not_answer_is_unknown_and_not_dead(over_ssh, sshd):
    with over_ssh.watching() as watch:
        sshd.stop()
        assert re.search(r"b  rank 1  unknown  its node has told nothing of it for \d+ s", watch.stdout.readline())
        sshd.start()
        assert "b  rank 1  serving  serves again" in watch.stdout.readline()
        assert watch.poll() is None
    sshd.stop()
    told = over_ssh.bascule("watch", "s", "--once")
    assert (told.returncode, "unknown" in told.stdout) == (3, True)


def test_a_node_that_hangs_does_not_hide_a_rank_that_dies_elsewhere(over_ssh, sshd):
    with over_ssh.watching() as watch:
        time.sleep(2)
        hung = _all_of(sshd.process.pid)
        _send(hung, signal.SIGSTOP)
        try:
            assert "b  rank 1  unknown" in watch.stdout.readline()
            over_ssh.send(0, signal.SIGKILL)
            killed = time.monotonic()
            assert "a  rank 0  DEAD" in watch.stdout.readline()
            assert time.monotonic() - killed < SOON
            assert watch.wait(90) == 1
        finally:
            _send(hung, signal.SIGCONT)


def _send(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _all_of(pid: int) -> list[int]:
    told = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [pid, *(deeper for child in told.stdout.split() for deeper in _all_of(int(child)))]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
