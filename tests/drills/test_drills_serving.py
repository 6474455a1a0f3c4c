"""Faults of a service of real vLLM over two hosts, as `bascule watch` sees them: one start for all of them."""

from __future__ import annotations

import re
import signal
import threading
import time

import pytest

from bascule.lab import hosts
from drills.rig import NEEDS, Drill, figure

pytestmark = [*NEEDS, pytest.mark.drill]
SOON = 15.0  # seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture
def served(lab, folder):
    """A service that serves: started anew when the test before has ended it."""
    hosts.heal(lab)
    made = Drill(lab, folder)
    made.up(made.recipe())
    yield made
    hosts.heal(lab)


@pytest.fixture(scope="module", autouse=True)
def taken_down(lab, folder):
    yield
    Drill(lab, folder).run("down")


def in_background(drill, tokens, within):
    asking = threading.Thread(target=drill.ask, args=(tokens, within))
    asking.start()
    return asking


def test_a_service_at_rest_and_under_load_gives_no_alarm(served):
    with served.going("watch") as watch:
        assert "serving" in watch.stdout.readline()
        time.sleep(75)  # more than the minute after which silence under load is a standstill
        assert '"completion_tokens":200' in served.ask(200, 120)
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 130
        assert watch.stdout.read() == ""
    assert served.run("watch", "--once", "--probe").returncode == 0


def test_packets_dropped_while_requests_are_open(lab, served):
    with served.going("watch") as watch:
        assert "serving" in watch.stdout.readline()
        hosts.cut(*lab.hosts, networks=("fabric",))
        cut = time.monotonic()
        asking = in_background(served, 3, 200)
        line = watch.stdout.readline()
        took = time.monotonic() - cut
        assert "drill  STANDSTILL  a request has waited" in line
        assert 60 <= took < 100
        assert watch.wait(60) == 1
        said = watch.stderr.read()
        assert served.health() == "200"
    hosts.heal(lab)
    asking.join()
    assert re.match(r"error\[link-cut\]: drill is broken: packets from h[12] to h[12] get lost", said)
    assert "the link between the nodes" in said
    figure(f"standstill {took:.1f} s after the packets were dropped")


def test_a_rank_that_is_stopped_under_load(served):
    with served.going("watch") as watch:
        assert "serving" in watch.stdout.readline()
        asking = in_background(served, 300, 300)
        time.sleep(3)
        served.send(1, signal.SIGSTOP)
        stopped = time.monotonic()
        line = watch.stdout.readline()
        took = time.monotonic() - stopped
        assert "h2  rank 1  STOPPED" in line
        assert took < 2 * SOON
        assert watch.wait(60) == 1
        assert "error[rank-stopped]: drill is broken: rank 1 on h2 is stopped by a signal" in watch.stderr.read()
        served.send(1, signal.SIGCONT)
    asking.join()
    assert served.run("watch", "--once", "--probe").returncode == 0, "it goes on as if nothing had been"
    figure(f"told {took:.1f} s after the signal")


@pytest.mark.parametrize("load", [False, True], ids=["idle", "under load"])
def test_a_rank_that_is_killed(served, load):
    with served.going("watch") as watch:
        assert "serving" in watch.stdout.readline()
        asking = in_background(served, 400, 120) if load else None
        time.sleep(5)
        served.send(1, signal.SIGKILL)
        killed = time.monotonic()
        line = watch.stdout.readline()
        took = time.monotonic() - killed
        assert "h2  rank 1  DEAD  ended without leaving a status (killed)" in line
        assert took < SOON
        assert watch.wait(90) == 1
        assert watch.stderr.read().startswith("error[rank-died]: drill is broken: rank 1 on h2 ended")
    if asking:
        asking.join()
    assert served.status() == "broken"
    figure(f"told {took:.1f} s after the kill")
