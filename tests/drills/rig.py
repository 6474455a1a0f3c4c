"""What the drills share: two lab hosts with real vLLM over both, and words for what is done to them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from bascule.lab import hosts
from lifecycle.desk import BASCULE, ENGINES

NEEDS = [
    pytest.mark.lab,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("CI") and (os.getuid() != 0 or not shutil.which("sshd", path="/usr/sbin")),
        reason="needs root and sshd",
    ),
]
MODEL = "/home/op/models/adder"
START_WITHIN = 600.0  # seconds; a start takes 25 s on two quiet cores


class Drill:
    """One service on the lab, and words for what is done to it."""

    def __init__(self, lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder), "BASCULE_SSH": f"ssh -F {lab.folder}/ssh_config"}

    def recipe(self, on_h1: str = "", on_h2: str = "", h2: str = "") -> Path:
        """More variables (`, NAME: value`) of a host, more keys of the second node (`, key: value`)."""
        first, second = (host.address("fabric") for host in self.lab.hosts)
        path = self.folder / "drill.yaml"
        path.write_text(
            f"service: drill\nmodel: {MODEL}\nport: 8000\ncontext: 512\nnodes:\n"
            f"  - {{name: h1, host: root@h1, address: {first}}}\n"
            f"  - {{name: h2, host: root@h2, address: {second}{h2}}}\n"
            f"candidates:\n  - name: vllm\n    engine: vllm\n    venv: {ENGINES}/vllm-0.32.0\n"
            "    args: --enforce-eager --reasoning-parser qwen3 --kv-cache-memory-bytes 67108864\n"
            "    env: {TORCHDYNAMO_DISABLE: 1}\n    env_on:\n"
            f"      h1: {{VLLM_CPU_OMP_THREADS_BIND: 0{on_h1}}}\n      h2: {{VLLM_CPU_OMP_THREADS_BIND: 1{on_h2}}}\n"
        )
        return path

    @contextmanager
    def going(self, *words: object):
        """A command that goes on while something is done to it; ended at the end."""
        argv = [str(word) for word in (BASCULE, *words)]
        with subprocess.Popen(argv, env=self.env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        argv = [str(word) for word in (BASCULE, *words)]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=400, check=False)

    def up(self, recipe: Path) -> None:
        told = self.run("up", recipe)
        assert told.returncode == 0, told.stderr

    def status(self) -> str:
        return json.loads(self.run("status", "--json").stdout)[0]["state"]

    def events(self, kind: str = "") -> list[dict]:
        """Of the newest run, straight from the journal's file: some drills have less than a second to act in."""
        path = self.folder / "bascule/journal.db"
        if not path.exists():
            return []
        with suppress(sqlite3.OperationalError):  # being made
            db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
            with db:
                rows = db.execute(
                    "SELECT at, kind, data FROM event WHERE run = (SELECT max(run) FROM event) ORDER BY id"
                ).fetchall()
            db.close()
            events = [
                {"at": datetime.fromisoformat(at), "kind": kind, "data": json.loads(data)} for at, kind, data in rows
            ]
            return [event for event in events if kind in ("", event["kind"])]
        return []

    def wait_for(self, phase: str, rank: int) -> None:
        """Until a rank is in a phase, or was."""
        until = time.monotonic() + START_WITHIN
        while time.monotonic() < until and not self.events("run-ended"):
            told = [event["data"] for event in self.events("phase")]
            if any((one["phase"], one["rank"]) == (phase, rank) for one in told):
                return
            time.sleep(0.05)
        raise AssertionError(f"rank {rank} never came to {phase}: {[event['kind'] for event in self.events()]}")

    def findings(self, step: str = "watch") -> list[dict]:
        found = [event["data"]["finding"] for event in self.events("finding")]
        return [one for one in found if one["step"] == step]

    def alarms(self) -> list[dict]:
        """Verdicts that call a start off."""
        told = [event["data"] for event in self.events("standing")]
        return [one for one in told if one["verdict"] in ("STALLED", "SPINNING", "DEAD")]

    def pids(self, number: int) -> list[int]:
        """The processes of rank 0 or 1, as this machine numbers them, its first one in front."""
        space = self.lab.hosts[number].namespace
        listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=True).stdout
        every = {pid: _session(pid) for pid in map(int, listed.split())}
        # An engine that gives itself another title loses its variables: its session tells whose it is.
        ours = {every[pid] for pid in every if b"BASCULE_RANK=" in _read(f"/proc/{pid}/environ")} - {None}
        return sorted((pid for pid in every if every[pid] in ours), key=lambda pid: pid != every[pid])

    def send(self, number: int, what: signal.Signals) -> list[int]:
        """A signal to all processes of a rank."""
        pids = self.pids(number)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, what)
        return pids

    def hurry(self, number: int) -> None:
        """A rank that spins gets its core, whatever else the machine does."""
        for pid in self.pids(number):
            os.setpriority(os.PRIO_PROCESS, pid, -20)
            with suppress(OSError):  # where sessions share the machine evenly, it is the session that counts
                Path(f"/proc/{pid}/autogroup").write_text("-20")

    def inside(self, number: int, script: str) -> str:
        """A shell script on a host, as its root."""
        words = hosts.inside(self.lab.hosts[number], ("sh", "-c", script))
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    def ask(self, tokens: int, within: float) -> str:
        """A completion of so many tokens, asked on the head; "" when none came in time."""
        url = f"http://{self.lab.hosts[0].address('fabric')}:8000/v1/completions"
        body = json.dumps({"model": "drill", "prompt": "1", "max_tokens": tokens, "ignore_eos": True})
        return self.inside(0, f"curl -s -m {within:g} -H 'Content-Type: application/json' -d '{body}' {url} || true")

    def health(self) -> str:
        """The status of /health, as the head answers it."""
        url = f"http://{self.lab.hosts[0].address('fabric')}:8000/health"
        return self.inside(0, f"curl -s -m 10 -o /dev/null -w '%{{http_code}}' {url} || true")


