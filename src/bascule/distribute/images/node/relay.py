"""Serves blobs to other helpers and, as a registry, to this node's docker: HTTP/1.1 with ranges, also while they grow.

Not encrypted: between nodes each request carries a one-time token, and whoever fetches checks the digest. It listens
on the one address it is given, and ends with the helper.
"""

from __future__ import annotations

import hmac
import itertools
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from bascule.distribute.images.node.blobs import SEND_AT_ONCE, Blob
from bascule.distribute.images.node.codecs import pack
from bascule.distribute.images.node.tarsplit import CHUNK, NodeTrouble

TLS_HELLO = b"\x16"  # docker asks a registry by https first, and by http once it is refused
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
GONE_AFTER = 30_000  # milliseconds that a peer may leave bytes unacknowledged
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Relay(ThreadingTCPServer):
    """The server: blobs by digest and, for docker, one manifest. HTTPServer would ask DNS for its own name first."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, token: str, blobs: dict[str, Blob], manifest: bytes = b"") -> None:
        self.token = token
        self.blobs = blobs
        self.manifest = manifest
        self.sent = 0
        self.on_ask: Callable[[Blob], None] = lambda _: None  # before a blob is given
        super().__init__((address, 0), RelayHandler)

    @property
    def port(self) -> int:
        """The port that the kernel chose."""
        return int(self.server_address[1])

    def begin(self) -> Relay:
        """Serve from a thread of its own."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        return self

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that goes away is no news; it asks again."""


class RelayHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Relay

    def handle(self) -> None:
        """Turn TLS away in words that docker understands, serve the rest."""
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18), GONE_AFTER)
        try:
            if self.connection.recv(1, socket.MSG_PEEK) == TLS_HELLO:
                self.connection.sendall(b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n")
            else:
                super().handle()
        except (OSError, NodeTrouble):
            self.close_connection = True

    def do_GET(self) -> None:
        """A blob, random bytes to measure the way with, or what a registry answers."""
        parts = self.path.split("?")[0].strip("/").split("/")
        if self.path.rstrip("/") == "/v2":
            self._reply(200, b"{}", "application/json")
        elif not self._may(parts):
            self._reply(404, b"{}", "application/json")
        elif parts[-2] == "blobs" and parts[-1] in self.server.blobs:
            self._blob(self.server.blobs[parts[-1]])
        elif parts[-2] == "manifests" and self.server.manifest:
            self._reply(200, self.server.manifest, MANIFEST)
        elif parts[-2] == "fill":
            self._fill(min(int(parts[-1]), 256 << 20))
        elif parts[-2] == "have":
            self._have(parts[-1])
        else:
            self._reply(404, b"{}", "application/json")

    def do_HEAD(self) -> None:
        """The same without a body."""
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: standard error is for what is wrong."""

    def _may(self, parts: list[str]) -> bool:
        return len(parts) > 2 and any(hmac.compare_digest(part, self.server.token) for part in parts[:-2])

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self._end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _end_headers(self) -> None:
        """Each reply closes its connection: containerd holds idle ones for 30 s, and a tunnel with them."""
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _have(self, digest: str) -> None:
        blob = self.server.blobs.get(digest)
        self._reply(200, json.dumps(blob.have if blob else -1).encode(), "application/json")

    def _fill(self, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self._end_headers()
        noise = os.urandom(CHUNK)
        for start in range(0, size, CHUNK):
            self.connection.sendall(noise[: size - start])

    def _blob(self, blob: Blob) -> None:
        found = _RANGE.match(self.headers.get("Range", ""))
        first = int(found[1]) if found else 0
        last = min(int(found[2]), blob.size - 1) if found and found[2] else blob.size - 1
        if first > last + 1 or (found and first >= blob.size > 0):
            self._reply(416, b"", "text/plain")
            return
        if self.command == "HEAD":
            self._head(blob, first, last, "")
            return
        self.server.on_ask(blob)
        try:
            chunks = _primed(blob, first, last + 1) if first <= last else iter(())
        except NodeTrouble as trouble:
            self._reply(410, str(trouble).encode(), "text/plain")
            return
        codec = self.headers.get("X-Bascule-Codec", "")
        self._head(blob, first, last, codec)
        if codec:
            self._send_chunks(pack(codec, chunks))
        elif blob.rebuild or last + 1 < blob.size:
            self._send_chunks(chunks)
        else:
            self._send_file(blob, first)

    def _head(self, blob: Blob, first: int, last: int, codec: str) -> None:
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Docker-Content-Digest", blob.digest)
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {first}-{last}/{blob.size}")
        if not codec:
            self.send_header("Content-Length", str(last + 1 - first))
        self._end_headers()

    def _send_chunks(self, chunks: Iterable[bytes]) -> None:
        """Small pieces are gathered: a layer of small files has many of a few hundred bytes."""
        gathered = bytearray()
        try:
            for chunk in chunks:
                if len(chunk) >= CHUNK // 4 and not gathered:
                    self._send_bytes(chunk)
                    continue
                gathered += chunk
                if len(gathered) >= CHUNK // 4:
                    self._send_bytes(gathered)
                    gathered = bytearray()
        finally:
            self._send_bytes(gathered)  # also when the rest is gone: then the next request is for that alone

    def _send_bytes(self, data: bytes | bytearray) -> None:
        self.connection.sendall(data)
        self.server.sent += len(data)

    def _send_file(self, blob: Blob, offset: int) -> None:
        while offset < blob.size:
            until = min(blob.wait_beyond(offset), offset + SEND_AT_ONCE)
            sent = os.sendfile(self.connection.fileno(), blob.fd, offset, until - offset)
            if not sent:
                raise NodeTrouble("blob-failed", f"{blob.digest} became shorter")
            offset += sent
            self.server.sent += sent


def _primed(blob: Blob, first: int, end: int) -> Iterator[bytes]:
    """A blob's bytes, the first of them read already: trouble comes before the reply's status. Raises NodeTrouble."""
    if blob.failed:
        raise NodeTrouble("blob-failed", blob.failed)
    chunks = _limited(blob.read(first), end - first)
    return itertools.chain([next(chunks)], chunks) if blob.rebuild else chunks


def _limited(chunks: Iterable[bytes], left: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            return


def manifest_of(config: bytes, config_digest: str, layers: list[tuple[str, int, str]]) -> bytes:
    """The OCI manifest that lists a config and layers (digest, size, media type)."""
    kind = "application/vnd.oci.image.config.v1+json"
    parts: list[dict[str, Any]] = [{"mediaType": media, "digest": d, "size": size} for d, size, media in layers]
    whole: dict[str, Any | None] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": kind, "digest": config_digest, "size": len(config)},
        "layers": parts,
    }
    return json.dumps(whole).encode()
