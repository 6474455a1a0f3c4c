"""Ranks as real containers: by docker for a user of its group, by docker through sudo, and by podman."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bascule.core.nouns import Node, RankPlan
from bascule.errors import NodeTrouble
from bascule.launch.docker import DockerRuntime, docker_of
from bascule.remote import facts
from bascule.remote.connect import connect
from bascule.remote.local import LocalRunner
from lab_parts import TINY, import_tiny, inside, lab_of, tiny_image

pytestmark = pytest.mark.lab

NAME = "s.7.1.r0"
LABEL = {"service": "s", "generation": "7.1", "rank": "0", "node": "h1", "artefact": TINY}
RANK = RankPlan(0, "h1", ("sh", "-c", 'echo "pid $$ $FRUIT"; cat /run/bascule/note; exec sleep 100'), {"FRUIT": "fig"})
LINES = 4000
COUNTS = f"i=0; while [ $i -lt {LINES} ]; do echo $0$i; i=$((i+1)); done"
TALKS = f"sh -c '{COUNTS}' o & sh -c '{COUNTS}' e >&2; wait"
SUDOERS = "root ALL=(ALL) ALL\nmaint ALL=(root) NOPASSWD: ALL\n"


def needed(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    if os.getuid() or missing:
        if "CI" in os.environ:
            pytest.fail(f"root and {', '.join(programs)} are needed in CI; missing: {missing}")
        pytest.skip(f"needs root and {', '.join(programs)}")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_image(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory, tiny):
    needed("dockerd", "sudo")
    with lab_of(tmp_path_factory, "clab", 1, 90) as made:
        folder = made.host_folder(made.hosts[0])
        (folder / "sudoers").write_text(SUDOERS.replace("maint", "guest"))
        (folder / "sudoers").chmod(0o440)
        import_tiny(made, tiny)
        yield made


def known(node, runner):
    return asyncio.run(facts.read_facts(runner, node))


def lives(node, runner, command):
    """Start, look, stop and remove one rank; every claim about it is checked."""
    runtime = DockerRuntime()
    assert docker_of(node).command == command

    async def drill():
        plan = RankPlan(RANK.rank, RANK.node, RANK.argv, RANK.env, {"note": "from a file\n"})
        started = await runtime.start(runner, node, NAME, plan, LABEL)
        assert started.ok, started.complaint
        glimpse = await said(runtime, runner, node)
        assert (glimpse.alive, glimpse.exit_code) == (True, None)
        assert glimpse.gained == b"pid 1 fig\nfrom a file\n"  # the engine is the first process
        again = await runtime.observe(runner, node, {NAME: glimpse.cursor})
        assert again[0].gained == b""
        (state,) = await runtime.find(runner, node, "s")
        assert (state.alive, state.rank, state.generation, state.label["artefact"]) == (True, 0, "7.1", TINY)
        await runtime.stop(runner, node, (NAME,), 1)
        (state,) = await runtime.find(runner, node)
        assert (state.alive, state.exit_code) == (False, 137)  # sleep as first process ignores TERM
        await runtime.remove(runner, node, (NAME,))
        assert await runtime.find(runner, node, "s") == []
        await tells_each_line_once(runtime, runner, node)
        broken = await runtime.start(runner, node, NAME, RankPlan(0, "h1", ("no-such-program",), {}), LABEL)
        assert not broken.ok and "no-such-program" in broken.complaint
        assert await runtime.find(runner, node, "s") == []

    asyncio.run(drill())


async def tells_each_line_once(runtime, runner, node):
    """Two streams that are written to at once, and looks while that goes on.

    Podman gets one: it reads in pieces, and where a line is cut it puts what the other stream said.
    """
    streams = "o" if docker_of(node).command == ("podman",) else "oe"
    script = TALKS if len(streams) == 2 else f"sh -c '{COUNTS}' o"
    started = await runtime.start(runner, node, NAME, RankPlan(0, "h1", ("sh", "-c", script), {}), LABEL)
    assert started.ok, started.complaint
    gained, cursor, more = b"", "", True
    while more:
        (glimpse,) = await runtime.observe(runner, node, {NAME: cursor})
        gained, cursor = gained + glimpse.gained, glimpse.cursor
        more = glimpse.alive or glimpse.gained
    lines = gained.decode().splitlines()
    for stream in streams:
        assert [line for line in lines if line[0] == stream] == [f"{stream}{number}" for number in range(LINES)]
    await runtime.remove(runner, node, (NAME,))


async def said(runtime, runner, node):
    """The first look at which both lines are there; the start is over, so they come at once."""
    for _ in range(50):
        (glimpse,) = await runtime.observe(runner, node, {NAME: ""})
        if glimpse.gained.count(b"\n") == 2:
            break
        await asyncio.sleep(0.1)
    return glimpse


def test_a_user_of_dockers_group(lab):
    node = Node("h1", "op@h1")
    runner = connect([node])["h1"]
    lives(known(node, runner), runner, ("docker",))


def test_a_user_with_neither_is_told_what_is_missing_and_sudo_without_a_password_is_enough(lab):
    node = Node("h1", "guest@h1")
    runner = connect([node])["h1"]
    inside(lab.hosts[0], "sh", "-c", "[ ! -e /usr/bin/podman ] || mount --bind /dev/null /usr/bin/podman")
    with pytest.raises(NodeTrouble) as trouble:
        docker_of(known(node, runner))
    assert trouble.value.code == "no-docker"
    assert "docker: " in trouble.value.seen and "sudo -n docker: " in trouble.value.seen
    assert trouble.value.advice == "add the SSH user there to the group docker, or let it use sudo without a password"
    inside(lab.hosts[0], "mount", "--bind", "/run/host/sudoers", "/etc/sudoers")
    lives(known(node, runner), runner, ("sudo", "-n", "docker"))


def test_podman(tmp_path, tiny, monkeypatch):
    needed("podman")
    # Where no process may raise its limits, podman may not ask for a million open files and processes.
    Path(tmp_path / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
    )
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    tools = tmp_path / "bin"  # a node without docker
    tools.mkdir()
    for folder in ("/usr/sbin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name not in ("docker", "sudo"):
                (tools / program.name).unlink(missing_ok=True)
                (tools / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(tools))
    subprocess.run(["podman", "import", "--quiet", tiny, TINY], check=True, capture_output=True)
    node = Node("h1", "local")
    runner = LocalRunner(node)
    try:
        lives(known(node, runner), runner, ("podman",))
    finally:
        subprocess.run(["podman", "rmi", "--force", TINY], check=False, capture_output=True)
