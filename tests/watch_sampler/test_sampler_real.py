"""The sampler against real processes on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from bascule.core.machine import Address
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Result
from bascule.watch.sampler import AT_LEAST, Sampler, Watched
from bascule.watch.sockets import Seat, unreachable

BUSY = "while :; do :; done"
ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
CGROUPS = Path("/sys/fs/cgroup")
CPUACCT = CGROUPS / "cpuacct"


class Freezer(NamedTuple):
    """How a group of processes is frozen; `top` is None where that can't be done."""

    top: Path | None
    file: str
    frozen: str
    thawed: str
    told: str
    says: str


VERSION_2 = next((top for top in (CGROUPS, CGROUPS / "unified") if (top / "cgroup.controllers").exists()), None)
VERSION_1 = CGROUPS / "freezer" if (CGROUPS / "freezer").is_dir() else None
FREEZERS = (
    Freezer(VERSION_1, "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"),
    Freezer(VERSION_2, "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"),
)


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self):
        return self.now


def twice(sampler, clock, between):
    """Two looks; `between` is called between them, and what is read in the background is there at the second."""

    async def looks():
        first = await sampler.look()
        await sampler.settle()
        between()
        clock.now += 2
        second = await sampler.look()
        await sampler.close()
        return first, second

    return asyncio.run(looks())


def until(ready):
    end = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_rank_that_burns_cpu_moves_and_one_that_sleeps_does_not(ranks):
    pid = ranks.start(f"({BUSY}) & {BUSY}")
    ranks.start("exec sleep 300")
    clock = Clock()
    child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    begun = cpu_of(child)
    first, second = twice(ranks.sampler(clock), clock, lambda: until(lambda: cpu_of(child) >= begun + 20))
    gained = [two.values["cpu_s"] - one.values["cpu_s"] for one, two in zip(first, second, strict=True)]
    assert gained[0] >= 0.1
    assert gained[1] == 0
    assert second[0].busiest == ("sh",)
    assert second[1].busiest == ()
    assert second[1].values["processes"] == 2
    assert second[1].values["memory_bytes"] > 100_000
    assert [one.rank for one in second] == [0, 1]


def test_bytes_read_from_a_disk_are_counted_also_of_a_child_that_ended(ranks, tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(8 << 20))
    os.sync()
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    ranks.start(
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; cat {file} >/dev/null; touch {tmp_path}/done; sleep 300"
    )
    clock = Clock()

    def read():
        (tmp_path / "go").touch()
        until((tmp_path / "done").exists)

    (first,), (second,) = twice(ranks.sampler(clock), clock, read)
    if Path(tmp_path).stat().st_dev and _in_memory(tmp_path):
        pytest.skip("files here are in memory")
    assert second.values["read_bytes"] - first.values["read_bytes"] >= 8 << 20


def _in_memory(path):
    return subprocess.run(("stat", "-f", "-c", "%T", path), capture_output=True, text=True, check=True).stdout in (
        "tmpfs\n",
        "ramfs\n",
    )


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_real_compilers_are_counted_while_they_work(ranks, tmp_path):
    (tmp_path / "pipe").touch()
    ranks.start(f"cd {tmp_path}; mkfifo slow.c; (exec 3>slow.c; sleep 300) & gcc -c slow.c -o slow.o; echo done")
    clock = Clock()
    sampler = ranks.sampler(clock)
    until(lambda: compilers(sampler) >= 2)  # gcc waits for cc1, which waits for its source


def compilers(sampler):
    (sample,) = asyncio.run(_once(sampler))
    return sample.values["compilers"]


async def _once(sampler):
    try:
        return await sampler.look()
    finally:
        await sampler.close()


def test_a_process_that_left_the_session_and_its_parents_is_found_by_its_mark(ranks):
    ranks.start("(setsid sh -c 'echo free; exec sleep 301' &) ; sleep 300")
    ranks.wait_for("free")
    clock = Clock()
    (first,), (second,) = twice(ranks.sampler(clock), clock, lambda: None)
    assert second.values["processes"] == first.values["processes"] + 1 == 4


def test_a_child_in_a_session_of_its_own_is_found_at_once_by_its_parent(ranks):
    ranks.start("setsid sh -c 'echo free; exec sleep 301' & wait")
    ranks.wait_for("free")
    (sample,) = asyncio.run(_once(ranks.sampler()))
    assert sample.values["processes"] == 3


