"""Hosts for the tests of a folder: a lab of its own that is there while the context is open, and the ssh to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from bascule import settings
from bascule.lab import hosts
from bascule.lab.spec import Lab


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
