"""A lab of three hosts without docker, models in their homes, and copies between them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from bascule.core.nouns import Finding, Node
from bascule.distribute.weights.copy import copy_weights
from bascule.distribute.weights.progress import Receipt
from bascule.distribute.weights.same import same_weights
from bascule.lab import hosts
from bascule.lab.spec import USERS, Lab
from bascule.remote.connect import connect

NAME, NET = "wtest", 97
MIB = 1 << 20
CONTROLLER = Path(__file__).with_name("controller.py")


class Bench:
    """The lab and what tests do with it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.nodes = {host.name: Node(host.name, host.name) for host in lab.hosts}
        self.hosts = {host.name: host for host in lab.hosts}

    def home(self, host: str) -> Path:
        return self.lab.host_folder(self.hosts[host]) / "home/op"

    def write(self, host: str, files: dict[str, bytes]) -> None:
        """Files below a home, as its user's."""
        for name, data in files.items():
            path = self.home(host) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.own(host)

    def own(self, host: str) -> None:
        uid = USERS["op"]
        for folder, _, names in os.walk(self.home(host)):
            for name in (".", *names):
                os.lchown(f"{folder}/{name}", uid, uid)

    def run(self, host: str, script: str) -> None:
        """As the host's root."""
        subprocess.run(hosts.inside(self.hosts[host], ("sh", "-c", script)), check=True)

    def limit(self, host: str, rate: str) -> None:
        for network in ("fabric", "lan"):
            hosts.limit(self.hosts[host], network, rate)

    def copy(self, path, *targets, on_progress=lambda seen: None, verify="auto") -> dict[str, Receipt | Finding]:
        return asyncio.run(self.copying(path, *targets, on_progress=on_progress, verify=verify))

    async def copying(self, path, *targets, on_progress=lambda seen: None, verify="auto"):
        nodes = [self.nodes[name] for name in targets]
        runners = connect(self.nodes.values())
        return await copy_weights(path, self.nodes["h1"], nodes, runners, on_progress, verify=verify)

    def same(self, path, *names) -> Finding:
        return asyncio.run(same_weights(path, [self.nodes[name] for name in names], connect(self.nodes.values())))

    def start(self, path: str, *targets: str) -> subprocess.Popen[str]:
        """A copy by a controller of its own; its lines are progress, the last one the outcomes."""
        words = [sys.executable, str(CONTROLLER), path, *targets]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def journaled(self, host: str, name: str) -> int:
        """Bytes of finished ranges that a half copy noted."""
        text = (self.home(host) / f".{name}.bascule-part/journal").read_text()
        return sum(row[3] for line in text.splitlines() for row in json.loads(line))


@pytest.fixture(scope="package")
def made():
    """In memory: removing 200,000 files from a disk takes minutes."""
    if not os.environ.get("CI") and (os.getuid() or not shutil.which("sshd", path="/usr/sbin:/usr/bin")):
        pytest.skip("needs root and sshd")
    with tempfile.TemporaryDirectory() as state, pytest.MonkeyPatch.context() as patch:
        subprocess.run(("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", state), check=True)
        try:
            patch.setenv("XDG_STATE_HOME", state)
            lab = Lab(NAME, hosts.folder_of(NAME), 3, NET)
            hosts.up(lab, docker=False)
            patch.undo()
            yield lab
        finally:
            patch.setenv("XDG_STATE_HOME", state)
            hosts.down(NAME)
            subprocess.run(("umount", "--lazy", state), check=True)


@pytest.fixture
def bench(made, monkeypatch):
    monkeypatch.setenv("BASCULE_SSH", f"ssh -F {made.folder}/ssh_config")
    monkeypatch.setenv("XDG_STATE_HOME", str(made.folder.parents[2]))
    bench = Bench(made)
    yield bench
    hosts.heal(made)
    for name in bench.hosts:
        shutil.rmtree(bench.home(name))
        bench.home(name).mkdir()
        bench.own(name)


def wait_for(condition, within=30.0):
    end = time.monotonic() + within
    while not (seen := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return seen


def tree(root: Path) -> dict[str, object]:
    """Every file's bytes and every link's text below a folder."""
    found: dict[str, object] = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path.relative_to(root))] = ("link", str(path.readlink()))
            elif path.is_file():
                found[str(path.relative_to(root))] = path.read_bytes()
    return found
