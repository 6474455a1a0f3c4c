"""Starts of real vLLM over two hosts that go wrong on purpose: the verdict, its time, and what is done about it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from bascule.lab import hosts
from bascule.lab.spec import Lab
from lifecycle.desk import BASCULE, ENGINES, ROOT

pytestmark = [
    pytest.mark.lab,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("CI") and (os.getuid() != 0 or not shutil.which("sshd", path="/usr/sbin")),
        reason="needs root and sshd",
    ),
]
MODEL = "/home/op/models/adder"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drill-lab")
    made = Lab("drill", folder / "drill", 2, 86)
    hosts.up(made, docker=False)
    for host in made.hosts:
        shutil.copytree(ROOT / "models/adder", made.host_folder(host) / MODEL.lstrip("/"))
    yield made
    hosts.down("drill")


class Drill:
    """One service on the lab, and words for what is done to it."""

    def __init__(self, lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder), "BASCULE_SSH": f"ssh -F {lab.folder}/ssh_config"}

    def recipe(self, on_h1: str = "") -> Path:
        h1, h2 = (host.address("fabric") for host in self.lab.hosts)
        path = self.folder / "drill.yaml"
        path.write_text(
            f"service: drill\nmodel: {MODEL}\nport: 8000\ncontext: 512\nnodes:\n"
            f"  - {{name: h1, host: root@h1, address: {h1}}}\n  - {{name: h2, host: root@h2, address: {h2}}}\n"
            f"candidates:\n  - name: vllm\n    engine: vllm\n    venv: {ENGINES}/vllm-0.32.0\n"
            "    args: --enforce-eager --reasoning-parser qwen3 --kv-cache-memory-bytes 67108864\n"
            "    env: {TORCHDYNAMO_DISABLE: 1}\n    env_on:\n"
            f"      h1: {{VLLM_CPU_OMP_THREADS_BIND: 0{on_h1}}}\n      h2: {{VLLM_CPU_OMP_THREADS_BIND: 1}}\n"
        )
        return path

    @contextmanager
    def up(self, recipe: Path):
        """`bascule up` while something is done to it; ended at the end."""
        words = [BASCULE, "up", recipe]
        with subprocess.Popen(words, env=self.env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
            try:
                yield run
            finally:
                run.terminate()

    def run(self, *words: object) -> str:
        argv = [str(word) for word in (BASCULE, *words)]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=300, check=False).stdout

    def events(self) -> list[dict]:
        told = self.run("why", "--json")
        return json.loads(told)["events"] if told else []  # there is no run yet

    def wait_for(self, phase: str, rank: int) -> None:
        """Until a rank is in a phase."""
        until = time.monotonic() + 180
        while time.monotonic() < until:
            told = [e["data"] for e in self.events() if e["kind"] == "phase"]
            if any((one["phase"], one["rank"]) == (phase, rank) for one in told):
                return
            time.sleep(0.5)
        raise AssertionError(f"rank {rank} never came to {phase}")

    def pids(self, number: int, pattern: str) -> list[int]:
        """Processes of a host, as this machine numbers them, whose command line has these words."""
        space = self.lab.hosts[number].namespace
        listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in listed.split() if pattern.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.fixture
def drill(lab, tmp_path):
    hosts.heal(lab)
    made = Drill(lab, tmp_path)
    yield made
    made.run("down")
    hosts.heal(lab)


def findings(events, step="watch"):
    return [e["data"]["finding"] for e in events if e["kind"] == "finding" and e["data"]["finding"]["step"] == step]


def seconds(events, first, last):
    """Between two events, each given as (kind, data that it has)."""
    at = []
    for kind, data in (first, last):
        fits = [e for e in events if e["kind"] == kind and all(e["data"].get(key) == data[key] for key in data)]
        at.append(datetime.fromisoformat(fits[-1 if kind == "phase" else 0]["at"]))
    return (at[1] - at[0]).total_seconds()


def test_an_advertised_address_that_the_peer_cannot_reach(lab, drill):
    """The LAN between the hosts is cut, the fabric is fine, and rank 0's queue is told the LAN's address."""
    lan, fabric = lab.hosts[0].address("lan"), lab.hosts[0].address("fabric")
    hosts.cut(*lab.hosts, networks=("lan",))
    with drill.up(drill.recipe(f", VLLM_HOST_IP: {lan}")) as run:
        assert run.wait(400) == 0, run.stderr.read()
    events = drill.events()
    stalled, served = findings(events)
    assert (stalled["code"], stalled["fate"]) == ("address-unreachable", "adjust")
    assert stalled["says"].startswith(f"h1 advertised {lan}:")
    assert "which listens there, without an answer" in stalled["evidence"][0]["excerpt"]
    assert stalled["change"] == {"kind": "env", "name": "VLLM_HOST_IP", "value": fabric, "node": "h1"}
    assert served["code"] == "engine-up"
    (stood,) = [e for e in events if e["kind"] == "standing" and e["data"]["verdict"] == "STALLED"]
    began = [e for e in events if e["kind"] == "phase" and e["data"]["phase"] == "queue" and e["at"] < stood["at"]][-1]
    waited = datetime.fromisoformat(stood["at"]) - datetime.fromisoformat(began["at"])
    assert 45 < waited.total_seconds() <= 60
    kept = {path.name for path in (drill.folder / "bascule/evidence").rglob("capture1/*")}
    assert {"h1.sockets.txt", "h2.sockets.txt", "h1.stacks.txt", "h2.network.txt", "counters.csv"} <= kept
    assert json.loads(drill.run("status", "--json"))[0]["state"] == "serving"


def test_a_rank_that_is_stopped_by_a_signal(lab, drill):
    """Rank 1 is frozen in the rendezvous: the others wait for it, and it is the one that is named."""
    with drill.up(drill.recipe()) as run:
        drill.wait_for("rendezvous", 1)
        frozen = drill.pids(1, "vllm") + drill.pids(1, "VLLM")
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            assert run.wait(200) == 4, run.stderr.read()
        finally:
            for pid in frozen:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    continue
        assert time.monotonic() - began < 110  # 60 to the verdict, then evidence, and the end of what is frozen
    (finding,) = findings(drill.events())
    assert (finding["code"], finding["fate"]) == ("start-stalled", "unknown")
    assert "rank 1" in finding["says"].split(";")[0]


def test_a_rank_that_dies_while_it_starts_is_seen_at_once(lab, drill):
    with drill.up(drill.recipe()) as run:
        drill.wait_for("rendezvous", 1)
        for pid in drill.pids(1, "vllm") + drill.pids(1, "VLLM"):
            os.kill(pid, signal.SIGKILL)
        killed = datetime.now().astimezone()
        assert run.wait(120) == 4, run.stderr.read()
    events = drill.events()
    ended = next(e for e in events if e["kind"] == "rank-ended" and e["data"]["rank"] == 1)
    assert (datetime.fromisoformat(ended["at"]) - killed).total_seconds() < 5
    assert findings(events)[0]["code"] == "rank-died"
