"""A hub on loopback that answers like the real one: commits, gates, redirects to a store, ranges, limits."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CHUNK = 65536


@dataclass(frozen=True)
class Zeros:
    """A large file: how it begins, and its size in bytes; the rest is zeros."""

    first: bytes
    size: int

    def part(self, begin: int, end: int) -> Iterator[bytes]:
        """Its bytes from `begin` to before `end`."""
        for at in range(begin, end, CHUNK):
            piece = self.first[at : min(at + CHUNK, end)]
            yield piece + bytes(min(CHUNK, end - at) - len(piece))


@dataclass
class FakeHub:
    """One model, and how the hub treats who asks for it. Files of kind Zeros are in a store on another port."""

    files: dict[str, bytes | Zeros] = field(default_factory=dict)
    name: str = "owner/model"
    revisions: tuple[str, ...] = ("main", "refs/pr/1", COMMIT)
    token: str = ""  # who doesn't bring it is kept out
    ranges: bool = True
    answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)  # first ones, before all others
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)  # path and headers, of the hub
    stored: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)  # the same, of the store
    sent: int = 0  # bytes of bodies
    url: str = ""
    store: str = ""


@contextlib.contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub at `hub.url` for as long as the context is open."""
    with _listening(hub, _AtHub) as hub.url, _listening(hub, _AtStore) as hub.store:
        yield hub


@contextlib.contextmanager
def _listening(hub: FakeHub, kind: type[_Handler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type(kind.__name__, (kind,), {"hub": hub}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keeps quiet."""

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A whole answer; `_` in the name of a header stands for `-`."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.hub.sent += len(body)


class _AtHub(_Handler):
    def do_GET(self) -> None:
        self.hub.asked.append((self.path, dict(self.headers)))
        if self.hub.answers:
            status, headers = self.hub.answers.pop(0)
            return self.say(status, **headers)
        match = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", self.path)
        if not match or unquote(match[1]) != self.hub.name:
            return self.say(401, X_Error_Code="RepoNotFound")  # so that nobody learns which private ones there are
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self.say(401, X_Error_Code="GatedRepo")
        if unquote(match[2]) not in self.hub.revisions:
            return self.say(404, X_Error_Code="RevisionNotFound")
        return self._file(unquote(match[3]))

    def _file(self, name: str) -> None:
        content = self.hub.files.get(name)
        if content is None:
            return self.say(404, X_Error_Code="EntryNotFound")
        commit = {"X_Repo_Commit": COMMIT, "ETag": '"12"'}
        if isinstance(content, Zeros):
            where = f"{self.hub.store}/blob/{name}?signature=1"
            return self.say(302, Location=where, X_Linked_Size=str(content.size), **commit)
        return self.say(200, content, **commit)


class _AtStore(_Handler):
    def do_GET(self) -> None:
        self.hub.stored.append((self.path, dict(self.headers)))
        content = self.hub.files[self.path.split("/")[-1].split("?")[0]]
        assert isinstance(content, Zeros)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(asked[1]), min(int(asked[2]) + 1, content.size)) if asked else (0, content.size)
        if not self.hub.ranges:
            begin, end = 0, content.size
        self.send_response(206 if asked and self.hub.ranges else 200)
        if asked and self.hub.ranges:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{content.size}")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for piece in content.part(begin, end):
                self.wfile.write(piece)
                self.hub.sent += len(piece)