def test_only_sockets_of_its_own_processes_are_told_of_a_rank(ranks):
    code = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], 'open', flush=True)"
    )
    ranks.start(f'exec {os.path.realpath(sys.executable)} -c "{code}; time.sleep(300)"')
    ranks.wait_for("open")
    clock = Clock()
    with socket.create_server(("127.0.0.1", 0)):
        _, (second,) = twice(ranks.sampler(clock), clock, lambda: None)
    assert [(one.state, one.local) for one in second.sockets] == [("LISTEN", f"127.0.0.1:{ranks.log().split()[0]}")]


def test_the_size_of_caches_is_told_and_a_cache_that_is_not_there_is_empty(ranks, tmp_path):
    (tmp_path / "cache").mkdir()
    ranks.start("sleep 300")
    clock = Clock()
    watched = [replace(ranks.watched[0], caches=(f"{tmp_path}/cache", f"{tmp_path}/none"))]
    sampler = Sampler(LocalRunner(ranks.node), ranks.node, watched, clock=clock)

    async def looks():
        sizes = []
        for size in (0, 1 << 20):
            (tmp_path / "cache" / "kernel.so").write_bytes(b"x" * size)
            await sampler.look()
            await sampler.settle()
            (sample,) = await sampler.look()
            sizes.append(sample.values["cache_bytes"])
            clock.now += 100
        await sampler.close()
        return sizes

    before, after = asyncio.run(looks())
    assert after - before >= 1 << 20


def test_a_rank_that_ended_and_one_whose_number_is_somebody_elses_give_no_sample(ranks):
    ranks.start("exit 0")
    other = ranks.start("sleep 300")
    until((ranks.folder / ranks.names[0] / "exit").exists)
    began, boot = (ranks.folder / ranks.names[1] / "pid").read_text().split()[1:]
    (ranks.folder / ranks.names[1] / "pid").write_text(f"{other} {int(began) - 1} {boot}\n")
    sampler = ranks.sampler()
    assert asyncio.run(_once(sampler)) == []
    assert sampler.trouble == ""


def test_a_leader_that_was_killed_leaves_a_rank_that_is_still_counted(ranks):
    pid = ranks.start("sleep 300; :")
    os.kill(pid, 9)
    until(lambda: not Path(f"/proc/{pid}").exists())
    (sample,) = asyncio.run(_once(ranks.sampler()))
    assert sample.values["processes"] == 2


def test_what_a_dear_part_took_decides_when_it_comes_again(ranks):
    ranks.start("sleep 300")
    clock = Clock()
    told = "=== gpus\ngpu GPU-1, 0, 78.85, 0\n=== took\n0m0.00s 0m0.00s\n0m0.01s 0m0.03s\n=== end\n"

    class Tape:
        """A node whose GPUs take 40 ms to ask; the rest of it is this machine."""

        asked = 0

        async def run(self, argv, *, stdin="", within=30.0):
            if "gpus" in argv:
                self.asked += 1
                return Result(tuple(argv), 0, told.encode(), b"")
            return await LocalRunner(ranks.node).run(argv, stdin=stdin, within=within)

    tape = Tape()
    node = replace(ranks.node, facts=replace(ranks.node.facts, gpus=("NVIDIA H200",)))
    sampler = Sampler(tape, node, ranks.watched, clock=clock)

    async def looks():
        counts = []
        for seconds in (0, AT_LEAST["gpus"], 14.9, 0.2):
            clock.now += seconds
            await sampler.look()
            await sampler.settle()
            counts.append(tape.asked)
        (sample,) = await sampler.look()
        await sampler.close()
        return counts, sample

    counts, sample = asyncio.run(looks())
    assert counts == [1, 1, 1, 2]
    assert sample.values["gpu_watts"] == 78.85


def test_an_answer_that_is_cut_or_foreign_gives_no_sample_and_says_so(ranks):
    ranks.start("sleep 300")

    class Broken:
        async def run(self, argv, *, stdin="", within=30.0):
            return Result(tuple(argv), 127, b"welcome to node-a\n", b"sh: 1: awk: not found")

    sampler = Sampler(Broken(), ranks.node, ranks.watched)
    assert asyncio.run(_once(sampler)) == []
    assert "awk: not found" in sampler.trouble


def contained(node, pid):
    """A sampler of a rank that is a container with this first process."""
    began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])

    class Docker(LocalRunner):
        """A daemon that knows one container; all else is this machine."""

        async def run(self, argv, *, stdin="", within=30.0):
            if "roots" in argv:
                told = f"=== roots\nroot 0 {pid} {began}\n=== took\n=== end\n"
                return Result(tuple(argv), 0, told.encode(), b"")
            return await super().run(argv, stdin=stdin, within=within)

    return Sampler(Docker(node), node, [Watched(0, "a", "s.1.r0", "image", "lo")])


