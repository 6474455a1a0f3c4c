"""A service of its own for each test: a recipe over real engines, the real command line, and a search for orphans."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ROOT / ".engines"
BASCULE = Path(sys.executable).with_name("bascule")


@dataclass
class Desk:
    """Where one test works: its own state folder, run folder and ports."""

    folder: Path
    port: int
    rendezvous_port: int

    @property
    def run_dir(self) -> Path:
        return self.folder / "ranks"

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.folder / "state"), "NO_COLOR": "1"}

    def recipe(
        self, candidates: str, *, service: str = "adder", model: Path = ROOT / "models/adder", more: str = ""
    ) -> Path:
        """Write a recipe over two nodes of this machine."""
        path = self.folder / f"{service}.yaml"
        nodes = "".join(
            f"  - {{name: {name}, host: local, address: 127.0.0.{at}, run_dir: {self.run_dir}}}\n"
            for at, name in enumerate("ab", 1)
        )
        path.write_text(
            f"service: adder\nmodel: {model}\nport: {self.port}\nrendezvous_port: {self.rendezvous_port}\n"
            f"context: 512\nnodes:\n{nodes}{more}candidates:\n{candidates}"
        )
        return path

    def run(self, *words: str | Path, within: float = 180) -> subprocess.CompletedProcess[str]:
        """A command of bascule, to its end."""
        return subprocess.run(
            [BASCULE, *map(str, words)], env=self.env, capture_output=True, text=True, timeout=within, check=False
        )

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """A command of bascule that goes on; its own process group, as under a shell."""
        return subprocess.Popen(
            [BASCULE, *map(str, words)],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def status(self, service: str = "adder") -> dict:
        """What `bascule status` says of a service."""
        return json.loads(self.run("status", service, "--json").stdout)[0]

    def events(self, kind: str | None = None) -> list[dict]:
        """The newest run's events."""
        told = json.loads(self.run("why", "--json").stdout)["events"]
        return [event for event in told if kind in (None, event["kind"])]

    def ours(self) -> dict[int, str]:
        """Every process that a rank of this desk has started, found without bascule: by working folder, by mark in
        the environment, by command line."""
        found = {}
        for proc in Path("/proc").iterdir():
            if proc.name.isdigit() and int(proc.name) != os.getpid() and self._is_ours(proc):
                found[int(proc.name)] = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
        return found

    def _is_ours(self, proc: Path) -> bool:
        mark = str(self.run_dir)
        try:
            if str((proc / "cwd").readlink()).startswith(mark):
                return True
            told = (proc / "environ").read_bytes() + (proc / "cmdline").read_bytes()
            state = (proc / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z" and f"--port\0{self.port}\0".encode() in told

    def wait_for(self, check, within: float = 60, what: str = "") -> None:
        """Wait until check() is true; fail loudly when it never is."""
        until = time.monotonic() + within
        while not check():
            assert time.monotonic() < until, f"never happened within {within} s: {what}"
            time.sleep(0.1)


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# With two threads a token of so small a model takes twice the time, and more where other tests run.
TRANSFORMERS = f"""\
  - engine: transformers
    venv: {ENGINES}/vllm-0.32.0
    nodes: [a]
    args: --device cpu
    env: {{OMP_NUM_THREADS: 1}}
"""
LLAMACPP = f"""\
  - engine: llamacpp
    venv: {ENGINES}/llamacpp
    model: {ENGINES}/adder.gguf
    nodes: [a]
"""
