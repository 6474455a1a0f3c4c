"""Real vLLM over two hosts: the hang of the story, which every run tests, and a start that is slow and well.

The second takes four minutes: like those in the files beside, `make drills` runs it.
"""

from __future__ import annotations

import re
import signal
import time

import pytest

from bascule.lab import hosts
from drills.rig import NEEDS, Limited, figure, seconds

pytestmark = NEEDS
SOON = 15.0  # seconds; it is 1 s where the machine is not busy, and has to be below 5


def test_an_advertised_address_that_the_peer_cannot_reach(lab, drill):
    """The LAN between the hosts is cut, the fabric is fine, and rank 0's queue is told the LAN's address."""
    lan, fabric = lab.hosts[0].address("lan"), lab.hosts[0].address("fabric")
    hosts.cut(*lab.hosts, networks=("lan",))
    with drill.going("up", drill.recipe(f", VLLM_HOST_IP: {lan}")) as run:
        assert run.wait(800) == 0, run.stderr.read()
    stalled, served = drill.findings()
    assert (stalled["code"], stalled["fate"]) == ("address-unreachable", "adjust")
    assert stalled["says"].startswith(f"h1 advertised {lan}:")
    assert "which listens there, without an answer" in stalled["evidence"][0]["excerpt"]
    assert stalled["change"] == {"kind": "env", "name": "VLLM_HOST_IP", "value": fabric, "node": "h1"}
    assert served["code"] == "engine-up"
    (stood,) = [event for event in drill.events("standing") if event["data"]["verdict"] == "STALLED"]
    queued = [e for e in drill.events("phase") if e["data"]["phase"] == "queue" and e["at"] < stood["at"]]
    assert 45 < seconds(queued[-1], stood) <= 60
    kept = {path.name for path in (drill.folder / "bascule/evidence").rglob("capture1/*")}
    assert {"h1.sockets.txt", "h2.sockets.txt", "h1.stacks.txt", "h2.network.txt", "counters.csv"} <= kept
    assert drill.status() == "serving"


@pytest.mark.drill
def test_a_start_that_is_held_back_is_never_called_stalled_and_a_killed_rank_is_seen_while_health_is_green(drill):
    """Both ranks get 5 % of a core for 80 s while they import; then the service is idle, and rank 1 is killed."""
    with Limited("bascule-drill", percent=5) as limited, drill.going("up", drill.recipe()) as run:
        drill.wait_for("import", 1)
        until = time.monotonic() + 80
        while time.monotonic() < until:
            limited.take(drill.pids(0) + drill.pids(1))
            time.sleep(2)
        assert not drill.alarms()
        assert [event["data"]["phase"] for event in drill.events("phase")] == ["import", "import"], "it was slow indeed"
        limited.set(percent=0)
        assert run.wait(800) == 0, run.stderr.read()
    assert not drill.alarms()
    assert [finding["code"] for finding in drill.findings()] == ["engine-up"]

    with drill.going("watch") as watch:
        assert "serving" in watch.stdout.readline()
        time.sleep(5)
        drill.send(1, signal.SIGKILL)
        killed = time.monotonic()
        line = watch.stdout.readline()
        saw = time.monotonic() - killed
        assert re.search(r"h2  rank 1  DEAD  ended without leaving a status \(killed\)", line)
        assert saw < SOON
        assert drill.health() == "200", "the head has not noticed"
        assert watch.wait(90) == 1
        assert watch.stderr.read().startswith("error[rank-died]: drill is broken: rank 1 on h2 ended")
    assert drill.run("watch", "--once").returncode == 1
    assert drill.status() == "broken"
    figure(f"the line came {saw:.2f} s after the kill")
