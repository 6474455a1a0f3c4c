"""The lab: hosts that behave like hosts, that can be cut off, and that leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BASCULE = Path(sys.executable).with_name("bascule")
NAME, NET = "tlab", "96"

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not os.environ.get("CI") and (os.getuid() != 0 or not shutil.which("dockerd")), reason="needs root and dockerd"
    ),
]


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    yield folder
    lab(folder, "down")


@pytest.fixture(scope="module")
def hosts(state):
    began = time.monotonic()
    done = lab(state, "up", "2", "--net", NET)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 30
    return state / "bascule/labs" / NAME


def lab(state, *words, **more):
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    command = [BASCULE, "lab", words[0], "--lab", NAME, *words[1:]]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False, **more)


def ssh(hosts, who, *words):
    command = ["ssh", "-F", hosts / "ssh_config", who, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def reaches(hosts, one, address):
    """Whether a host opens a connection to port 22 of an address within 2 s."""
    return ssh(hosts, one, f"timeout 2 bash -c '</dev/tcp/{address}/22'").returncode == 0


def ours():
    """Everything on this machine that has the lab's name."""
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    mounts = Path("/proc/self/mountinfo").read_text()
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{NAME}-h*")]
    told = [line for text in (spaces, links, mounts) for line in text.splitlines() if NAME in line]
    running = [path.name for path in Path("/proc").iterdir() if path.name.isdigit() and _mentions(path)]
    return told + groups + running


def _mentions(proc):
    try:
        return f"/labs/{NAME}/".encode() in (proc / "cmdline").read_bytes()
    except OSError:
        return False


def test_each_host_is_a_machine_of_its_own(hosts):
    told = ssh(hosts, "h2", "uname -n; id -un; ip -o -4 addr show; ps -e | wc -l; docker info -f '{{.Driver}}'").stdout
    assert told.splitlines()[:2] == ["h2", "op"]
    assert f"10.{NET}.0.2/24" in told and f"10.{NET}.1.2/24" in told and "overlay2" in told
    assert int(told.splitlines()[-2]) < 40  # its own processes only
    route = ssh(hosts, "h2", "ip route get 8.8.8.8").stdout
    assert f"src 10.{NET}.1.2" in route  # the LAN, as in life: what engines advertise when nobody tells them


def test_what_a_host_writes_at_home_is_not_on_this_machine(hosts):
    for user, home in (("op", "/home/op"), ("root", "/root")):
        assert ssh(hosts, f"{user}@h1", f"cd && pwd && touch {NAME}").stdout == f"{home}\n"
        assert not Path(home, NAME).exists()
        assert ssh(hosts, f"{user}@h2", f"ls {NAME}").returncode != 0


def test_images_of_one_host_are_not_on_the_other(hosts):
    ssh(hosts, "h1", "mkdir -p i && echo 'FROM scratch' >i/Dockerfile && echo 'LABEL x=1' >>i/Dockerfile")
    assert ssh(hosts, "h1", "docker build -q -t here i").returncode == 0
    assert ssh(hosts, "h1", "docker image inspect here").returncode == 0
    assert ssh(hosts, "h2", "docker image inspect here").returncode != 0


def test_a_user_without_docker_rights(hosts):
    denied = ssh(hosts, "guest@h1", "docker ps")
    assert denied.returncode != 0 and "permission denied" in denied.stderr


def test_cut_and_heal(hosts, state):
    fabric, lan = f"10.{NET}.0.2", f"10.{NET}.1.2"
    assert reaches(hosts, "h1", fabric) and reaches(hosts, "h1", lan)
    assert lab(state, "cut", "h1", "h2", "--network", "lan").returncode == 0
    assert reaches(hosts, "h1", fabric) and not reaches(hosts, "h1", lan)
    assert lab(state, "heal").returncode == 0
    assert reaches(hosts, "h1", lan)


def test_sshd_and_dockerd_stop_and_start(hosts, state):
    lab(state, "stop", "h2", "sshd")
    assert ssh(hosts, "h2", "true").returncode == 255
    lab(state, "stop", "h1", "dockerd")
    assert "Cannot connect" in ssh(hosts, "h1", "docker ps").stderr
    lab(state, "heal")
    until = time.monotonic() + 20
    while ssh(hosts, "h2", "true").returncode or ssh(hosts, "h1", "docker ps").returncode:
        assert time.monotonic() < until
        time.sleep(0.2)


def test_a_command_inside_a_host(hosts, state):
    assert lab(state, "exec", "h1", "--", "hostname").stdout == "h1\n"
    rows = json.loads(lab(state, "status", "--json").stdout)
    assert [row["host"] for row in rows] == ["h1", "h2"]
    unknown = lab(state, "exec", "h9", "--", "true")
    assert unknown.returncode == 2 and "no host h9" in unknown.stderr


def test_down_leaves_nothing_also_after_kill_9(hosts, state):
    assert ours()  # the search finds what it must not find later
    assert lab(state, "down").returncode == 0
    assert ours() == []
    for moment in (0.05, 0.2, 0.4):
        env = {**os.environ, "XDG_STATE_HOME": str(state)}
        up = subprocess.Popen([BASCULE, "lab", "up", "--lab", NAME, "--net", NET], env=env, stdout=subprocess.DEVNULL)
        time.sleep(0.2 + moment)
        up.send_signal(signal.SIGKILL)
        up.wait()
        lab(state, "down")
        assert ours() == [], moment
