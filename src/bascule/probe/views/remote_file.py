"""A file on a web server, read by HTTP ranges: it can be sought in, and only what is asked for travels."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import io
import os
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import IO

import httpx2

from bascule.core.reading import EXCERPT, Unreadable
from bascule.probe.index import Wheel
from bascule.probe.views.streams import Meter

TAIL = 128 * 1024  # bytes at the end that are read first: for a zip, the end record and often its table of contents
WHOLE = 200_000_000  # bytes; a larger file is never fetched whole
WIRE = 200_000_000  # bytes that one file may cost
LARGEST = 1 << 36  # bytes; a server that claims a larger file lies
APART = 32 * 1024  # bytes between two stretches that are rather read along than left out by one request more
PIECE = 16 * 1024 * 1024  # bytes that one read may ask for; the table of contents of torch has 2 MB
SLOWEST = 100_000  # bytes a second; a slower answer is given up
PATIENCE = 30.0  # seconds, on top of that


class RemoteFile(io.RawIOBase):
    """A seekable file for a thread; the requests are made by the loop that opened it, which can cancel them."""

    def __init__(self, client: httpx2.AsyncClient, wheel: Wheel, kept: IO[bytes]) -> None:
        super().__init__()
        self.size = 0
        self.meter = Meter()  # of bytes on the wire
        self.requests = 0
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._wheel = wheel
        self._kept = kept  # of the same length as the file, with holes
        self._there: list[tuple[int, int]] = []  # what is no hole: sorted stretches that don't touch
        self._at = 0

    def seekable(self) -> bool:
        """As zipfile wants it."""
        return True

    def readable(self) -> bool:
        """As zipfile wants it."""
        return True

    def tell(self) -> int:
        """The place where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See io.IOBase.seek."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError("sought before the beginning")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """See io.RawIOBase.read; for a thread alone. Raises Unreadable."""
        end = self.size if size < 0 else min(self._at + size, self.size)
        if end - self._at > PIECE:
            raise ValueError(f"a piece of {end - self._at} bytes")
        if end <= self._at:
            return b""
        self.get([(self._at, end)])
        self._kept.seek(self._at)
        self._at = end
        return self._kept.read(end - self._kept.tell())

    def get(self, stretches: Iterable[tuple[int, int]]) -> None:
        """Fetch what isn't there yet, near stretches by one request; for a thread alone. Raises Unreadable."""
        for start, end in joined(stretches, APART):
            if any(first <= start and end <= stop for first, stop in self._there):
                continue
            self.meter.count(b"")  # a stopped one asks for no more
            try:
                asyncio.run_coroutine_threadsafe(self._fetch(start, end), self._loop).result()
            except concurrent.futures.CancelledError:
                raise self._no("the reading was stopped") from None

    async def open(self) -> None:
        """Fetch the end of the file, which tells its length; or all of it, where the server doesn't do ranges.

        Raises Unreadable.
        """
        async with self._ask({"Range": f"bytes=-{TAIL}"}, TAIL) as answer:
            is_whole, length = answer.status_code == httpx2.codes.OK, answer.headers.get("content-length", "")
            if not is_whole:
                start, end, size = self._content_range(answer)
                if size > LARGEST or end != size or start != max(0, size - TAIL):
                    raise self._no(f"asked for the last {TAIL} bytes, the server sends {start} to {end} of {size}")
                if self._wheel.size not in (None, size):
                    raise self._no(f"the index says {self._wheel.size} bytes, the server {size}")
                self.size = size
                await self._keep(answer, start, end)
        if is_whole:
            said = int(length) if re.fullmatch(r"\d{1,18}", length) else None
            await self._fetch_whole(self._wheel.size or said)

    async def _fetch(self, start: int, end: int) -> None:
        """A stretch of the file, less what is there at its ends."""
        end = min(end, self.size)
        for first, stop in self._there:
            start = stop if first <= start < stop else start
            end = first if start < first < end <= stop else end
        if start >= end:
            return
        async with self._ask({"Range": f"bytes={start}-{end - 1}"}, end - start) as answer:
            if self._content_range(answer) != (start, end, self.size):
                said = answer.headers.get("content-range", "")[:EXCERPT]
                raise self._no(f"asked for bytes {start} to {end - 1} of {self.size}, the server sends {said}")
            await self._keep(answer, start, end)

    async def _fetch_whole(self, size: int | None) -> None:
        """All of a small file; its hash is checked."""
        if size is None or size > WHOLE:
            much = "of unknown size" if size is None else f"of {size / 1e6:.0f} MB"
            raise self._no(f"the server sends no parts of files, and a file {much} is not fetched whole")
        self.size = size
        async with self._ask({}, size) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise self._no(f"the server answers {answer.status_code} {answer.reason_phrase}".strip())
            digest = await self._keep(answer, 0, size)
        if self._wheel.sha256 not in ("", digest):
            raise self._no(f"its sha256 is {digest}, and the index says {self._wheel.sha256}")

    @asynccontextmanager
    async def _ask(self, headers: dict[str, str], size: int) -> AsyncIterator[httpx2.Response]:
        """One request for so many bytes, bounded in bytes and in time."""
        if self.meter.total + size > WIRE:
            raise self._no(f"takes more than {WIRE / 1e6:.0f} MB on the wire")
        self.requests += 1
        headers = {**headers, "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(PATIENCE + size / SLOWEST),
                self._client.stream("GET", self._wheel.url, headers=headers) as answer,
            ):
                yield answer
        except TimeoutError:
            raise self._no(f"the server is slower than {SLOWEST / 1e6} MB/s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as trouble:
            raise self._no(str(trouble) or type(trouble).__name__) from None
        except OSError as trouble:
            raise self._no(f"the temporary file: {trouble.strerror}") from None

    def _content_range(self, answer: httpx2.Response) -> tuple[int, int, int]:
        said = answer.headers.get("content-range", "")[:EXCERPT]
        numbers = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", said)
        if answer.status_code != httpx2.codes.PARTIAL_CONTENT or not numbers:
            seen = f"{answer.status_code} {answer.reason_phrase} {said}".strip()
            raise self._no(f"asked for a part, the server answers {seen}")
        return int(numbers[1]), int(numbers[2]) + 1, int(numbers[3])

    async def _keep(self, answer: httpx2.Response, start: int, end: int) -> str:
        """Keep exactly the bytes that were promised; their sha256."""
        at, digest = start, hashlib.sha256()
        async for chunk in answer.aiter_raw():
            self.meter.count(chunk)
            if at + len(chunk) > end:
                raise self._no(f"the server sends more than the {end - start} bytes that it promised")
            self._kept.seek(at)
            self._kept.write(chunk)
            digest.update(chunk)
            at += len(chunk)
        if at < end:
            raise self._no(f"the server ends after {at - start} of {end - start} bytes")
        self._there = joined([*self._there, (start, end)])
        return digest.hexdigest()

    def _no(self, why: str) -> Unreadable:
        return Unreadable(self._wheel.filename, why)


def joined(stretches: Iterable[tuple[int, int]], apart: int = 0) -> list[tuple[int, int]]:
    """Stretches that overlap, touch, or are at most so many bytes apart, made one; sorted."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if found and start - found[-1][1] <= apart:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
