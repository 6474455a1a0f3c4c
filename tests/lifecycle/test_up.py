"""`bascule up` with a real engine: it serves, is found again, is left alone, and goes away entirely."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from drills.rig import Limited
from lifecycle.desk import LLAMACPP, ROOT, TRANSFORMERS

pytestmark = pytest.mark.engine


def test_serves_is_adopted_and_goes_down(desk):
    recipe = desk.recipe(TRANSFORMERS)
    first = desk.run("up", recipe)
    assert first.returncode == 0, first.stderr
    assert "serving" in first.stderr and "17 + 25" not in first.stdout

    status = desk.status()
    assert status["state"] == "serving"
    assert [(rank["rank"], rank["node"], rank["alive"]) for rank in status["ranks"]] == [(0, "a", True)]
    assert "Application startup complete" in desk.run("logs").stdout
    why = desk.run("why", "--evidence").stdout
    assert "because" in why and "rank0.log" in why and "answer0.sse" in why
    assert json.loads(desk.run("logs", "--json").stdout.splitlines()[0])["rank"] == 0

    second = desk.run("up", recipe)
    assert second.returncode == 0 and "adopted" in second.stderr
    assert desk.status()["ranks"][0]["pid"] == status["ranks"][0]["pid"]

    asked = subprocess.run(
        [sys.executable, ROOT / "examples/ask.py", "adder", "What is 86 + 57?"],
        env=desk.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "answer     143" in asked.stdout

    down = desk.run("down")
    assert down.returncode == 0 and "rank 0 on a" in down.stdout
    assert desk.status()["state"] == "stopped"
    assert not desk.ours() and not list(desk.run_dir.iterdir())
    assert "nothing was running" in desk.run("down").stdout


def test_a_changed_recipe_is_not_adopted(desk):
    desk.run("up", desk.recipe(TRANSFORMERS))
    pid = desk.status()["ranks"][0]["pid"]
    again = desk.run("up", desk.recipe(TRANSFORMERS.replace("--device cpu", "--device cpu --dtype float32")))
    assert again.returncode == 0 and "adopted" not in again.stderr and "not what this recipe starts" in again.stderr
    assert desk.status()["ranks"][0]["pid"] != pid
    desk.run("down")


def test_pivots_past_an_engine_that_leaks_its_reasoning(desk):
    told = desk.run("up", desk.recipe(LLAMACPP + TRANSFORMERS))
    assert told.returncode == 0, told.stderr
    found = {e["data"]["candidate"]["engine"]: e["data"]["finding"]["code"] for e in desk.events("finding")}
    assert found == {"llamacpp": "tags-leaked", "transformers": "verified"}
    desk.run("down")


def test_only_engines_that_fail_verification_end_with_5(desk):
    told = desk.run("up", desk.recipe(LLAMACPP))
    assert told.returncode == 5
    assert "tags-leaked" in told.stderr and not desk.ours()


def test_a_damaged_model_is_not_served(desk, tmp_path):
    damaged = tmp_path / "damaged"
    subprocess.run([sys.executable, ROOT / "models/damage_adder.py", ROOT / "models/adder", damaged], check=True)
    told = desk.run("up", desk.recipe(TRANSFORMERS, model=damaged))
    assert told.returncode == 5, told.stderr
    assert [e["data"]["finding"]["code"] for e in desk.events("finding")][-1] in ("wrong-answer", "reasoning-missing")


def test_json_is_one_event_a_line_and_ends_with_the_status(desk):
    told = desk.run("up", desk.recipe(LLAMACPP), "--json")
    events = [json.loads(line) for line in told.stdout.splitlines()]
    assert events[0]["kind"] == "run-started" and events[-1] == {**events[-1], "kind": "run-ended", "status": 5}


def test_the_second_up_of_a_service_is_refused_and_names_the_first(desk):
    recipe = desk.recipe(TRANSFORMERS)
    first = desk.start("up", recipe)
    desk.wait_for(desk.ours, what="the first up starts a rank")
    second = desk.run("up", recipe)
    assert second.returncode == 2
    assert "service-busy" in second.stderr and f"pid {first.pid}" in second.stderr
    refused = desk.run("down")
    assert refused.returncode == 2 and f"pid {first.pid}" in refused.stderr
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130


def test_ctrl_c_stops_what_was_started_and_says_so(desk):
    up = desk.start("up", desk.recipe(TRANSFORMERS))
    desk.wait_for(desk.ours, what="a rank is started")
    up.send_signal(signal.SIGINT)
    _, err = up.communicate(timeout=60)
    assert up.returncode == 130
    assert "interrupted" in err and "rank 0 on a" in err
    assert not desk.ours() and not list(desk.run_dir.iterdir())


def test_a_rank_that_dies_is_seen_and_its_words_are_told(desk):
    up = desk.start("up", desk.recipe(TRANSFORMERS))
    desk.wait_for(lambda: any("transformers" in line for line in desk.ours().values()), what="a rank is started")
    engine = next(pid for pid, line in desk.ours().items() if "-m transformers" in line and "sh" not in line.split()[0])
    with Limited("bascule-stranger", memory=20 * 2**20) as limited:  # another's end is not taken for that of the rank
        stranger = subprocess.Popen(["sh", "-c", "read -r go; x=1; while :; do x=$x$x; done"], stdin=subprocess.PIPE)
        limited.take([stranger.pid])
        stranger.communicate(b"go\n")
    assert stranger.returncode == -signal.SIGKILL
    killed = datetime.now(UTC)
    os.kill(engine, signal.SIGKILL)
    _, err = up.communicate(timeout=30)
    assert up.returncode == 4
    assert "rank 0 on a ended with status 137" in err
    (seen,) = desk.events("rank-ended")
    assert (datetime.fromisoformat(seen["at"]) - killed).total_seconds() < 5


def test_a_taken_port_is_named_with_its_holder(desk):
    with socket.create_server(("127.0.0.1", desk.port)):
        told = desk.run("up", desk.recipe(TRANSFORMERS))
    assert told.returncode == 4
    assert "api-port-taken" in told.stderr and f"pid {os.getpid()}" in told.stderr and "another `port`" in told.stderr
    assert not desk.ours()


def test_logs_follow_until_the_ranks_end(desk):
    desk.run("up", desk.recipe(TRANSFORMERS))
    follow = desk.start("logs", "-f")
    desk.run("down")
    out, _ = follow.communicate(timeout=30)
    assert follow.returncode == 0 and "a 0 | " in out