class Limited:
    """A control group with limits, into which the processes of a rank are put; version 1 or 2, whichever is there."""

    def __init__(self, name: str, **limits: int) -> None:
        self.name, self.limits = name, limits
        self.old = Path("/sys/fs/cgroup/cpu").is_dir()
        controllers = ("cpu", "memory") if self.old else ("",)
        self.folders = [Path("/sys/fs/cgroup") / controller / name for controller in controllers]

    def __enter__(self) -> Limited:
        if not self.old:
            Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+cpu +memory")
        for folder in self.folders:
            folder.mkdir(exist_ok=True)
        self.set(**self.limits)
        return self

    def __exit__(self, *_: object) -> None:
        """Processes that are left go back to the top."""
        for folder in self.folders:
            for pid in folder.joinpath("cgroup.procs").read_text().split():
                with suppress(OSError):
                    folder.parent.joinpath("cgroup.procs").write_text(pid)
            for _ in range(50):
                with suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.1)

    def set(self, *, percent: int | None = None, memory: int | None = None) -> None:
        """Percent of one core (0 lifts it), bytes of memory."""
        if percent is not None:
            quota = 1000 * percent or -1
            if self.old:
                self.folders[0].joinpath("cpu.cfs_quota_us").write_text(str(quota))
            else:
                self.folders[0].joinpath("cpu.max").write_text(f"{quota if percent else 'max'} 100000")
        if memory is not None:
            name = "memory.limit_in_bytes" if self.old else "memory.max"
            self.folders[-1].joinpath(name).write_text(str(memory))

    def take(self, pids: list[int]) -> None:
        """Put these processes in; what they start comes in as well."""
        for folder in self.folders:
            for pid in pids:
                with suppress(OSError):  # it has ended
                    folder.joinpath("cgroup.procs").write_text(str(pid))


def seconds(first: dict, last: dict) -> float:
    """From one event to another."""
    return (last["at"] - first["at"]).total_seconds()


def figure(text: str) -> None:
    """Shown by `pytest -rP`: the tests assert generous bounds, and a person wants the number."""
    sys.stderr.write(f"figure: {text}\n")


def install(lab, source: Path) -> None:
    """The model on every host."""
    for host in lab.hosts:
        shutil.copytree(source, lab.host_folder(host) / MODEL.lstrip("/"))


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
