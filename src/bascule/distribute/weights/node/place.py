"""Where a target's files lie: the half copy beside the final place, its lock, its journal and its room."""
# 100,000 files: plain strings and os calls, not Path objects.

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import time

from bascule.distribute.weights.manifest import MIB, Manifest, split_hub
from bascule.distribute.weights.node.listing import expand
from bascule.distribute.weights.node.wire import Trouble
from bascule.distribute.weights.ranges import SMALL

SUFFIX = ".bascule-part"
LOCK_WITHIN = 5.0  # seconds; a helper whose controller was killed ends sooner
MARGIN = 16 * MIB  # bytes that stay free


class Place:
    """The final place of a copy on this node, and the half copy beside it: `.NAME.bascule-part`."""

    def __init__(self, path: str, manifest: Manifest) -> None:
        full = expand(path)
        hub = split_hub(full)
        self.manifest = manifest
        self.final = os.path.realpath(hub[0] if hub and manifest.kind == "hub" else full)
        parent, self.name = os.path.split(self.final)
        self.part = os.path.join(parent, f".{self.name}{SUFFIX}")
        self.data = os.path.join(self.part, "data")
        self.journal = os.path.join(self.part, "journal")
        self._lock = -1
        self._made: set[str] = set()

    @property
    def root(self) -> str:
        """The folder below which the entries' paths lead, once all is visible."""
        return os.path.dirname(self.final) if self.manifest.kind == "file" else self.final

    def lock(self) -> None:
        """Make the half copy's folder ours. Raises Trouble when another copy works on it, or it can't be made."""
        until = time.monotonic() + LOCK_WITHIN
        name = os.path.join(self.part, "lock")
        while True:
            try:
                os.makedirs(self.data, exist_ok=True)
                fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as trouble:
                raise disk_trouble(trouble, self.part) from trouble
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.exists(name) and os.fstat(fd).st_ino == os.stat(name).st_ino:
                    self._lock = fd
                    return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Trouble("busy", f"another copy writes {self.final} at this moment", name) from None
            os.close(fd)
            time.sleep(0.1)

    def free(self) -> tuple[int, int | None]:
        """Free bytes and files where the copy will lie; files are None when the file system doesn't count them."""
        near = self.part
        while not os.path.isdir(near):
            near = os.path.dirname(near)
        seen = os.statvfs(near)
        return seen.f_bavail * seen.f_frsize, seen.f_favail if seen.f_files else None

    def read_journal(self) -> bytes:
        """What was noted by earlier copies."""
        try:
            with open(self.journal, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def part_of(self, path: str) -> str:
        """Where a file lies before it is visible; its folder is made."""
        full = os.path.join(self.data, path)
        folder = os.path.dirname(full)
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        return full

    def locate(self, path: str) -> str:
        """Where a file is now: in the half copy, else visible."""
        part = os.path.join(self.data, path)
        return part if os.path.exists(part) else os.path.join(self.root, path)

    def clear(self, keep: set[str]) -> int:
        """Remove from the half copy what is not in the manifest any more; the bytes that its large files take."""
        taken = 0
        for folder, _, names in os.walk(self.data):
            for name in names:
                full = os.path.join(folder, name)
                if os.path.relpath(full, self.data) not in keep:
                    os.unlink(full)
                elif (seen := os.lstat(full)).st_size > SMALL:
                    taken += seen.st_blocks * 512
        return taken

    def release(self) -> None:
        """Remove what is left of the half copy, and let others in."""
        shutil.rmtree(self.part, ignore_errors=True)
        os.close(self._lock)


def disk_trouble(error: OSError, path: str) -> Trouble:
    """What a failed write means: a full disk, or something else."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Trouble("no-room", "its disk became full during the copy; nothing of it is visible", str(error))
    return Trouble("unwritten", f"{path} can't be written", str(error))


def sync_file_system(path: str) -> None:
    """Write everything of one file system to its disk: one call for 100,000 files."""
    fd = os.open(path, os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
        if syncfs is None or syncfs(fd):
            os.sync()
    finally:
        os.close(fd)
