"""Blobs of one node: each grows, or is there, or is rebuilt on demand; readers wait for what has not come yet."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

from bascule.distribute.images.node.tarsplit import CHUNK, NodeTrouble

SEND_AT_ONCE = 4 << 20  # bytes of one sendfile
SPOOL_AGE = 7 * 86400  # seconds that what an interrupted copy left is kept


class Blob:
    """Content under its sha256: `have` bytes of the open file `fd` can be read now, or `rebuild` makes them."""

    def __init__(self, digest: str, size: int) -> None:
        self.digest = digest
        self.size = size
        self.fd = -1
        self.have = 0
        self.done = False
        self.failed = ""
        self.rebuild: Callable[[int], Iterator[bytes]] | None = None
        self.grown = threading.Condition()

    def grow(self, have: int, done: bool = False) -> None:
        """Tell the readers how much is there."""
        with self.grown:
            self.have, self.done = have, done
            self.grown.notify_all()

    def fail(self, why: str) -> None:
        """Tell the readers that no more will come."""
        with self.grown:
            self.failed = why
            self.grown.notify_all()

    def wait_beyond(self, offset: int) -> int:
        """Bytes that are there, once they are more than offset, or all. Raises NodeTrouble when no more come."""
        with self.grown:
            while self.have <= offset and not self.done and not self.failed:
                self.grown.wait(1)
            if self.failed:
                raise NodeTrouble("blob-failed", self.failed)
            return self.have

    def wait_done(self) -> None:
        """Return once it is whole and its digest is right. Raises NodeTrouble when it won't be."""
        with self.grown:
            while not self.done and not self.failed:
                self.grown.wait(1)
        if self.failed:
            raise NodeTrouble("blob-failed", self.failed)

    def read(self, offset: int = 0) -> Iterator[bytes]:
        """Its bytes from an offset to its end, as they come."""
        if self.rebuild:
            yield from self.rebuild(offset)
            return
        while offset < self.size:
            until = self.wait_beyond(offset)
            data = os.pread(self.fd, min(CHUNK, until - offset), offset)
            if not data:
                raise NodeTrouble("blob-failed", f"{self.digest} became shorter")
            offset += len(data)
            yield data


class Spool:
    """A folder of blobs, by digest; one that is not whole yet ends in .part."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def whole(self, digest: str) -> str:
        """Where a finished blob lies."""
        return os.path.join(self.folder, digest.replace(":", "-"))

    def part(self, digest: str) -> str:
        """Where an unfinished blob grows."""
        return self.whole(digest) + ".part"

    def begun(self, digest: str) -> str:
        """The file with what an earlier copy has left of a blob, as a .part; what was whole is checked again."""
        if os.path.exists(self.whole(digest)):
            os.replace(self.whole(digest), self.part(digest))
        return self.part(digest)

    def finish(self, blob: Blob) -> None:
        """Give a blob its name."""
        os.replace(self.part(blob.digest), self.whole(blob.digest))
        blob.grow(blob.size, done=True)

    def remove(self, digests: list[str]) -> None:
        """Forget these blobs."""
        for digest in digests:
            for path in (self.whole(digest), self.part(digest)):
                if os.path.exists(path):
                    os.unlink(path)

    def sweep(self) -> None:
        """Remove what is older than SPOOL_AGE."""
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            try:
                if name.startswith("sha256-") and os.stat(path).st_mtime < time.time() - SPOOL_AGE:
                    os.unlink(path)
            except FileNotFoundError:
                continue


def file_blob(digest: str, path: str) -> Blob:
    """A blob that lies whole in a file. Raises NodeTrouble when it doesn't."""
    try:
        blob = Blob(digest, os.stat(path).st_size)
        blob.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as trouble:
        raise NodeTrouble("layer-gone", str(trouble)) from trouble
    blob.grow(blob.size, done=True)
    return blob


def rebuilt_blob(digest: str, size: int, rebuild: Callable[[int], Iterator[bytes]]) -> Blob:
    """A blob that is made anew for each reader."""
    blob = Blob(digest, size)
    blob.rebuild = rebuild
    blob.grow(size, done=True)
    return blob
