"""Ranks of plain scripts that stand for a service: started as by the venv runtime, with the journal of an `up`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from bascule.core.nouns import Endpoint, RankPlan
from bascule.journal import Journal
from bascule.launch.venv import label_of, start_script

BASCULE = Path(sys.executable).with_name("bascule")
SLEEPS = "echo up; while :; do sleep 1; done"


class Stand:
    """A service of the name `s`: rank 0 on node a, which is here, and more on nodes that a test names."""

    def __init__(self, folder: Path, url: str = "http://127.0.0.1:9/v1", engine: str = "vllm") -> None:
        self.folder, self.url, self.engine = folder, url, engine
        self.artefact = {"kind": "venv", "ref": "/x"}
        self.nodes: list[dict] = []
        self.plans: list[RankPlan] = []
        self.journal = Journal()
        self.run_number = 0

    def node(self, name: str, host: str = "local", address: str = "127.0.0.1") -> None:
        run_dir = str(self.folder / f"ranks-{name}")
        self.nodes.append({"name": name, "host": host, "address": address, "run_dir": run_dir})

    def serve(self, *scripts: str) -> Stand:
        """One rank a node, each running a shell script; noted as served."""
        candidate = {"name": "c", "engine": self.engine, "artefact": self.artefact, "changes": []}
        self.run_number = self.journal.begin(service="s", source="s.yaml", model="/m", nodes=self.nodes)
        self.plans = [
            RankPlan(number, node["name"], ("/bin/sh", "-c", script), {})
            for number, (node, script) in enumerate(zip(self.nodes, scripts, strict=True))
        ]
        for node, plan in zip(self.nodes, self.plans, strict=True):
            self._start(node, plan, self._label(plan))
        endpoint = Endpoint(self.url, "m", "/health")
        self.journal.record(self.run_number, "try", candidate=candidate, because="test")
        self.journal.record(self.run_number, "launch", generation=self.generation, ranks=self.plans, endpoint=endpoint)
        self.journal.record(self.run_number, "served", candidate=candidate, endpoint=endpoint, because="test")
        return self

    @property
    def generation(self) -> str:
        return f"{self.run_number}.1"

    def place(self, rank: int) -> Path:
        """The run folder of a rank."""
        return Path(self.nodes[rank]["run_dir"]) / f"s.{self.generation}.r{rank}"

    def pids(self, rank: int) -> list[int]:
        """Its processes, the leader first."""
        leader = int((self.place(rank) / "pid").read_text().split()[0])
        told = subprocess.run(["ps", "-o", "pid=", "-s", str(leader)], capture_output=True, text=True, check=False)
        return [leader, *(int(pid) for pid in told.stdout.split() if int(pid) != leader)]

    def send(self, rank: int, what: signal.Signals) -> None:
        for pid in self.pids(rank):
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    @contextmanager
    def watching(self, *words: str):
        """`bascule watch` once it has begun."""
        argv = [str(BASCULE), "watch", "s", *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
            assert process.stdout
            try:
                assert "serving" in process.stdout.readline()
                yield process
            finally:
                process.kill()

    def bascule(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BASCULE, *words], capture_output=True, text=True, timeout=120, check=False)

    def broke(self) -> list[dict]:
        """Findings that watches have noted."""
        return [event.data["finding"] for event in self.journal.events(self.run_number) if event.kind == "broke"]

    def kept(self) -> set[str]:
        """Names of the files that watches have kept."""
        return {path.name for path in self.journal.evidence_dir(self.run_number).rglob("watch*/**/*")}

    def end(self) -> None:
        for node in self.nodes:
            for path in Path(node["run_dir"]).glob("*/pid"):
                session = path.read_text().split()[0]
                told = subprocess.run(["ps", "-o", "pid=", "-s", session], capture_output=True, text=True, check=False)
                for pid in told.stdout.split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)

    def _label(self, plan: RankPlan) -> dict[str, str]:
        return label_of(
            "s",
            self.generation,
            plan,
            ranks=len(self.nodes),
            digest="d",
            started_at=f"{time.time():.3f}",
            url=self.url,
            model="m",
            candidate="c",
            artefact=self.artefact["ref"],
            changes=[],
        )

    def _start(self, node: dict, plan: RankPlan, label: dict[str, str]) -> None:
        script = start_script(node["run_dir"], f"s.{self.generation}.r{plan.rank}", plan, label)
        subprocess.run(["sh", "-s"], input=script.encode(), check=True, timeout=30)


def lines_of(stdout: str) -> list[dict]:
    """What `--json` printed."""
    return [json.loads(line) for line in stdout.splitlines()]
