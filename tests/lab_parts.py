"""Hosts for the tests of a folder: a lab of its own that is there while the context is open, and the ssh to it.

Beside it an image that is small enough to be made from this machine's own files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule import settings
from bascule.lab import hosts
from bascule.lab.spec import Host, Lab

TINY = "tiny:1"
TOOLS = ("/bin/sh", "/bin/sleep", "/bin/cat")


@contextlib.contextmanager
def lab_of(factory: pytest.TempPathFactory, name: str, size: int, net: int, *, docker: bool = True) -> Iterator[Lab]:
    """Hosts h1 to hN; meanwhile the state folder is one of its own, and BASCULE_SSH leads to them."""
    needed = "dockerd" if docker else "iptables"
    if os.getuid() or not shutil.which(needed):
        if "CI" in os.environ:
            pytest.fail(f"a lab needs root, {needed} and sshd in CI")
        pytest.skip(f"a lab needs root and {needed}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(factory.mktemp("state")))
        patch.setenv("XDG_RUNTIME_DIR", str(factory.mktemp("r")))
        made = Lab(name, hosts.folder_of(name), size, net)
        hosts.up(made, docker=docker)
        patch.setenv(settings.SSH_VARIABLE, f"ssh -F {made.folder}/ssh_config")
        try:
            yield made
        finally:
            end_masters()
            hosts.down(name)


def end_masters() -> None:
    """Shared connections of ssh end."""
    for control in settings.control_dir().iterdir():
        subprocess.run(["ssh", "-o", f"ControlPath={control}", "-O", "exit", "x"], capture_output=True, check=False)


def inside(host: Host, *words: str) -> str:
    """What a command prints that root runs on a host, without the space around it."""
    done = subprocess.run(hosts.inside(host, words), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def tiny_image(folder: Path) -> Path:
    """The root file system of an image: a shell, sleep and cat with their libraries."""
    path = folder / "tiny.tar"
    told = subprocess.run(["ldd", *TOOLS], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in told.split() if word.startswith("/") and not word.endswith(":")}
    with tarfile.open(path, "w", dereference=True) as archive:
        for file in sorted({*TOOLS, *libraries}):
            archive.add(file)
        for name in ("run", "tmp"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return path


def import_tiny(lab: Lab, tar: Path) -> None:
    """Every host has the image TINY."""
    for host in lab.hosts:
        shutil.copy(tar, lab.host_folder(host) / "tiny.tar")
        inside(host, "docker", "import", "/run/host/tiny.tar", TINY)
