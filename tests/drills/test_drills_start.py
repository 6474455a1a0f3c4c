"""Faults of a start of real vLLM over two hosts: the verdict, its time, and what is told to do about it."""

from __future__ import annotations

import signal
import time

import pytest

from bascule.lab import hosts
from drills.rig import NEEDS, Limited, figure

pytestmark = [*NEEDS, pytest.mark.drill]
STILL = 75.0  # seconds from the last movement to the verdict: 60 and what a busy machine adds
SLEEPS = "import time; time.sleep(1e6)"
SPINS = "while True: pass"


def ended(run, drill, status=4):
    """The one finding of the watch, once `up` has ended with a status."""
    assert run.wait(800) == status, run.stderr.read()
    (finding,) = drill.findings()
    return finding


def verdict_after(drill, began):
    """Seconds to the verdict that called the start off: from a moment, or from the last phase that a rank came into."""
    began = max(began, *(event["at"].timestamp() for event in drill.events("phase")))
    told = [event for event in drill.events("standing") if event["data"]["verdict"] in ("STALLED", "SPINNING")]
    assert len(told) == 1, "one verdict, and no false one before it"
    took = float(told[0]["at"].timestamp() - began)
    figure(f"{told[0]['data']['verdict']} after {took:.1f} s")
    return took


def only_ports(lab, *ports):
    """On the fabric only these ports of the first host are open, as behind a firewall."""
    for host in lab.hosts:
        words = [
            "iptables -w -A INPUT -i fab0 -p tcp -m multiport --ports PORTS -j ACCEPT",
            "iptables -w -A INPUT -i fab0 -p tcp -j DROP",
        ]
        for line in words:
            script = line.replace("PORTS", ",".join(map(str, ports)))
            hosts._run(hosts.inside(host, ("sh", "-c", script)))


def test_packets_dropped_before_the_rendezvous(lab, drill):
    with drill.going("up", drill.recipe()) as run:
        drill.wait_for("config", 1)
        hosts.cut(*lab.hosts, networks=("fabric",))
        finding = ended(run, drill)
    assert (finding["code"], finding["fate"]) == ("address-unreachable", "unknown")
    assert finding["says"] == "h1 advertised 10.86.0.1:29500, which rank 1 can't reach"


def test_packets_dropped_during_the_rendezvous(lab, drill):
    """The port of the rendezvous is open, those on which the ranks connect to each other are not."""
    with drill.going("up", drill.recipe()) as run:
        drill.wait_for("config", 1)
        only_ports(lab, 29500)
        finding = ended(run, drill)
    assert finding["code"] == "address-unreachable"


@pytest.mark.parametrize("phase", ["joined", "loaded"])
def test_packets_dropped_after_the_rendezvous(lab, drill, phase):
    with drill.going("up", drill.recipe()) as run:
        drill.wait_for(phase, 1)
        hosts.cut(*lab.hosts, networks=("fabric",))
        cut = time.time()
        finding = ended(run, drill)
    assert (finding["code"], finding["fate"]) == ("link-cut", "cluster")
    assert "without an answer" in finding["evidence"][0]["excerpt"]
    assert verdict_after(drill, cut) < STILL


@pytest.mark.parametrize(("code", "named", "within"), [(SLEEPS, "start-stalled", STILL), (SPINS, "rank-spinning", 140)])
def test_a_rank_that_never_begins(lab, drill, code, named, within):
    """Its process is there and does nothing, or does nothing useful; the other waits for it."""
    place = lab.host_folder(lab.hosts[1]) / "tmp/birth"
    place.mkdir(exist_ok=True)
    place.joinpath("sitecustomize.py").write_text(code)
    with drill.going("up", drill.recipe(on_h2=", PYTHONPATH: /tmp/birth")) as run:
        drill.wait_for("import", 1)
        drill.hurry(1)
        finding = ended(run, drill)
    assert (finding["code"], finding["fate"]) == (named, "unknown")
    assert "rank 1 is in import" in finding["says"].split(";")[0]
    assert verdict_after(drill, 0.0) < within


def test_a_rank_that_is_stopped_by_a_signal(lab, drill):
    """Rank 1 is frozen in the rendezvous: the others wait for it, and it is the one that is named."""
    with drill.going("up", drill.recipe()) as run:
        drill.wait_for("rendezvous", 1)
        drill.send(1, signal.SIGSTOP)
        stopped = time.time()
        try:
            finding = ended(run, drill)
        finally:
            drill.send(1, signal.SIGCONT)
    assert (finding["code"], finding["fate"]) == ("start-stalled", "unknown")
    assert "rank 1" in finding["says"].split(";")[0]
    assert verdict_after(drill, stopped) < STILL


def test_a_rank_that_dies_while_it_starts_is_seen_at_once(lab, drill):
    with drill.going("up", drill.recipe()) as run:
        drill.wait_for("rendezvous", 1)
        drill.send(1, signal.SIGKILL)
        killed = time.time()
        finding = ended(run, drill)
    (gone,) = [event for event in drill.events("rank-ended") if event["data"]["rank"] == 1]
    assert gone["at"].timestamp() - killed < 15
    assert (finding["code"], finding["fate"]) == ("rank-died", "unknown")


def test_a_rank_that_gets_too_little_memory(lab, drill):
    with Limited("bascule-drill", memory=500 * 2**20) as limited, drill.going("up", drill.recipe()) as run:
        drill.wait_for("import", 1)
        while not drill.events("rank-ended") and run.poll() is None:
            limited.take(drill.pids(1))
            time.sleep(0.5)
        finding = ended(run, drill)
    assert (finding["code"], finding["fate"]) == ("kernel-oom", "hopeless")
    assert finding["evidence"][0]["node"] == "h2"


def test_a_disk_that_fills_while_a_rank_starts(lab, drill):
    drill.inside(1, "mkdir -p /run/small; mountpoint -q /run/small || mount -t tmpfs -o size=80m tmpfs /run/small")
    try:
        with drill.going("up", drill.recipe(h2=", run_dir: /run/small")) as run:
            drill.wait_for("import", 1)
            drill.inside(1, "dd if=/dev/zero of=/run/small/fill bs=4k 2>/dev/null || true")
            finding = ended(run, drill)
    finally:
        drill.run("down")
        drill.inside(1, "rm -rf /run/small/*; umount /run/small || umount -l /run/small")
    assert (finding["code"], finding["fate"]) == ("disk-full", "cluster")
