"""Checksums of files, whole or by sampled blocks; hashlib lets other threads run meanwhile."""
# File descriptors.

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable

from bascule.distribute.weights.manifest import RANDOM_BLOCKS, Entry, is_sampled, sampled_blocks

BUFFER = 1 << 20


def digest(path: str, entry: Entry, verify: str, seed: int) -> str:
    """sha256 of a file, or `sampled:` and that of its sampled blocks. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return sampled(fd, entry, seed) if is_sampled(entry, verify) else whole(fd, entry.size)
    finally:
        os.close(fd)


def whole(fd: int, size: int) -> str:
    """sha256 of everything behind a descriptor; the size tells whether it is worth a buffer."""
    if size < BUFFER:
        data = os.pread(fd, size + 1, 0)
        if len(data) == size:
            return hashlib.sha256(data).hexdigest()
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    total, buffer = hashlib.sha256(), memoryview(bytearray(BUFFER))
    while got := os.readv(fd, [buffer]):
        total.update(buffer[:got])
    return total.hexdigest()


def growing(path: str, size: int, grown: Callable[[int], int]) -> str:
    """sha256 of a file that still grows: `grown` waits until there is more than so many bytes, and says how many.

    What was read is not needed again: weights in the page cache compete with the engine for memory.
    """
    total, buffer, at = hashlib.sha256(), memoryview(bytearray(BUFFER)), 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while at < size:
            begin, end = at, grown(at)
            while at < end:
                got = os.preadv(fd, [buffer[: min(BUFFER, end - at)]], at)
                if not got:
                    raise OSError(errno.EIO, "it is shorter than it was", path)
                total.update(buffer[:got])
                at += got
            os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)
        if os.fstat(fd).st_size != size:
            raise OSError(errno.EIO, "it is longer than it should be", path)
    finally:
        os.close(fd)
    return total.hexdigest()


def sampled(fd: int, entry: Entry, seed: int, count: int = RANDOM_BLOCKS) -> str:
    """sha256 over the sampled blocks and where they are."""
    total = hashlib.sha256()
    for offset, length in sampled_blocks(entry, seed, count):
        total.update(offset.to_bytes(8, "big"))
        total.update(os.pread(fd, length, offset))
    return f"sampled:{total.hexdigest()}"


def forget(path: str) -> None:
    """Let the kernel drop a file's pages: weights in the page cache compete with the engine for memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def settle(path: str) -> None:
    """Write a file to its disk and drop its pages, so that the next read is one of the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
