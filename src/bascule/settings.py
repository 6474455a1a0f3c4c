"""Where bascule keeps things on the controller, after the XDG base directories, and the variables it listens to."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from bascule.errors import BasculeError

SSH_VARIABLE = "BASCULE_SSH"  # the ssh command, as words: "ssh -F other_config"
ENGINES_VARIABLE = "BASCULE_ENGINES"  # folders on the nodes that hold engine environments, ':' between them
IMAGES_VARIABLE = "BASCULE_IMAGES"  # a catalogue of images (TOML) instead of the one that comes with bascule
DOCKER_HUB_VARIABLE = "BASCULE_DOCKER_HUB"  # Docker Hub's own API, or one that answers like it: https://host
OFFLINE_VARIABLE = "BASCULE_OFFLINE"  # 1: candidates come from the nodes alone, no registry or hub is asked


def state_dir() -> Path:
    """The journal, its evidence and the locks: $XDG_STATE_HOME/bascule."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "bascule"


def cache_dir() -> Path:
    """What can be fetched again: $XDG_CACHE_HOME/bascule."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bascule"


def offline() -> bool:
    """Whether no registry and no hub is to be asked for candidates."""
    return os.environ.get(OFFLINE_VARIABLE, "").lower() not in ("", "0", "no", "false", "off")


def control_dir() -> Path:
    """Sockets of shared SSH connections; short, since a socket path may have 104 bytes."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    root = Path(base) if base and Path(base).is_dir() else Path(tempfile.gettempdir())
    path = root / f"bascule-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    seen = path.lstat()
    if seen.st_uid != os.getuid() or seen.st_mode & 0o077 or not path.is_dir():
        raise BasculeError("control-folder", f"{path} is not a folder of this user alone", advice=f"remove {path}")
    return path


def ssh_command() -> tuple[str, ...]:
    """The ssh client to use, as words."""
    return tuple(shlex.split(os.environ.get(SSH_VARIABLE, ""))) or ("ssh",)
