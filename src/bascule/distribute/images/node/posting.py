"""Loads an archive through dockerd's own socket: blobs go from their files to it without passing through programs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket

from bascule.distribute.images.node.blobs import SEND_AT_ONCE, Blob
from bascule.distribute.images.node.tarsplit import NodeTrouble

DEFAULT = "unix:///var/run/docker.sock"
ANSWER = 1 << 20  # bytes of an answer that are read


def daemon_socket(words: list[str]) -> str:
    """The socket that `docker` would use, when it is a Unix socket that we may write to; "" otherwise."""
    if words != ["docker"] or "DOCKER_CONTEXT" in os.environ or _context():
        return ""
    kind, _, path = os.environ.get("DOCKER_HOST", DEFAULT).partition("://")
    return path if kind == "unix" and os.access(path, os.W_OK) else ""


def _context() -> str:
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            context = str(json.load(file).get("currentContext", ""))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, AttributeError):
        return "unreadable"
    return "" if context == "default" else context


class Posting:
    """One `POST /images/load`."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._path = path

    def load(self, parts: list[bytes | Blob]) -> str:
        """Send all, and give what dockerd complains of, or "". Raises OSError; NodeTrouble for a blob that isn't right.

        An archive that ends early is not taken: the length was announced.
        """
        try:
            self._socket.connect(self._path)
            size = sum(part.size if isinstance(part, Blob) else len(part) for part in parts)
            head = f"POST /images/load?quiet=1 HTTP/1.1\r\nHost: docker\r\nContent-Length: {size}\r\n"
            self._socket.sendall(f"{head}Content-Type: application/x-tar\r\nConnection: close\r\n\r\n".encode())
            with contextlib.suppress(BrokenPipeError):  # it refuses before the end, and says why
                for part in parts:
                    self._send(part)
            return self._complaint()
        finally:
            self._socket.close()

    def kill(self) -> None:
        """End it from another thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, part: bytes | Blob) -> None:
        if not isinstance(part, Blob):
            self._socket.sendall(part)
            return
        offset = 0
        while offset < part.size:
            until = min(part.wait_beyond(offset), offset + SEND_AT_ONCE)
            sent = os.sendfile(self._socket.fileno(), part.fd, offset, until - offset)
            if not sent:
                raise NodeTrouble("blob-failed", f"{part.digest} became shorter")
            offset += sent
        part.wait_done()

    def _complaint(self) -> str:
        answer = http.client.HTTPResponse(self._socket, method="POST")
        try:
            answer.begin()
            said = answer.read(ANSWER).decode(errors="replace")
        except http.client.HTTPException as broken:
            raise ConnectionResetError(f"dockerd: {type(broken).__name__} {broken}") from broken
        if answer.status != http.client.OK:
            return said.strip() or f"dockerd answered {answer.status}"
        rows = [line for line in said.splitlines() if '"error' in line]
        return rows[-1] if rows else ""
