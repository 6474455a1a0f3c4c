"""`bascule doctor` over a real sshd: nodes that answer beside one that is down, as a table and as data."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

BASCULE = Path(sys.executable).with_name("bascule")


@pytest.fixture(autouse=True)
def quick_tools(tmp_path_factory, monkeypatch) -> None:
    """In place of the real docker, for which nobody waits here."""
    folder = tmp_path_factory.mktemp("bin")
    info = '{"ServerVersion":"28.5.1","Driver":"overlay2","ContainersRunning":0,"ContainersPaused":0}'
    (folder / "docker").write_text(f"#!/bin/sh\necho '{info}'\n")
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BASCULE, "doctor", *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def dead(sshd) -> str:
    """A node at a port where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"name=down,host={sshd.alias}:{free.getsockname()[1]}"


def test_this_machine_is_looked_at_when_no_node_is_named() -> None:
    done = doctor()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["local"]
    assert any(line.startswith("docker      28.5 overlay2") for line in lines)
    assert not any(line.startswith("addresses") for line in lines), "a node alone has nobody to reach"


def test_a_node_that_is_down_is_told_beside_the_others(sshd, dead: str) -> None:
    done = doctor("--node", f"name=b,host={sshd.alias}", "--node", dead)
    assert done.returncode == 3
    rows = {line[:12].strip(): line[12:] for line in done.stdout.splitlines()}
    assert rows["ssh"].split("  ")[0].endswith(" ms") and "✗ no answer" in rows["ssh"]
    assert "cores" in rows["machine"] and "GiB" in rows["memory"]
    assert "error[node-unreachable]: down does not answer over ssh" in done.stderr
    assert "Connection refused" in done.stderr


def test_all_of_it_as_data(sshd, dead: str) -> None:
    done = doctor("--json", "--node", f"name=b,host={sshd.alias}", "--node", dead)
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (3, "")
    there, down = told["nodes"]
    assert (there["name"], there["answers"], there["error"]) == ("b", True, None)
    assert there["facts"]["hostname"] == socket.gethostname()
    assert abs(there["facts"]["clock_offset_s"]) <= there["facts"]["clock_error_s"] + 0.01
    assert 0 < there["facts"]["round_trip_s"] < 30
    assert (down["answers"], down["facts"], down["error"]["code"]) == (False, None, "node-unreachable")
    assert told["addresses"] is None, "one node alone proves nothing"
    assert {"notices", "nodes", "addresses"} == set(told)


def test_the_nodes_of_a_recipe(sshd, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"service: s\nmodel: /m\nnodes:\n  - name: head\n    host: local\n  - name: b\n    host: {sshd.alias}\n"
    )
    done = doctor(str(recipe), "--no-proof", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in told["nodes"]] == ["head", "b"]
    ids = {row["facts"]["machine_id"] for row in told["nodes"]}
    assert len(ids) == 1, "both are this machine"


def test_two_ways_to_name_nodes_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("service: s\nmodel: /m\nnodes: [a]\n")
    done = doctor(str(tmp_path / "r.yaml"), "--node", "local")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[usage]" in done.stderr
    assert doctor(str(tmp_path / "missing.yaml")).returncode == 2


def test_nothing_is_changed_on_the_node(sshd, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "home").mkdir()
    assert doctor("--node", "local").returncode == 0
    assert list((tmp_path / "home").iterdir()) == []
    assert not (tmp_path / "state").exists()


def test_the_whole_table_of_addresses(sshd) -> None:
    """This machine alone has no second address that a peer could be told, so both nodes are told its loopback."""
    pair = ("--node", "name=a,host=local,address=127.0.0.1", "--node", "name=b,host=local,address=127.0.0.2")
    rows = [line.split() for line in doctor(*pair, "--addresses").stdout.splitlines()]
    at = rows.index(["tells", "what", "to", "over", "RDMA", "ports", "for", "NCCL", "round", "trip", "rate", "from"])
    assert [row[:2] for row in rows[at + 1 : at + 3]] == [["a", "127.0.0.1"], ["b", "127.0.0.2"]]
    assert "Gbit/s" in rows[at + 1] and "rendezvous," in rows[at + 1]
    assert "tells" not in doctor(*pair).stdout
    both = doctor(*pair, "--addresses", "--no-proof")
    assert both.returncode == 2 and "error[usage]: --addresses shows what --no-proof leaves out" in both.stderr
