"""Bytes of archives as streams: counted, bounded, and such that they can be stopped."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import subprocess
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from bascule.core.reading import Unreadable

CHUNK = 1 << 20  # bytes that are read at once
FREE_GROWTH = 256 << 20  # bytes that any small archive may unpack to
MOST_GROWTH = 300  # times; real layers stay below 20, deflate alone ends at 1032
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


class Reader(Protocol):
    """What can be read to its end, once."""

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""
        ...


@dataclass(slots=True)
class Meter:
    """Counts what came from the target; a stopped one lets nothing more through, so that a thread ends."""

    total: int = 0  # bytes
    stopped: bool = False

    def count(self, data: bytes) -> bytes:
        """The same bytes, counted."""
        if self.stopped:
            raise Unreadable("the reading", "was stopped")
        self.total += len(data)
        return data


class Segment:
    """A part of a seekable file."""

    def __init__(self, file: BinaryIO, start: int, size: int, meter: Meter) -> None:
        self.file, self.at, self.left, self.meter = file, start, size, meter

    def read(self, size: int, /) -> bytes:
        """See Reader."""
        self.file.seek(self.at)
        data = self.file.read(min(size, self.left, CHUNK))
        self.at, self.left = self.at + len(data), self.left - len(data)
        return self.meter.count(data)

    def skip(self, size: int) -> None:
        """Leave bytes out without reading them."""
        self.at, self.left = self.at + min(size, self.left), max(0, self.left - size)


class Pipe:
    """A file that can only be read on."""

    def __init__(self, file: BinaryIO, meter: Meter) -> None:
        self.file, self.meter = file, meter

    def read(self, size: int, /) -> bytes:
        """See Reader."""
        return self.meter.count(self.file.read(min(size, CHUNK)))


class Checked:
    """A stream of a known size and SHA-256; another one is told where it ends, a longer one as soon as it is longer."""

    def __init__(self, reader: Reader, digest: str, size: int | None = None) -> None:
        self.reader, self.digest, self.size = reader, digest, size
        self.sum, self.total = hashlib.sha256(), 0

    def read(self, size: int, /) -> bytes:
        """See Reader. Raises ValueError."""
        data = self.reader.read(size)
        self.sum.update(data)
        self.total += len(data)
        if self.size is not None and self.total > self.size:
            raise ValueError(f"more than the {self.size} bytes that were announced")
        if not data and f"sha256:{self.sum.hexdigest()}" != self.digest:
            raise ValueError(f"its {self.total} bytes have another digest, {self.sum.hexdigest()[:12]}…")
        return data


class Tally:
    """A stream that knows how far it was read; the first bytes may have been looked at before."""

    def __init__(self, reader: Reader, head: bytes = b"") -> None:
        self.reader, self.head, self.total = reader, head, 0

    def read(self, size: int, /) -> bytes:
        """See Reader."""
        data, self.head = (self.head[:size], self.head[size:]) if self.head else (self.reader.read(size), b"")
        self.total += len(data)
        return data


class Growing:
    """What another stream unpacks to, as long as it doesn't grow beyond all measure."""

    def __init__(self, reader: Reader, packed: Tally) -> None:
        self.reader, self.packed, self.total = reader, packed, 0

    def read(self, size: int, /) -> bytes:
        """See Reader. Raises ValueError."""
        data = self.reader.read(min(size, CHUNK))
        self.total += len(data)
        if self.total > FREE_GROWTH + MOST_GROWTH * self.packed.total:
            raise ValueError(f"{self.packed.total} bytes unpack to more than {MOST_GROWTH} times as many")
        return data


@contextlib.contextmanager
def unpacked(reader: Reader) -> Iterator[Reader]:
    """The stream itself, or what it unpacks to, by its first bytes. Raises ValueError."""
    head = b""
    while len(head) < 6 and (more := reader.read(6 - len(head))):
        head += more
    packed = Tally(reader, head)
    if head.startswith(GZIP):
        with gzip.GzipFile(fileobj=packed, mode="rb") as file:  # type: ignore[call-overload] # reads alone are used
            yield Growing(file, packed)
    elif head.startswith(ZSTD):
        with contextlib.closing(Zstd(packed)) as program:
            yield Growing(program, packed)
    else:
        other = next((name for magic, name in OTHERS.items() if head.startswith(magic)), None)
        if other:
            raise ValueError(f"compressed by {other}, which is not read here")
        yield packed


class Zstd:
    """What the zstd program unpacks; a thread feeds it. Raises ValueError."""

    def __init__(self, packed: Reader) -> None:
        try:
            words = ("zstd", "-dcq")  # it refuses windows of more than 128 MiB by itself
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except FileNotFoundError as missing:
            raise ValueError("compressed by zstd, and there is no zstd program here; install it") from missing
        self.packed, self.trouble = packed, ""
        self.feeder = threading.Thread(target=self._feed, daemon=True)
        self.feeder.start()

    def read(self, size: int, /) -> bytes:
        """See Reader."""
        assert self.process.stdout
        data = self.process.stdout.read(size)
        if not data:
            self.feeder.join()
            if self.trouble or self.process.wait():
                raise ValueError(self.trouble or "zstd can't unpack it")
        return data

    def close(self) -> None:
        """End the program."""
        assert self.process.stdout
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.feeder.join()

    def _feed(self) -> None:
        assert self.process.stdin
        try:
            with self.process.stdin as into:
                while chunk := self.packed.read(CHUNK):
                    into.write(chunk)
        except BrokenPipeError:
            pass  # it has ended: its exit status tells
        except (Unreadable, OSError, EOFError, ValueError) as trouble:
            self.trouble = str(trouble)


def drain(reader: Reader) -> None:
    """Read on to the end, where digests and checksums are compared."""
    while reader.read(CHUNK):
        pass


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn what goes wrong with foreign bytes into Unreadable."""
    try:
        yield
    except (OSError, EOFError, ValueError, zlib.error) as trouble:
        raise Unreadable(path, str(trouble) or type(trouble).__name__) from trouble
