"""Faults with real parts: cuts, kills, a full disk, a changing source, flipped bytes, two at once, no python3."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading

import pytest

from bascule.core.nouns import Fate
from bascule.distribute.weights.progress import Receipt
from bascule.lab import hosts
from distribute_weights.conftest import MIB, tree, wait_for

pytestmark = pytest.mark.lab

SIZE = 160 * MIB  # three ranges


def model(bench, host="h1", size=SIZE):
    bench.write(host, {"m/a.safetensors": os.urandom(size), "m/config.json": b"{}", "m/tokenizer.json": b"[]"})


def until(bytes_there, action):
    """A listener to progress that acts once, when a target holds so many bytes."""
    done = threading.Event()

    def look(seen):
        if seen.bytes >= bytes_there and not done.is_set():
            done.set()
            action()

    return look


def is_right(bench, host):
    return tree(bench.home(host) / "m") == tree(bench.home("h1") / "m")


def nothing_visible(bench, host):
    return not (bench.home(host) / "m").exists()


def test_cut_in_mid_file_then_resumed(bench):
    model(bench)
    bench.limit("h2", "400mbit")

    def cut():
        hosts.cut(bench.hosts["h1"], bench.hosts["h2"])
        hosts.stop(bench.lab, bench.hosts["h2"], "sshd")  # nor does the way through ssh remain

    found = bench.copy("~/m", "h2", on_progress=until(135 * MIB, cut))["h2"]
    assert (found.code, found.fate) == ("weights-cut", Fate.AGAIN)
    assert nothing_visible(bench, "h2")
    kept = bench.journaled("h2", "m")
    assert kept >= 64 * MIB
    hosts.heal(bench.lab)
    wait_for(lambda: not bench.copy("~/nothing", "h2")["h2"].code.startswith("node"))
    done = bench.copy("~/m", "h2")["h2"]
    assert isinstance(done, Receipt), done
    assert done.sent == SIZE + 4 - kept
    assert is_right(bench, "h2")


def test_cut_between_the_nodes_goes_on_through_ssh(bench):
    model(bench)
    bench.limit("h2", "400mbit")
    cut = until(135 * MIB, lambda: hosts.cut(bench.hosts["h1"], bench.hosts["h2"]))
    done = bench.copy("~/m", "h2", on_progress=cut)["h2"]
    assert isinstance(done, Receipt), done
    assert done.route == "from h1 through ssh"
    assert is_right(bench, "h2")


def test_dead_target_does_not_stop_the_one_behind_it(bench):
    model(bench)
    bench.limit("h2", "400mbit")
    dies = until(100 * MIB, lambda: hosts.stop(bench.lab, bench.hosts["h2"], "sshd"))
    done = bench.copy("~/m", "h2", "h3", on_progress=dies)
    assert done["h2"].code == "weights-cut"
    assert isinstance(done["h3"], Receipt), done
    assert "from h1" in done["h3"].route
    assert is_right(bench, "h3")


def test_killed_controller_then_run_again(bench):
    model(bench)
    bench.limit("h2", "400mbit")
    process = bench.start("~/m", "h2")
    journal = bench.home("h2") / ".m.bascule-part/journal"
    wait_for(lambda: journal.exists() and bench.journaled("h2", "m") >= 64 * MIB)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    bench.limit("h2", "")
    done = bench.copy("~/m", "h2")["h2"]
    assert isinstance(done, Receipt), done
    assert done.sent <= SIZE + 4 - 64 * MIB
    assert is_right(bench, "h2")


def test_byte_flipped_on_the_disk_between_two_tries_is_found_and_cured(bench):
    model(bench)
    bench.limit("h2", "400mbit")
    process = bench.start("~/m", "h2")
    journal = bench.home("h2") / ".m.bascule-part/journal"
    wait_for(lambda: journal.exists() and bench.journaled("h2", "m") >= 64 * MIB)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    bench.limit("h2", "")
    part = bench.home("h2") / ".m.bascule-part/data/a.safetensors"
    rows = [row for line in journal.read_text().splitlines() for row in json.loads(line) if row[0] == "a.safetensors"]
    flip(part, rows[0][2] + 1000)
    done = bench.copy("~/m", "h2")["h2"]
    assert isinstance(done, Receipt), done
    assert done.notes == ("1 files were wrong and came again: a.safetensors",)
    assert is_right(bench, "h2")


def flip(path, offset):
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def test_too_little_room_and_a_disk_that_becomes_full(bench):
    bench.write("h1", {"small/m/a.safetensors": os.urandom(SIZE)})
    for host in ("h2", "h3"):
        bench.write(host, {"small/x": b""})
    bench.run("h2", "mount -t tmpfs -o size=100m,uid=64001 tmpfs /home/op/small")
    try:
        found = bench.copy("~/small/m", "h2")["h2"]
        assert (found.code, found.fate) == ("weights-no-room", Fate.CLUSTER)
        assert "0.17 GB are to come and 0.10 GB are free" in found.says
        bench.run("h2", "mount -o remount,size=220m /home/op/small")
        bench.limit("h2", "400mbit")
        fill = until(60 * MIB, lambda: bench.run("h2", "head -c 120M /dev/zero > /home/op/small/other"))
        done = bench.copy("~/small/m", "h2", "h3", on_progress=fill)
        assert (done["h2"].code, done["h2"].fate) == ("weights-no-room", Fate.CLUSTER), done
        bench.run("h2", "test ! -e /home/op/small/m")
        assert isinstance(done["h3"], Receipt), done
        bench.run("h2", "rm /home/op/small/other")
        assert isinstance(bench.copy("~/small/m", "h2")["h2"], Receipt)
    finally:
        bench.run("h2", "umount /home/op/small")


def test_source_that_changes_never_makes_a_mixed_folder(bench):
    model(bench)
    bench.limit("h2", "400mbit")
    config = bench.home("h1") / "m/config.json"  # sent already by then
    config.write_text('{"a":  1}')
    done = bench.copy("~/m", "h2", "h3", on_progress=until(100 * MIB, lambda: config.write_text("{}")))
    for host in ("h2", "h3"):
        assert (done[host].code, done[host].fate) == ("weights-changed", Fate.AGAIN), done
        assert "config.json" in done[host].says
        assert nothing_visible(bench, host)
    bench.limit("h2", "")
    again = bench.copy("~/m", "h2", "h3")
    assert isinstance(again["h2"], Receipt), again
    assert again["h2"].sent < MIB
    assert is_right(bench, "h2")
    assert is_right(bench, "h3")


def test_two_copies_at_once(bench):
    model(bench)
    bench.limit("h2", "200mbit")

    async def both():
        return await asyncio.gather(bench.copying("~/m", "h2"), bench.copying("~/m", "h2"))

    outcomes = [done["h2"] for done in asyncio.run(both())]
    receipts = [each for each in outcomes if isinstance(each, Receipt)]
    busy = [each for each in outcomes if each not in receipts]
    assert len(receipts) == 1, outcomes
    assert [(each.code, each.fate) for each in busy] == [("weights-busy", Fate.AGAIN)]
    assert is_right(bench, "h2")


def test_no_python3_is_said_clearly(bench):
    model(bench, size=MIB)
    hide = "for at in /usr/bin /usr/local/bin; do test ! -e $at/python3 || mount --bind /dev/null $at/python3; done"
    show = "while umount /usr/bin/python3 /usr/local/bin/python3 2>/dev/null; do :; done; true"
    bench.run("h2", hide)
    try:
        done = bench.copy("~/m", "h2", "h3")
    finally:
        bench.run("h2", show)
    assert done["h2"].code == "python3-missing"
    assert "there is no python3 on it" in done["h2"].says
    assert isinstance(done["h3"], Receipt)
    assert bench.copy("~/m", "h2")["h2"].__class__ is Receipt


def test_target_that_does_not_answer(bench):
    model(bench, size=MIB)
    hosts.stop(bench.lab, bench.hosts["h2"], "sshd")
    done = bench.copy("~/m", "h2", "h3")
    assert (done["h2"].code, done["h2"].fate) == ("node-unreachable", Fate.AGAIN)
    assert isinstance(done["h3"], Receipt)
