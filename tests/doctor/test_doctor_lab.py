"""`bascule doctor` over two hosts of a lab: real docker and its users, ranks in real containers, links, a dead sshd."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.lab import hosts
from bascule.lab.spec import Lab
from lab_parts import end_masters, lab_of

pytestmark = pytest.mark.lab

NAME, NET = "doctest", 85
BASCULE = Path(sys.executable).with_name("bascule")
TOOLS = ("/bin/sh", "/bin/sleep")
SERVICE = ("--label", "bascule.service=s")


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    with lab_of(tmp_path_factory, NAME, 2, NET) as made:
        yield made


def inside(lab: Lab, *words: str) -> str:
    return subprocess.run(hosts.inside(lab.hosts[0], words), capture_output=True, text=True, check=True).stdout.strip()


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BASCULE, "doctor", *words], capture_output=True, text=True, timeout=120, check=False)


def told(*nodes: str) -> dict:
    done = doctor("--no-proof", "--json", *(word for node in nodes for word in ("--node", node)))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pack_image(path: Path) -> None:
    """The root file system of an image: a shell and sleep with their libraries."""
    listed = subprocess.run(["ldd", *TOOLS], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in listed.split() if word.startswith("/") and not word.endswith(":")}
    with tarfile.open(path, "w", dereference=True) as archive:
        for file in sorted({*TOOLS, *libraries}):
            archive.add(file)


def test_two_hosts_and_the_way_between_them(lab: Lab) -> None:
    done = doctor("--node", "h1", "--node", "h2")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line[:12].strip(): line[12:] for line in done.stdout.splitlines()}
    assert rows["docker"].split("  ")[0].endswith("overlay2")
    assert rows["addresses"].startswith(f"rendezvous 10.{NET}.0.1")
    assert "TCP both ways" in rows["addresses"]


def test_who_may_use_docker(lab: Lab) -> None:
    found = told("name=op,host=op@h1", "name=guest,host=guest@h2", "name=root,host=root@h1")
    facts = {row["name"]: row["facts"] for row in found["nodes"]}
    assert facts["op"]["docker"]["command"] == ["docker"] == facts["root"]["docker"]["command"]
    assert {disk["what"] for disk in facts["op"]["disks"]} == {"run", "cache", "docker"}
    assert facts["op"]["machine_id"] == facts["root"]["machine_id"] != facts["guest"]["machine_id"]
    denied = [one for one in found["notices"] if one["node"] == "guest" and one["code"] == "docker-denied"]
    assert len(denied) == 1 and "permission denied" in denied[0]["evidence"][0]["excerpt"]
    assert {one["node"] for one in found["notices"] if one["code"].startswith("docker-")} == {"guest"}


def test_ranks_in_containers_are_found_while_they_run(lab: Lab, tmp_path: Path) -> None:
    pack_image(lab.host_folder(lab.hosts[0]) / "tiny.tar")
    inside(lab, "docker", "import", "/run/host/tiny.tar", "tiny:1")
    start = ("docker", "run", "--detach", "--network", "host", "--name")
    inside(lab, *start, "bascule.s.7.1.r0", *SERVICE, "tiny:1", "sleep", "100")
    inside(lab, *start, "other", "tiny:1", "sleep", "100")
    try:
        facts = {row["name"]: row["facts"] for row in told("h1", "h2")["nodes"]}
        assert (facts["h1"]["ranks"], facts["h2"]["ranks"]) == (["s.7.1.r0"], [])
        inside(lab, "docker", "pause", "bascule.s.7.1.r0")
        inside(lab, "docker", "kill", "other")
        assert told("h1")["nodes"][0]["facts"]["ranks"] == ["s.7.1.r0"], "a rank that is paused is still there"
    finally:
        inside(lab, "docker", "rm", "--force", "bascule.s.7.1.r0", "other")
    assert told("h1")["nodes"][0]["facts"]["ranks"] == []


def test_a_host_whose_sshd_is_gone_and_one_whose_docker_is(lab: Lab) -> None:
    end_masters()
    hosts.stop(lab, lab.hosts[1], "sshd")
    hosts.stop(lab, lab.hosts[0], "dockerd")
    try:
        done = doctor("--node", "h1", "--node", "h2")
    finally:
        hosts.heal(lab)
    assert done.returncode == 3
    rows = {line[:12].strip(): line[12:] for line in done.stdout.splitlines()}
    assert "✗ no answer" in rows["ssh"] and "GiB" in rows["memory"]
    assert "error[node-unreachable]: h2 does not answer over ssh" in done.stderr
