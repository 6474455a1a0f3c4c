"""The same life over a real sshd: served, seen, out of reach for a moment, out of reach for good."""

from __future__ import annotations

import time

import pytest

from lifecycle.desk import TRANSFORMERS

pytestmark = pytest.mark.engine


def recipe_over(desk, sshd):
    """The engine runs on b, which is reached by ssh and has a run folder of its own; a is this machine."""
    path = desk.recipe(TRANSFORMERS.replace("nodes: [a]", "nodes: [b]"))
    local = f"name: b, host: local, address: 127.0.0.2, run_dir: {desk.run_dir}"
    over_ssh = f"name: b, host: {sshd.alias}, address: 127.0.0.2, run_dir: {desk.run_dir}/b"
    path.write_text(path.read_text().replace(local, over_ssh))
    return path


def test_served_over_ssh_seen_and_stopped(desk, sshd):
    told = desk.run("up", recipe_over(desk, sshd))
    assert told.returncode == 0, told.stderr
    status = desk.status()
    assert status["state"] == "serving" and [rank["node"] for rank in status["ranks"]] == ["b"]
    assert "b 0 | " in desk.run("logs").stdout

    sshd.stop()
    unseen = desk.run("status")
    assert unseen.returncode == 3 and "unknown" in unseen.stdout
    refused = desk.run("down")
    assert refused.returncode == 3 and desk.ours()  # nothing is claimed that was not seen
    sshd.start()
    assert desk.run("down").returncode == 0 and not desk.ours()


def test_a_moment_without_ssh_does_not_end_a_start(desk, sshd):
    up = desk.start("up", recipe_over(desk, sshd))
    logs = desk.folder / "state/bascule/evidence"
    desk.wait_for(lambda: list(logs.rglob("rank0.log")), what="the rank is followed")
    sshd.stop()
    time.sleep(3)
    sshd.start()
    _, err = up.communicate(timeout=120)
    assert up.returncode == 0, err
    desk.run("down")
