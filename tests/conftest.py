"""What tests of several folders share: a real sshd, and state folders of their own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from bascule import settings
from bascule.core.nouns import Node

SSHD = shutil.which("sshd", path=f"{os.defpath}:/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")
# The python3 of a node that is this machine: one that a version manager wraps takes five times as long to start.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"


hypothesis.settings.register_profile("bascule", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("bascule")


@dataclass
class Sshd:
    """A real sshd on a loopback port; `alias` is a host of the ssh config that BASCULE_SSH names."""

    folder: Path
    port: int
    alias: str = "node-b"
    process: subprocess.Popen[bytes] | None = None

    def node(self, name: str = "b", host: str = "", run_dir: str | None = None) -> Node:
        """A node that is reached through it."""
        return Node(name, host or self.alias, run_dir=run_dir)

    def start(self, *options: str) -> None:
        """Listen, with more lines of sshd_config."""
        config = self.folder / "sshd_config"
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/authorized_keys",
            "PasswordAuthentication no",
            "StrictModes no",
            "UsePAM no",
            "PidFile none",
            # Debian's bash reads ~/.bashrc for a command over ssh unless a shell is around it: what a person has
            # there takes its time, and may wait for a lock that a killed session left.
            "SetEnv SHLVL=1",
        ]
        config.write_text("\n".join([*lines, *options]) + "\n")
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=log)
        end = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert time.monotonic() < end, (self.folder / "sshd.log").read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        """End it, with every connection that it has."""
        if self.process is None:
            return
        for pid in [self.process.pid, *_descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """XDG_STATE_HOME, for journals and run folders."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A running sshd with its own keys, and BASCULE_SSH set to an ssh that may enter."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        if "CI" in os.environ:
            pytest.fail("OpenSSH's server must be there in CI: apt-get install openssh-server")
        pytest.skip("no sshd here")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root wants it
    server = _with_keys(tmp_path / "sshd")
    sockets = tempfile.mkdtemp(prefix="b")  # a socket's path is short
    monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
    monkeypatch.setenv(settings.SSH_VARIABLE, f"ssh -F {server.folder}/ssh_config")
    server.start()
    yield server
    for control in settings.control_dir().iterdir():
        subprocess.run(["ssh", "-o", f"ControlPath={control}", "-O", "exit", "x"], capture_output=True, check=False)
    server.stop()
    shutil.rmtree(sockets)


def _with_keys(folder: Path) -> Sshd:
    folder.mkdir()
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    server = Sshd(folder, port)
    (folder / "ssh_config").write_text(
        f"Host {server.alias}\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"Host *\n  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    return server


def _descendants(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    children = [int(word) for word in found.stdout.split()]
    return [*children, *(deeper for child in children for deeper in _descendants(child))]
