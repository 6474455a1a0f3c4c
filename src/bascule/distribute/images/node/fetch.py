"""Fetches blobs from the helper above, resumes what an earlier copy began, and goes one further up when it stalls."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from bascule.distribute.images.node.blobs import Blob, Spool
from bascule.distribute.images.node.codecs import unpack
from bascule.distribute.images.node.tarsplit import CHUNK, NodeTrouble

STALLED = 8.0  # seconds without a byte after which another helper is asked
GIVE_UP = 60.0  # seconds without a byte from anyone
WRONG_AT_MOST = 2  # times that a blob may come with another digest
LOOK = 5.0  # seconds between two looks at how fast it goes
GONE = 410  # how a helper says that it will never have a blob
FINAL = ("disk-full", "spool-failed", "layer-gone")  # no other helper can better these
MUCH_SLOWER = 8  # times that it must be slower than the next helper was, before that one is measured again
ENOUGH = 250e6  # bytes a second; nobody is called slow for giving less than a faster link could carry
MUCH_FASTER = 2.0  # times that the next helper must be faster now, before it is asked instead


class Upstream(NamedTuple):
    """Another helper that has, or is getting, the blobs."""

    name: str
    host: str
    port: int
    token: str
    codec: str = ""
    rate: float = 0.0  # bytes a second when it was measured; 0 when it was not


class Fetcher:
    """Gets blobs in order into a spool, from the first upstream that delivers."""

    def __init__(self, upstreams: list[Upstream], spool: Spool, *, trusting: bool = False, again: bool = False) -> None:
        """Trusting: digests are left to whoever reads the blobs next. Again: what is there came in this copy."""
        self.upstreams = upstreams
        self.spool = spool
        self.trusting = trusting
        self.again = again
        self.received = 0  # bytes over the network
        self.resumed = 0  # bytes that an earlier copy had left
        self.stop = threading.Event()
        self._at = 0  # the upstream in use
        self._moved = time.monotonic()
        self._watched = (time.monotonic(), 0)

    @property
    def source(self) -> str:
        """The name of the upstream in use."""
        return self.upstreams[self._at].name

    def fetch(self, blob: Blob) -> None:
        """Get all of a blob. Raises NodeTrouble when nobody delivers it, it is wrong, or the disk is full."""
        for _ in range(WRONG_AT_MOST):
            digest = self._begin(blob)
            self._moved = time.monotonic()
            while blob.have < blob.size:
                self._some(blob, digest)
            if self._is_right(blob, digest):
                self.spool.finish(blob)
                return
            os.unlink(self.spool.part(blob.digest))
            self._at = len(self.upstreams) - 1  # whoever changed it, ask the source itself
        raise NodeTrouble("layer-corrupt", f"{blob.digest} came as sha256:{digest.hexdigest()} from {self.source}")

    def _begin(self, blob: Blob) -> hashlib._Hash:
        """Open the blob's file and take over what is there already."""
        path = self.spool.begun(blob.digest)
        blob.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        digest, have = hashlib.sha256(), os.fstat(blob.fd).st_size if self.trusting else 0
        while data := os.pread(blob.fd, CHUNK, have):
            digest.update(data)
            have += len(data)
        whole_and_wrong = have == blob.size and not self._is_right(blob, digest)
        if have > blob.size or whole_and_wrong:  # before anyone reads it
            os.ftruncate(blob.fd, 0)
            digest, have = hashlib.sha256(), 0
        self.resumed += 0 if self.again else have
        blob.grow(have)
        return digest

    def _is_right(self, blob: Blob, digest: hashlib._Hash) -> bool:
        return self.trusting or f"sha256:{digest.hexdigest()}" == blob.digest

    def _some(self, blob: Blob, digest: hashlib._Hash) -> None:
        """Append what one connection gives; OSError from the disk is told apart from one of the network."""
        try:
            for data in self._stream(self.upstreams[self._at], blob):
                _append(blob, data)
                if not self.trusting:
                    digest.update(data)
                blob.grow(blob.have + len(data))
                self._moved = time.monotonic()
                if self._is_slow():
                    self._at += 1
                    return
            if blob.have < blob.size:
                self._next("the connection ended early")
        except (OSError, http.client.HTTPException, NodeTrouble) as trouble:
            if isinstance(trouble, NodeTrouble) and trouble.code in FINAL:
                raise
            self._next(str(trouble) or type(trouble).__name__)

    def _stream(self, upstream: Upstream, blob: Blob) -> Iterator[bytes]:
        link = http.client.HTTPConnection(upstream.host, upstream.port, timeout=STALLED)
        headers = {"Range": f"bytes={blob.have}-"}
        if upstream.codec:
            headers["X-Bascule-Codec"] = upstream.codec
        try:
            link.request("GET", f"/{upstream.token}/blobs/{blob.digest}", headers=headers)
            reply = link.getresponse()
            if reply.status == GONE and upstream is self.upstreams[-1]:
                raise NodeTrouble("layer-gone", reply.read(500).decode(errors="replace"))
            if reply.status not in (200, 206):
                raise NodeTrouble("blob-missing", f"{upstream.name} answered {reply.status}")
            raw = self._counted(reply)
            yield from unpack(upstream.codec, raw) if upstream.codec else raw
        finally:
            link.close()

    def _counted(self, reply: http.client.HTTPResponse) -> Iterator[bytes]:
        while data := reply.read1(CHUNK):
            if self.stop.is_set():
                raise NodeTrouble("stopped", "the copy ended")
            self.received += len(data)
            yield data

    def _next(self, why: str) -> None:
        if self.stop.is_set() or time.monotonic() - self._moved > GIVE_UP:
            raise NodeTrouble("source-lost", f"nothing came for {GIVE_UP:g} s; {self.source}: {why}")
        if self._at + 1 < len(self.upstreams):
            self._at += 1
            return
        self._at = 0
        self.stop.wait(1)

    def _is_slow(self) -> bool:
        """Every LOOK seconds: True when the helper above is slow, and the one above it measurably isn't."""
        since, then = self._watched
        passed = time.monotonic() - since
        if passed < LOOK:
            return False
        now, self._watched = (self.received - then) / passed, (time.monotonic(), self.received)
        further = self.upstreams[self._at + 1 :]
        if not further or now * MUCH_SLOWER > min(further[0].rate, ENOUGH):
            return False
        try:
            return probe(further[0], 4 * CHUNK) > MUCH_FASTER * now
        except (OSError, http.client.HTTPException):
            return False


def probe(upstream: Upstream, size: int) -> float:
    """Bytes a second that an upstream gives now. Raises OSError when it can't be reached."""
    link = http.client.HTTPConnection(upstream.host, upstream.port, timeout=STALLED / 2)
    try:
        link.request("GET", f"/{upstream.token}/fill/{size}")
        reply = link.getresponse()
        began, came = time.monotonic(), 0
        while data := reply.read1(CHUNK):
            came += len(data)
    finally:
        link.close()
    if came < size:
        raise ConnectionResetError(errno.ECONNRESET, f"{upstream.name} sent {came} of {size} bytes")
    return came / max(1e-6, time.monotonic() - began)


def _append(blob: Blob, data: bytes) -> None:
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(blob.fd, data[written:], blob.have + written)
    except OSError as trouble:
        if trouble.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NodeTrouble("disk-full", str(trouble)) from trouble
        raise NodeTrouble("spool-failed", str(trouble)) from trouble
