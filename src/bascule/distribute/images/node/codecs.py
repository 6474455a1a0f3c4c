"""Compression between two helpers: chosen by measuring, never inside docker."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from bascule.distribute.images.node.tarsplit import CHUNK, NodeTrouble

SAMPLE = 8 << 20  # bytes that are compressed to see what it brings


def codecs_here() -> list[str]:
    """What this node can pack and unpack."""
    return ["zstd", "zlib"] if shutil.which("zstd") else ["zlib"]


def pack(codec: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks, compressed."""
    if codec == "zlib":
        packer = zlib.compressobj(1)
        for chunk in chunks:
            yield packer.compress(chunk)
        yield packer.flush()
    else:
        yield from _through(["zstd", "-1", "-q", "-c"], chunks)


def unpack(codec: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """What pack was given."""
    if codec == "zlib":
        unpacker = zlib.decompressobj()
        for chunk in chunks:
            yield unpacker.decompress(chunk)
        yield unpacker.flush()
    else:
        yield from _through(["zstd", "-d", "-q", "-c"], chunks)


def measure(sample: bytes) -> dict[str, tuple[float, float]]:
    """Per codec: bytes that it packs in a second here, and what is left of each byte."""
    found = {}
    for codec in codecs_here():
        began = time.monotonic()
        left = sum(len(chunk) for chunk in pack(codec, [sample]))
        found[codec] = (len(sample) / (time.monotonic() - began), left / max(1, len(sample)))
    return found


def _through(command: list[str], chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The output of a process that is fed by a thread; what goes wrong while feeding is raised here."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    trouble: list[Exception] = []
    feeder = threading.Thread(target=_feed, args=(process.stdin, chunks, trouble), daemon=True)
    feeder.start()
    try:
        while data := os.read(process.stdout.fileno(), CHUNK):
            yield data
        feeder.join()
        if trouble:
            raise trouble[0]
        if process.wait():
            raise NodeTrouble("codec-failed", f"{command[0]} ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()


def _feed(stdin: IO[bytes], chunks: Iterable[bytes], trouble: list[Exception]) -> None:
    try:
        for chunk in chunks:
            stdin.write(chunk)
    except (OSError, NodeTrouble) as error:  # raised where the output is read
        trouble.append(error)
    finally:
        with contextlib.suppress(OSError):
            stdin.close()
