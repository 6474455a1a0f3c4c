"""What can go wrong during a copy, with real parts: it ends in a named finding, a resume, or a clean target."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bascule.core.nouns import Fate, Finding
from bascule.distribute.images.copy import CopyProgress, Receipt
from bascule.lab import hosts
from distribute_images.conftest import MIB, Bench, build

pytestmark = pytest.mark.lab

WHOLE = 36 * MIB  # bytes of img:v1, a little less than travels


def at(share: float, do: Callable[[], object]) -> Callable[[CopyProgress], None]:
    """A watcher that does something once, when so much of the copy is there."""
    done: list[bool] = []

    def watch(progress: CopyProgress) -> None:
        if not done and progress.total and progress.done >= share * progress.total:
            done.append(True)
            do()

    return watch


def arrived(bench: Bench, outcome: Receipt | Finding, host: str = "h2", image: str = "img:v1") -> Receipt:
    assert isinstance(outcome, Receipt), outcome
    assert bench.layers(host, image) == bench.layers("h1", image)
    assert [name for name in bench.references(host) if "bascule-copy" in name] == []
    assert bench.spooled(host) == []
    return outcome


def slow(bench: Bench, host: str = "h2", rate: str = "150mbit") -> None:
    hosts.limit(bench.host(host), "fabric", rate)


def test_a_connection_that_is_cut_at_any_byte_goes_on_where_it_was(bench: Bench) -> None:
    slow(bench)
    share = random.Random().uniform(0.2, 0.8)
    words = "ss -Htnp state established '( dport != :22 and sport != :22 )'"  # for the log of a failure
    kill = at(share, lambda: bench.run("h2", "sh", "-c", f"{words}; pkill -u op -x sshd"))
    got = arrived(bench, bench.copy("img:v1", "root@h1", "h2", watch=kill)["h2"])
    assert got.resumed > 0
    assert WHOLE < got.sent + got.resumed < WHOLE * 1.02


def test_a_network_that_is_gone_for_seconds_costs_no_byte_twice(bench: Bench) -> None:
    slow(bench)
    cut = at(0.3, lambda: hosts.cut(bench.host("h1"), bench.host("h2"), ("fabric",)))

    async def both() -> Receipt | Finding:
        copying = asyncio.create_task(bench.copying("img:v1", "root@h1", "h2", watch=cut))
        await asyncio.sleep(6)
        await asyncio.to_thread(hosts.heal, bench.lab)
        return (await copying)["h2"]

    assert arrived(bench, asyncio.run(both())).sent < WHOLE * 1.1


def test_a_killed_controller_leaves_no_process_and_the_next_copy_resumes(bench: Bench) -> None:
    slow(bench)
    child = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    assert child.stdout
    for line in child.stdout:
        if json.loads(line) > 0.5:
            break
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    ended = time.monotonic() + 10
    while any(bench.run(host, "pgrep", "-f", "bascule-helper", check=False) for host in ("h1", "h2")):
        assert time.monotonic() < ended
        time.sleep(0.1)
    hosts.heal(bench.lab)
    got = arrived(bench, bench.copy("img:v1", "root@h1", "h2")["h2"])
    assert got.resumed > 0.4 * WHOLE
    assert WHOLE < got.sent + got.resumed < WHOLE * 1.02


def test_a_disk_that_is_too_small_is_told_before_a_byte(bench: Bench) -> None:
    bench.run("h2", "sh", "-c", "mkdir -p /home/op/.cache && mount -t tmpfs -o size=20m tmpfs /home/op/.cache")
    bench.run("h2", "chmod", "777", "/home/op/.cache")
    try:
        got = bench.copy("img:v1", "root@h1", "h2", "h3")
        spooled = bench.spooled("h2")
    finally:
        bench.run("h2", "umount", "/home/op/.cache")
    assert isinstance(got["h2"], Finding)
    assert (got["h2"].code, got["h2"].fate) == ("image-no-room", Fate.CLUSTER)
    assert "0.02 GB free" in got["h2"].says
    assert spooled == []
    arrived(bench, got["h3"], "h3")


def test_a_disk_that_fills_up_during_the_copy_is_given_back(bench: Bench) -> None:
    slow(bench)
    bench.run("h2", "sh", "-c", "mkdir -p /home/op/.cache && mount -t tmpfs -o size=60m tmpfs /home/op/.cache")
    bench.run("h2", "chmod", "777", "/home/op/.cache")
    fill = at(0.4, lambda: bench.run("h2", "sh", "-c", "cat /dev/zero > /home/op/.cache/full", check=False))
    try:
        got = bench.copy("img:v1", "root@h1", "h2", "h3", watch=fill)
        spooled = bench.spooled("h2")
    finally:
        bench.run("h2", "umount", "-l", "/home/op/.cache")
    assert isinstance(got["h2"], Finding)
    assert (got["h2"].code, got["h2"].fate) == ("image-no-room", Fate.CLUSTER)
    assert spooled == []
    assert bench.references("h2") == []
    arrived(bench, got["h3"], "h3")


@pytest.mark.parametrize("method", ["pull", "load"])
def test_a_dockerd_that_is_restarted_meanwhile_is_waited_for(bench: Bench, method: str) -> None:
    if method == "load":
        build(bench, "img:base", (("base", 12),))
        bench.copy("img:base", "root@h1", "h2")
    slow(bench)

    def restart() -> None:
        hosts.stop(bench.lab, bench.host("h2"), "dockerd")
        time.sleep(0.5)
        hosts.start(bench.lab, bench.host("h2"), "dockerd")

    got = arrived(bench, bench.copy("img:v1", "root@h1", "h2", watch=at(0.6, restart))["h2"])
    assert got.method == method
    assert got.sent + got.resumed < WHOLE * 1.02


def test_an_image_that_is_removed_from_the_source_meanwhile_is_named(bench: Bench) -> None:
    build(bench, "img:short", (("short", 30), ("lived", 10)))
    slow(bench)
    remove = at(0.3, lambda: bench.run("h1", "docker", "rmi", "-f", "img:short"))
    got = bench.copy("img:short", "root@h1", "h2", watch=remove)["h2"]
    assert isinstance(got, Finding)
    assert got.code in ("artefact-missing", "image-removed")
    assert bench.references("h2") == []


def test_a_damaged_layer_never_arrives(bench: Bench) -> None:
    build(bench, "img:bad", (("good", 4), ("bad", 6)))
    bench.run(
        "h1", "sh", "-c", "printf x | dd of=$(ls -d /run/host/docker/overlay2/*/diff/bad/3) conv=notrunc seek=77 bs=1"
    )
    got = bench.copy("img:bad", "root@h1", "h2", "h3")
    bench.run("h1", "docker", "rmi", "img:bad")
    for name in ("h2", "h3"):
        outcome = got[name]
        assert isinstance(outcome, Finding)
        assert (outcome.code, outcome.fate) == ("image-damaged", Fate.HOPELESS)
        assert bench.references(name) == []


@pytest.mark.parametrize(
    ("targets", "method", "rate"), [(("h2",), "pull", ""), (("h2", "h3"), "load", ""), (("h2", "h3"), "load", "60mbit")]
)
def test_bytes_that_changed_in_a_spool_are_fetched_again(
    bench: Bench, targets: Sequence[str], method: str, rate: str
) -> None:
    """Two targets share these cores: they load, and docker finds the layer that is wrong, also while more comes."""
    if rate:
        slow(bench, rate=rate)
    diff_id = bench.run("h1", "docker", "image", "inspect", "-f", "{{index .RootFS.Layers 0}}", "img:v1")
    spool = "/home/op/.cache/bascule/spool"
    words = f"mkdir -p {spool} && head -c 5000000 /dev/urandom > {spool}/{diff_id.replace(':', '-')}.part"
    bench.run("h2", "sh", "-c", f"{words}; chown -R op:op /home/op/.cache")
    got = bench.copy("img:v1", "root@h1", *targets)
    assert [arrived(bench, got[name]).method for name in targets] == [method] * len(targets)


def test_two_copies_at_once_to_one_target_send_it_once(bench: Bench) -> None:
    async def twice() -> list[dict[str, Receipt | Finding]]:
        return list(await asyncio.gather(*(bench.copying("img:v1", "root@h1", "h2") for _ in range(2))))

    got = [arrived(bench, each["h2"]) for each in asyncio.run(twice())]
    assert sorted(each.method for each in got) == ["nothing", "pull"]


def test_an_sshd_that_sends_beginners_away_is_asked_again(bench: Bench) -> None:
    config = bench.lab.host_folder(bench.host("h3")) / "sshd_config"
    before = config.read_text()
    config.write_text(before + "MaxStartups 1:100:1\n")
    hosts.stop(bench.lab, bench.host("h3"), "sshd")
    hosts.start(bench.lab, bench.host("h3"), "sshd")
    address = (bench.host("h3").address("lan"), 22)
    time.sleep(1)
    held = [socket.create_connection(address) for _ in range(3)]

    async def crowded() -> Receipt | Finding:
        copying = asyncio.create_task(bench.copying("img:v1", "root@h1", "h3"))
        await asyncio.sleep(1.5)
        for each in held:
            each.close()
        return (await copying)["h3"]

    try:
        arrived(bench, asyncio.run(crowded()), "h3")
    finally:
        config.write_text(before)


def test_a_dead_target_does_not_stop_the_others(bench: Bench) -> None:
    slow(bench, "h3")
    slow(bench, "h2")
    dead = at(0.3, lambda: bench.run("h2", "sh", "-c", "touch /run/host/sshd.stopped; pkill -x sshd"))
    got = bench.copy("img:v1", "root@h1", "h2", "h3", watch=dead)
    arrived(bench, got["h3"], "h3")
    assert isinstance(got["h2"], Finding)
    assert (got["h2"].code, got["h2"].fate) == ("node-unreachable", Fate.AGAIN)


# Prints how far it is and copies: the controller that will be killed.
CONTROLLER = """
import asyncio
from bascule.core.nouns import Node
from bascule.distribute.images.copy import copy_image
from bascule.remote.connect import connect
nodes = [Node("h1", "root@h1"), Node("h2", "h2")]
tell = lambda at: print(at.done / at.total, flush=True)
asyncio.run(copy_image("img:v1", nodes[0], nodes[1:], connect(nodes), tell))
"""
