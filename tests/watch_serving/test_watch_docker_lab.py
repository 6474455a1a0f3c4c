"""`bascule watch` over ranks that are containers on two hosts: one that is killed, stopped, or out of memory."""

from __future__ import annotations

import asyncio
import threading
from functools import cached_property

import pytest

from bascule.core.nouns import Fate, Node
from bascule.engines.catalogue import ENGINES
from bascule.launch.plan import place_of
from bascule.launch.runtime import RUNTIMES
from bascule.operate.following import looker, vigil_over
from bascule.remote.connect import connect
from bascule.remote.facts import read_facts
from bascule.watch.follow import Follower
from lab_parts import TINY, import_tiny, inside, lab_of, tiny_image
from watch_serving.serving_parts import SLEEPS, Stand, lines_of

pytestmark = pytest.mark.lab

SOON = 20.0  # seconds; it is 6 s at most on a quiet machine
LIMIT = "60m"
# Told to, it takes 128 MiB, and then goes on: without a limit nothing comes of it.
WAITS = "while [ ! -e /tmp/take ]; do sleep 0.1; done; "
TAKES = f"{WAITS} x=12345678; while [ ${{#x}} -lt 134217728 ]; do x=$x$x; done; {SLEEPS}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with lab_of(tmp_path_factory, "dwatch", 2, 94) as made:
        import_tiny(made, tiny_image(tmp_path_factory.mktemp("tiny")))
        yield made


class Docked(Stand):
    """A service of the name `s`: rank 0 is a container on h1, rank 1 one on h2."""

    def __init__(self, folder, lab):
        super().__init__(folder)
        self.lab, self.artefact = lab, {"kind": "image", "ref": TINY}
        for host in lab.hosts:
            self.node(host.name, f"op@{host.name}", host.address("fabric"))

    def name(self, rank):
        return f"s.{self.generation}.r{rank}"

    def container(self, rank):
        return f"bascule.{self.name(rank)}"

    def docker(self, rank, *words):
        return inside(self.lab.hosts[rank], "docker", *words)

    def state(self, rank):
        """Its status and its first process, as docker says."""
        words = ("inspect", "--format", "{{.State.Status}} {{.State.Pid}}", self.container(rank))
        return tuple(self.docker(rank, *words).split())

    def starve(self, rank):
        """Let a rank take more memory than it may have from now on."""
        self.docker(rank, "update", "--memory", LIMIT, "--memory-swap", LIMIT, self.container(rank))
        inside(self.lab.hosts[rank], "touch", f"/proc/{self.state(rank)[1]}/root/tmp/take")

    @cached_property
    def known(self):
        """The nodes with their facts."""
        nodes = [Node(node["name"], node["host"], node["address"], node["run_dir"]) for node in self.nodes]

        async def read():
            runners = connect(nodes)
            return await asyncio.gather(*(read_facts(runners[node.name], node) for node in nodes))

        return {node.name: node for node in asyncio.run(read())}

    def end(self):
        for rank, host in enumerate(self.lab.hosts):
            for one in self.docker(rank, "ps", "--all", "--quiet").split():
                inside(host, "docker", "rm", "--force", one)

    def _start(self, node, plan, label):
        there = self.known[node["name"]]
        runner = connect([there])[there.name]
        started = asyncio.run(RUNTIMES["image"].start(runner, there, self.name(plan.rank), plan, label))
        assert started.ok, started.complaint


@pytest.fixture
def docked(lab, state, tmp_path):
    made = Docked(tmp_path, lab)
    yield made
    made.end()


def next_line(watch):
    """What it says next; "" when it says nothing soon, and then it is ended."""
    timer = threading.Timer(SOON, watch.kill)
    timer.start()
    try:
        return watch.stdout.readline()
    finally:
        timer.cancel()


def test_containers_that_nobody_asks_are_well(docked):
    docked.serve(SLEEPS, SLEEPS)
    told = docked.bascule("watch", "s", "--once", "--json")
    assert told.returncode == 0, told.stderr
    first, last = lines_of(told.stdout)
    assert first["says"].startswith(f"start {docked.generation}: rank 0 on h1, rank 1 on h2")
    assert (last["state"], last["says"], last["rank"]) == ("serving", "nothing speaks against it", None)
    assert docked.broke() == []


