"""One bascule at a time works on a service: a lock file that the kernel frees when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bascule.errors import Busy


@contextmanager
def service_lock(folder: Path, service: str, doing: str) -> Iterator[None]:
    """Hold the lock of a service. Raises Busy, naming who holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{service}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(service, file.name) from None
        file.truncate(0)
        holder = {
            "pid": os.getpid(),
            "doing": doing,
            "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        file.write(json.dumps(holder))
        file.flush()
        yield
        file.truncate(0)


def is_held(folder: Path, service: str) -> bool:
    """True while a bascule works on the service."""
    try:
        with (folder / f"{service}.lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # nobody ever has
    return False


def _busy(service: str, path: str) -> Busy:
    try:
        holder = json.loads(Path(path).read_text())
        who = f"`bascule {holder['doing']}` (pid {holder['pid']}, since {holder['since']})"
    except (ValueError, KeyError, OSError):
        who = "another bascule"
    return Busy(
        "service-busy", f"{who} is working on {service}", seen=path, advice="wait for it, or interrupt it with Ctrl-C"
    )
