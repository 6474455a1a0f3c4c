"""What the tests of the sampler share: real ranks on this machine, started as the venv runtime starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Node, RankPlan
from bascule.launch.venv import start_script
from bascule.remote.local import LocalRunner
from bascule.watch.sampler import Sampler, Watched

HERE = Path(__file__).parent


def recorded(name: str) -> str:
    """An answer of the sampler's commands, as it was seen on a machine of this kind."""
    return (HERE / "looks" / f"{name}.txt").read_text()


@dataclass
class Ranks:
    """Ranks of one node in a folder."""

    folder: Path
    names: list[str] = field(default_factory=list)

    @property
    def node(self) -> Node:
        return Node("a", "local", address="127.0.0.1", facts=NodeFacts(run_dir=str(self.folder), gpus=()))

    @property
    def watched(self) -> list[Watched]:
        return [Watched(rank, "a", name, interface="lo") for rank, name in enumerate(self.names)]

    def start(self, script: str, before: tuple[str, ...] = (), env: dict[str, str] | None = None) -> int:
        """Start a rank that runs a shell script; its leader's pid."""
        rank = len(self.names)
        name = f"t{os.getpid()}.1.r{rank}"
        plan = RankPlan(rank, "a", ("/bin/sh", "-c", script), env or {})
        words = (*before, "sh", "-s")
        subprocess.run(words, input=start_script(str(self.folder), name, plan, {}).encode(), check=True, timeout=20)
        self.names.append(name)
        return int((self.folder / name / "pid").read_text().split()[0])

    def sampler(self, clock=time.monotonic) -> Sampler:
        return Sampler(LocalRunner(self.node), self.node, self.watched, clock=clock)

    def log(self, rank: int = 0) -> str:
        return (self.folder / self.names[rank] / "log").read_text()

    def wait_for(self, word: str, rank: int = 0) -> None:
        """Until the rank's log has this word."""
        end = time.monotonic() + 20
        while word not in self.log(rank):
            assert time.monotonic() < end, self.log(rank)
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill the sessions of these ranks, and whatever carries their mark."""
        marks = [f"BASCULE_RANK={self.folder}/{name}".encode() for name in self.names]
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if set(marks) & set(place.joinpath("environ").read_bytes().split(b"\0")):
                    os.kill(int(place.name), signal.SIGKILL)
