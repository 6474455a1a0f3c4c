"""Evidence of real processes on this machine: what is taken, within which time, and without any secret."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Node
from bascule.errors import NodeUnreachable
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Result
from bascule.watch.capture import LARGEST, capture
from bascule.watch.sampler import Watched
from bascule.watch.samples import COUNTERS, GAUGES, Sample
from bascule.watch.samples_csv import to_csv

SECRET = "verysecretvalue0123456789"
PARTS = {"processes", "stacks", "environment", "network", "timers", "ras", "kernel", "gpus", "machine", "sockets"}


class Lost:
    """A node that does not answer."""

    async def run(self, argv, *, stdin="", within=30.0):
        raise NodeUnreachable("node-unreachable", "b does not answer over ssh", seen="Connection timed out")


def take(ranks, folder, **more):
    nodes, runners = [ranks.node], {"a": LocalRunner(ranks.node)}
    return asyncio.run(capture(ranks.watched, nodes, runners, folder, **more))


def text_of(captured, part):
    return (captured.folder / f"a.{part}.txt").read_text()


def test_a_stopped_process_is_seen_stopped_with_where_it_waits_and_is_left_so(ranks, tmp_path):
    pid = ranks.start("echo up; exec sleep 300")
    ranks.wait_for("up")
    os.kill(pid, signal.SIGSTOP)
    captured = take(ranks, tmp_path / "evidence")
    assert {path.name.split(".")[1] for path in captured.files if path.name.startswith("a.")} == PARTS
    assert captured.missing == {}
    processes = text_of(captured, "processes")
    assert f"process {pid} sh" in processes
    assert "State:\tT (stopped)" in processes
    assert "wchan: do_signal_stop" in processes or os.getuid() != 0
    assert "thread /proc/" in processes
    assert "State:\tT (stopped)" in Path(f"/proc/{pid}/status").read_text()
    assert captured.folder == tmp_path / "evidence" / "capture1"
    assert (captured.folder / "counters.csv").read_text().startswith("rank,at,log_bytes,cpu_s,")


def test_no_secret_of_a_rank_is_in_any_file_wherever_it_stands(ranks, tmp_path, monkeypatch):
    env = {
        "HF_TOKEN": SECRET,
        "MY_API_KEY": "key-" + SECRET,
        "HTTPS_PROXY": f"http://me:{SECRET}x@proxy:3128",
        "PLAIN": f"said {SECRET} again",
        "OTHER": "hf_" + "a" * 34,
        "VLLM_HOST_IP": "10.77.0.1",
    }
    ranks.start("echo up; exec sleep 300", env=env)
    ranks.wait_for("up")
    captured = take(ranks, tmp_path / "evidence")
    environment = text_of(captured, "environment")
    assert "HF_TOKEN=***" in environment
    assert "VLLM_HOST_IP=10.77.0.1" in environment
    everything = "".join(path.read_text() for path in captured.files)
    assert SECRET not in everything
    assert "aaaaaaaa" not in everything


def test_a_container_is_described_without_the_secrets_in_its_variables_and_words(ranks, tmp_path):
    inspected = [
        {
            "Id": "4f1c",
            "Args": ["serve", "--api-key", SECRET, "--port", "8000"],
            "Config": {"Env": [f"HF_TOKEN={SECRET}", "VLLM_HOST_IP=10.77.0.1"], "Labels": {"say": f"x {SECRET} y"}},
            "State": {"Status": "running", "OOMKilled": False, "Pid": 1},
        }
    ]

    class Docker(LocalRunner):
        """A daemon that knows one container; all else is this machine."""

        async def run(self, argv, *, stdin="", within=30.0):
            if "container" in argv:
                return Result(tuple(argv), 0, json.dumps(inspected, indent=4).encode(), b"")
            return await super().run(argv, stdin=stdin, within=within)

    node = replace(ranks.node, facts=NodeFacts(run_dir=str(tmp_path), gpus=()))
    watched = [Watched(0, "a", "s.1.r0", "image")]
    captured = asyncio.run(capture(watched, [node], {"a": Docker(node)}, tmp_path / "evidence"))
    text = (captured.folder / "a.container0.json").read_text()
    assert SECRET not in text
    told = json.loads(text)[0]
    assert told["Config"]["Env"] == ["HF_TOKEN=***", "VLLM_HOST_IP=10.77.0.1"]
    assert told["Args"] == ["serve", "--api-key", "***", "--port", "8000"]
    assert told["State"] == {"Status": "running", "OOMKilled": False, "Pid": 1}


def test_a_command_that_hangs_costs_its_part_and_no_other_and_not_the_time(ranks, tmp_path, monkeypatch):
    ranks.start("echo up; exec sleep 300")
    ranks.wait_for("up")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("nvidia-smi", "dmesg", "ss"):
        (programs / name).write_text("#!/bin/sh\necho begun\nexec sleep 60\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    began = time.monotonic()
    captured = take(ranks, tmp_path / "evidence", within=1.0)
    assert time.monotonic() - began < 8
    assert set(captured.missing) == {"a gpus.txt", "a kernel.txt", "a timers.txt"}
    assert captured.missing["a gpus.txt"] == "not read to its end within 1 s"
    assert text_of(captured, "gpus") == "begun\n"
    assert "State:" in text_of(captured, "processes")
    assert "a gpus.txt: not read" in (captured.folder / "missing.txt").read_text()


def test_a_node_that_does_not_answer_is_noted_and_the_others_are_read(ranks, tmp_path):
    ranks.start("echo up; exec sleep 300")
    ranks.wait_for("up")
    far = Node("b", "b.example", address="10.77.0.2")
    runners = {"a": LocalRunner(ranks.node), "b": Lost()}
    watched = [*ranks.watched, Watched(1, "b", "s.1.r1")]
    captured = asyncio.run(capture(watched, [ranks.node, far], runners, tmp_path / "evidence"))
    assert "State:" in text_of(captured, "processes")
    assert captured.missing["b network.txt"] == "Connection timed out"
    assert not [path for path in captured.files if path.name.startswith("b.")]
    if shutil.which("ip"):
        assert "== to 10.77.0.2" in text_of(captured, "network")


def test_a_second_capture_keeps_the_first(ranks, tmp_path):
    ranks.start("echo up; exec sleep 300")
    folders = [take(ranks, tmp_path / "evidence").folder.name for _ in range(2)]
    assert folders == ["capture1", "capture2"]


def test_a_part_that_never_ends_talking_is_cut(ranks, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ss").write_text("#!/bin/sh\nexec yes 'ESTAB 0 0 10.0.0.1:1 10.0.0.2:2'\n")
    (programs / "ss").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    ranks.start("echo up; exec sleep 300")
    captured = take(ranks, tmp_path / "evidence")
    assert len(text_of(captured, "timers")) == LARGEST
    assert sum(path.stat().st_size for path in captured.files) < 2_000_000


def test_what_nccl_says_of_itself_is_asked_where_it_listens(ranks, tmp_path):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("127.0.0.1", 28028))
    except OSError:
        pytest.skip("port 28028 is taken here")
    server.listen()

    def answer():
        connection, _ = server.accept()
        asked = connection.recv(100)
        connection.sendall(b"asked: " + asked + b"Job summary: 2 ranks, 1 missing\n")
        connection.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    ranks.start("echo up; exec sleep 300")
    captured = take(ranks, tmp_path / "evidence")
    server.close()
    assert text_of(captured, "ras") == "asked: verbose status\nJob summary: 2 ranks, 1 missing\n"


def test_without_a_listener_nccl_is_not_asked(ranks, tmp_path):
    ranks.start("echo up; exec sleep 300")
    assert text_of(take(ranks, tmp_path / "evidence"), "ras").startswith("nobody listens on port 28028")


@pytest.mark.skipif(not shutil.which("py-spy"), reason="no py-spy")
def test_python_stacks_are_there_where_py_spy_is(ranks, tmp_path):
    code = "import time\ndef waits_for_peer():\n    print('up', flush=True)\n    time.sleep(300)\nwaits_for_peer()"
    ranks.start(f'exec {os.path.realpath(sys.executable)} -c "{code}"')
    ranks.wait_for("up")
    assert "waits_for_peer" in text_of(take(ranks, tmp_path / "evidence"), "stacks")


def test_counters_are_a_table_in_which_the_unknown_is_empty():
    text = to_csv([Sample(1, 12.5, {"cpu_s": 3.25, "read_bytes": 2.0**40}, busiest=("cicc", "python3"))])
    head, row, end = text.split("\n")
    assert head.split(",") == ["rank", "at", *COUNTERS, *GAUGES, "busiest", "sockets"]
    cells = dict(zip(head.split(","), row.split(","), strict=True))
    assert (cells["cpu_s"], cells["read_bytes"], cells["gpu_bytes"]) == ("3.25", "1099511627776", "")
    assert cells["busiest"] == "cicc python3"
    assert end == ""