@ROOT
@pytest.mark.skipif(not CPUACCT.is_dir(), reason="no cgroup version 1 here")
def test_the_own_cgroup_of_a_container_is_its_cpu_and_its_list_of_processes(ranks):
    group = CPUACCT / f"bascule-test-{os.getpid()}"
    group.mkdir()
    child = subprocess.Popen(("sh", "-c", f"sleep 300 & {BUSY}"), start_new_session=True)
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        until(lambda: cpu_of(child.pid) >= 10)
        sampler = contained(ranks.node, child.pid)
        (sample,) = asyncio.run(_once(sampler))
        usage = int((group / "cpuacct.usage").read_text()) / 1e9
        assert 0 < sample.values["cpu_s"] <= usage
        assert sample.values["processes"] >= 1
        assert sampler.pids[0][0] == child.pid
    finally:
        os.killpg(child.pid, 9)
        child.wait()
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@ROOT
@pytest.mark.parametrize("freezer", FREEZERS, ids=lambda one: one.file)
def test_a_container_that_is_paused_is_seen_by_its_cgroup_of_either_version(ranks, freezer):
    if not freezer.top:
        pytest.skip("no cgroups of this version here")
    group = freezer.top / f"bascule-test-{os.getpid()}"
    group.mkdir()
    child = subprocess.Popen(("sh", "-c", "sleep 300 & wait"), start_new_session=True)
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        (before,) = asyncio.run(_once(contained(ranks.node, child.pid)))
        (group / freezer.file).write_text(freezer.frozen)
        until(lambda: freezer.says in (group / freezer.told).read_text())
        (after,) = asyncio.run(_once(contained(ranks.node, child.pid)))
        assert (before.values["stopped"], "paused" in before.values) == (0, False)
        assert (after.values["stopped"], after.values["paused"]) == (after.values["processes"], 1)
    finally:
        (group / freezer.file).write_text(freezer.thawed)
        os.killpg(child.pid, 9)
        child.wait()
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@ROOT
@pytest.mark.skipif(not shutil.which("ip") or not shutil.which("iptables"), reason="no ip or iptables")
def test_a_rank_that_knocks_at_an_address_that_swallows_packets_is_proven_by_its_sockets(ranks):
    space = f"bsck{os.getpid() % 100000}"
    setup = (
        f"ip netns add {space} && ip -n {space} link set lo up && ip -n {space} link add fab type veth peer name far"
        f" && ip -n {space} addr add 10.77.0.2/24 dev fab && ip -n {space} link set fab up"
        f" && ip -n {space} link set far up"
        f" && ip netns exec {space} iptables -A OUTPUT -d 10.77.0.1 -j DROP"
    )
    try:
        subprocess.run(setup, shell=True, check=True, timeout=20)
        knock = (
            "import socket, time; a = socket.socket(); a.bind(('10.77.0.2', 0)); a.listen(); b = socket.socket(); "
            "b.setblocking(False); b.connect_ex(('10.77.0.1', 42085)); print('knocks', flush=True); time.sleep(300)"
        )
        ranks.start(
            f'exec {os.path.realpath(sys.executable)} -c "{knock}"', before=("nsenter", f"--net=/var/run/netns/{space}")
        )
        ranks.wait_for("knocks")
        clock = Clock()

        async def looks():
            sampler, samples = ranks.sampler(clock), []
            for _ in range(3):
                samples += await sampler.look()
                await sampler.settle()
                clock.now += 600  # sockets are due again, however dear a look was
            await sampler.close()
            return samples

        samples = asyncio.run(looks())
        states = sorted(one.state for one in samples[-1].sockets)
        assert states == ["LISTEN", "SYN-SENT"]  # of all of this machine, only those of the rank
        assert samples[0].sockets is None  # not read yet
        seats = (
            Seat(0, "a", "10.77.0.2", (Address("fab", "10.77.0.2", 24),)),
            Seat(1, "b", "10.77.0.1", (Address("fab", "10.77.0.1", 24),)),
        )
        (found,) = unreachable(samples, seats)
        assert (found.advertised, found.to_rank, found.by_rank, found.for_s) == ("10.77.0.1:42085", 0, 1, 600.0)
    finally:
        ranks.stop()
        subprocess.run(("ip", "netns", "delete", space), check=True)
