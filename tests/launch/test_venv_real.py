"""Ranks as processes of this machine: two that have the same name, in run folders of their own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Node, RankPlan
from bascule.launch.venv import VenvRuntime
from bascule.remote.local import LocalRunner

NAME = "s.1.1.r0"
AWAY = "setsid sleep 300 & echo $! >away; wait"  # a process that leaves the session of its rank


def test_a_rank_is_stopped_with_what_left_its_session_and_its_namesake_elsewhere_lives(tmp_path):
    nodes = [Node(name, "local", facts=NodeFacts(run_dir=str(tmp_path / name / "ranks"))) for name in ("one", "two")]
    plan = RankPlan(0, "a", ("/bin/sh", "-c", AWAY), {})
    runtime, runners = VenvRuntime(), [LocalRunner(node) for node in nodes]

    def started(node):
        path = tmp_path / node.name / "ranks" / NAME / "away"
        for _ in range(100):
            if path.exists() and path.read_text().strip():
                return int(path.read_text())
            time.sleep(0.05)
        raise AssertionError("the rank did not start")

    async def alive():
        found = [await runtime.find(*pair) for pair in zip(runners, nodes, strict=True)]
        return [one.alive for states in found for one in states]

    async def all_of_it():
        for runner, node in zip(runners, nodes, strict=True):
            assert (await runtime.start(runner, node, NAME, plan, {})).ok
        away = [started(node) for node in nodes]
        before = await alive()
        await runtime.stop(runners[0], nodes[0], [NAME], 1)
        between, left = await alive(), [_lives(pid) for pid in away]
        await runtime.stop(runners[1], nodes[1], [NAME], 1)
        return before, between, left, [_lives(pid) for pid in away]

    assert asyncio.run(all_of_it()) == ([True, True], [False, True], [False, True], [False, False])


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
