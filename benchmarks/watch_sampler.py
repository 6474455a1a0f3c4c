"""What the sampler costs a node: CPU of one core, over ssh, with a rank of 60 processes like that of a real engine."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bascule import settings
from bascule.core.nouns import Node, RankPlan
from bascule.launch.venv import start_script
from bascule.remote.facts import read_facts
from bascule.remote.local import LocalRunner
from bascule.remote.ssh import SshRunner
from bascule.watch.ledger import cache_folders
from bascule.watch.sampler import LOOK_EVERY, Sampler, Watched
from bascule.watch.steady import SteadyRunner

PROCESSES = 60
THREADS = 20  # of each process: an engine's worker has more, its helpers fewer
SECONDS = 40.0
_TICK = 0.01  # seconds, USER_HZ
# Processes with threads and sockets, that sleep: what is measured is the looking.
_TREE = f"""
import os, socket, threading, time
for _ in range({PROCESSES} - 2):
    if not os.fork():
        break
kept = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
for _ in range({THREADS} - 1):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
time.sleep(3600)
"""


def main() -> None:
    """The last line is one JSON object."""
    print(json.dumps({"sampler_cpu_fraction": round(sampler_cpu_fraction(), 5)}))


def sampler_cpu_fraction(seconds: float = SECONDS) -> float:
    """CPU seconds per second that looking costs the node, sshd and shells counted in."""
    with tempfile.TemporaryDirectory(prefix="b") as text:
        folder = Path(text)
        with _sshd(folder) as (server, host), _rank(folder) as name:
            return asyncio.run(_measure(host, server, name, folder, seconds))


async def _measure(host: str, server: int, name: str, folder: Path, seconds: float) -> float:
    node = Node("bench", host, run_dir=str(folder / "ranks"))
    node = await read_facts(SshRunner(node), node)
    runner = SteadyRunner(node)
    sampler = Sampler(runner, node, [Watched(0, "bench", name, interface="lo", caches=cache_folders({}))])
    (sample, *_) = await sampler.look()
    assert sample.values["processes"] == PROCESSES, sample
    before, began = _cpu_of_tree(server), time.monotonic()
    for number in range(1, int(seconds / LOOK_EVERY) + 1):
        await asyncio.sleep(began + number * LOOK_EVERY - time.monotonic())
        await sampler.look()
    await sampler.settle()
    used, passed = _cpu_of_tree(server) - before, time.monotonic() - began
    await sampler.close()
    await runner.close()
    print(f"{used:.2f} s of CPU in {passed:.0f} s, a look each {LOOK_EVERY:g} s, {PROCESSES} processes")
    return used / passed


@contextlib.contextmanager
def _rank(folder: Path) -> Iterator[str]:
    """A running rank with all those processes."""
    name, python = "bench.1.r0", os.path.realpath(sys.executable)
    plan = RankPlan(0, "bench", ("/bin/sh", "-c", 'exec "$0" tree.py', python), {}, {"tree.py": _TREE})
    script = start_script(str(folder / "ranks"), name, plan, {})
    asyncio.run(LocalRunner(Node("bench", "local")).run(("sh", "-s"), stdin=script))
    leader = int((folder / "ranks" / name / "pid").read_text().split()[0])
    end = time.monotonic() + 30
    while len(_group(leader)) < PROCESSES and time.monotonic() < end:
        time.sleep(0.1)
    try:
        yield name
    finally:
        os.killpg(leader, signal.SIGKILL)


def _group(leader: int) -> list[str]:
    found = subprocess.run(("pgrep", "-g", str(leader)), capture_output=True, text=True, check=False)
    return found.stdout.split()


@contextlib.contextmanager
def _sshd(folder: Path) -> Iterator[tuple[int, str]]:
    """A sshd of our own on a loopback port: its pid, and the host to name."""
    for key in ("host_key", "user_key"):
        subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key), check=True)
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\n"
        "PasswordAuthentication no\nStrictModes no\nUsePAM no\nPidFile none\nSetEnv SHLVL=1\n"
    )
    (folder / "ssh_config").write_text(
        f"Host bench\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking accept-new\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    os.environ[settings.SSH_VARIABLE] = f"ssh -F {folder}/ssh_config"
    server = subprocess.Popen(("/usr/sbin/sshd", "-D", "-f", folder / "sshd_config"))
    while socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.02)
    try:
        yield server.pid, "bench"
    finally:
        for control in settings.control_dir().iterdir():
            subprocess.run(("ssh", "-o", f"ControlPath={control}", "-O", "exit", "x"), capture_output=True, check=False)
        server.terminate()
        server.wait()


def _cpu_of_tree(root: int) -> float:
    """CPU seconds of a process and of all below it, those that ended counted in."""
    rows = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = place.read_text().rpartition(") ")[2].split()
            rows[int(place.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    below = {root}
    while more := {pid for pid, (parent, _) in rows.items() if parent in below and pid not in below}:
        below |= more
    return _TICK * sum(rows[pid][1] for pid in below if pid in rows)


if __name__ == "__main__":
    main()