def test_a_container_that_is_killed_is_told_with_its_status_and_the_other_is_left_alone(docked):
    docked.serve(SLEEPS, "echo last words; " + SLEEPS)
    before = docked.state(0)
    with docked.watching() as watch:
        docked.docker(1, "kill", docked.container(1))
        assert "h2  rank 1  DEAD  ended with status 137\n" in next_line(watch)
        assert watch.wait(60) == 1
        said = watch.stderr.read()
    assert said.startswith("error[rank-died]: s is broken: rank 1 on h2 ended with status 137")
    (finding,) = docked.broke()
    assert (finding["code"], finding["evidence"][0]["node"]) == ("rank-died", "h2")
    assert {"rank0.log", "rank1.log", "counters.csv", "h1.processes.txt"} <= docked.kept()
    assert docked.state(0) == before
    assert before[0] == "running"


def test_a_container_whose_first_process_is_stopped_is_told_and_left_as_it_is(docked):
    docked.serve(SLEEPS, SLEEPS)
    with docked.watching() as watch:
        docked.docker(1, "kill", "--signal", "STOP", docked.container(1))
        assert "h2  rank 1  STOPPED  " in next_line(watch)
        assert watch.wait(60) == 1
        said = watch.stderr.read()
    _, pid = docked.state(1)
    assert "error[rank-stopped]: s is broken: rank 1 on h2 is stopped by a signal" in said
    assert f"kill -CONT {pid}" in said
    assert inside(docked.lab.hosts[1], "cat", f"/proc/{pid}/stat").rpartition(")")[2].split()[0] == "T"


def test_a_container_that_is_paused_is_told_with_how_it_goes_on(docked):
    docked.serve(SLEEPS, SLEEPS)
    with docked.watching() as watch:
        docked.docker(1, "pause", docked.container(1))
        assert "h2  rank 1  STOPPED  its container is paused\n" in next_line(watch)
        assert watch.wait(60) == 1
        said = watch.stderr.read()
    assert "error[rank-stopped]: s is broken: rank 1 on h2 is paused" in said
    assert f"`docker unpause {docked.container(1)}` there lets it go on" in said
    assert docked.state(1)[0] == "paused"


def test_a_container_that_takes_more_memory_than_it_may_is_named_so(docked):
    docked.serve(SLEEPS, TAKES)
    with docked.watching() as watch:
        docked.starve(1)
        assert "h2  rank 1  DEAD  ended by the kernel: out of memory\n" in next_line(watch)
        assert watch.wait(60) == 1
        said = watch.stderr.read()
    assert said.startswith("error[kernel-oom]: s is broken: rank 1 on h2 ended by the kernel: out of memory")
    (finding,) = docked.broke()
    assert finding["code"] == "kernel-oom"
    seen = finding["evidence"][0]
    assert (seen["node"], seen["source"]) == ("h2", "container of rank 1")
    assert seen["excerpt"] == "State.OOMKilled is true"
    assert docked.state(0)[0] == "running"


def test_a_container_that_takes_too_much_while_it_starts_ends_the_start(docked, tmp_path):
    docked.serve(SLEEPS, TAKES)
    nodes, runners = docked.known, connect(list(docked.known.values()))
    ranks = {docked.name(plan.rank): plan for plan in docked.plans}
    places = [place_of(node) for node in nodes.values()]
    look_at = looker(runners, nodes, "image")
    ended = []
    follower = Follower(ENGINES["vllm"].lore, places, look_at, tmp_path, lambda _: None, ended.append, lambda _: None)
    follower.vigil = vigil_over(ranks, nodes, runners, "image", tmp_path)
    follower.begin(list(ranks))

    async def start():
        async with asyncio.timeout(SOON + 10):
            finding, _ = await asyncio.gather(follower.until_ready(), asyncio.to_thread(docked.starve, 1))
        await follower.vigil.close()
        return finding

    finding = asyncio.run(start())
    assert (finding.code, finding.fate) == ("kernel-oom", Fate.HOPELESS)
    assert finding.says == "rank 1 on h2 ended by the kernel: out of memory"
    assert [(seen.node, seen.excerpt) for seen in finding.evidence] == [("h2", "State.OOMKilled is true")]
    assert [(rank.number, rank.exit_code) for rank in ended] == [(1, 137)]
