"""A real registry, and in front of it a server that wants tokens and answers as badly as a test asks it to."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from bascule.registry.access import Access
from bascule.registry.accounts import Accounts
from bascule.registry.doors import Daemon
from probe_views.views_cases import config_of, digest, layer, manifest_of, packed

CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: "{root}"}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
MANIFEST, INDEX = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"
SECRET, PASSWORD = "t0k3n-nobody-may-see", "passw0rd-nobody-may-see"
ACCOUNT = base64.b64encode(f"me:{PASSWORD}".encode()).decode()


def client() -> httpx2.Client:
    """By no proxy and to this machine alone: whatever is asked for by https isn't reached."""

    def nobody(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("tests stay on this machine", request=request)

    away = {"https://": httpx2.MockTransport(nobody)}
    return httpx2.Client(trust_env=False, verify=False, timeout=10, max_redirects=3, mounts=away)


def direct(**more) -> Access:
    """With no account, and without waiting."""
    plain = Access(
        client=client,
        accounts=Accounts(Path("/nonexistent")),
        daemon=Daemon(),
        sleep=lambda _: None,
    )
    return replace(plain, **more)


@dataclass
class Registry:
    """The registry of Debian's package docker-registry, filled by its own API."""

    host: str

    def put(self, name: str, data: bytes) -> str:
        """A blob; gives its digest."""
        with direct().client() as client:
            begun = client.post(f"http://{self.host}/v2/{name}/blobs/uploads/").raise_for_status()
            place = httpx2.URL(begun.headers["location"]).copy_merge_params({"digest": digest(data)})
            client.put(place, content=data, headers={"Content-Type": "application/octet-stream"}).raise_for_status()
        return digest(data)

    def manifest(self, name: str, tag: str, data: bytes, kind: str = MANIFEST) -> str:
        """A manifest or an index; gives its digest."""
        with direct().client() as client:
            url = f"http://{self.host}/v2/{name}/manifests/{tag}"
            client.put(url, content=data, headers={"Content-Type": kind}).raise_for_status()
        return digest(data)

    def image(self, name: str, tag: str, files: Mapping[str, bytes], architecture: str = "arm64", **config) -> str:
        """An image of one layer; gives the digest of its manifest."""
        blob, told = packed(layer(files)), configured(architecture, layer(files), **config)
        for data in (blob, told):
            self.put(name, data)
        return self.manifest(name, tag, manifest_of(told, [blob]))

    def index(self, name: str, tag: str, images: Mapping[str, Mapping[str, bytes]]) -> str:
        """An index of images by architecture; gives its digest."""
        rows = []
        for architecture, files in images.items():
            own = self.image(name, f"only-{architecture}", files, architecture)
            blob, told = packed(layer(files)), configured(architecture, layer(files))
            size = len(manifest_of(told, [blob]))
            platform = {"os": "linux", "architecture": architecture}
            rows.append({"mediaType": MANIFEST, "digest": own, "size": size, "platform": platform})
        body = {"schemaVersion": 2, "mediaType": INDEX, "manifests": rows}
        return self.manifest(name, tag, json.dumps(body).encode(), INDEX)


def configured(architecture: str, whole: bytes, created: str = "2026-11-20T10:00:00Z", **inner) -> bytes:
    """The configuration of an image with one layer."""
    found = json.loads(config_of(architecture))
    found["config"] |= {"Labels": {}, **inner}
    found |= {"created": created, "rootfs": {"type": "layers", "diff_ids": [digest(whole)]}}
    return json.dumps(found).encode()


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """A registry that runs while the context is open."""
    if not shutil.which("docker-registry"):
        if "CI" in os.environ:
            pytest.fail("CI needs Debian's package docker-registry")
        pytest.skip("no docker-registry (Debian's package of that name)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config.yml").write_text(CONFIG.format(root=folder, port=port))
    process = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert process.poll() is None and time.monotonic() < until, "docker-registry does not answer"
            time.sleep(0.02)
        yield Registry(f"127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


Answer = Callable[[BaseHTTPRequestHandler], bool]  # False: it is for the registry to answer


@dataclass
class Front:
    """A server before a registry; it keeps what it was asked."""

    behind: str = ""  # host of the registry; "" = none
    token: str = ""  # that is wanted; "" = anybody may read
    accounts: tuple[str, ...] = ("",)  # Authorizations that get the token; "" is anybody
    basic: bool = False  # wants the account itself
    odd: list[Answer] = field(default_factory=list)  # asked first, in order
    asked: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)  # method, path, headers
    forms: list[Mapping[str, list[str]]] = field(default_factory=list)
    host: str = ""

    def paths(self, method: str = "") -> list[str]:
        """What it was asked for."""
        return [path for verb, path, _ in self.asked if method in ("", verb)]


@contextlib.contextmanager
def fronting(front: Front) -> Iterator[Front]:
    """The server at `front.host` while the context is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"front": front}))
    server.daemon_threads = True
    front.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield front
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    front: Front

    def do_GET(self) -> None:
        self.front.asked.append((self.command, self.path, dict(self.headers)))
        if any(odd(self) for odd in self.front.odd):
            return None
        login = self.headers.get("Authorization", "")
        if self.path.startswith("/token"):
            return self._token(login)
        wanted = f"Basic {ACCOUNT}" if self.front.basic else f"Bearer {self.front.token}"
        if (self.front.token or self.front.basic) and login != wanted:
            realm = 'Basic realm="x"'
            if not self.front.basic:
                realm = f'Bearer realm="http://{self.front.host}/token",service="here",scope="repository:x:pull"'
            return say(self, 401, WWW_Authenticate=realm)
        return self._pass_on()

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self.front.asked.append((self.command, self.path, dict(self.headers)))
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.front.forms.append(form)
        good = form.get("refresh_token") == [SECRET]
        say(self, 200 if good else 401, json.dumps({"access_token": self.front.token}).encode())

    def _token(self, login: str) -> None:
        if login not in self.front.accounts:
            return say(self, 401, b'{"details": "incorrect username or password"}')
        body = {"token": self.front.token, "expires_in": 300, "issued_at": "2026-12-01T00:00:00Z"}
        return say(self, 200, json.dumps(body).encode())

    def _pass_on(self) -> None:
        if not self.front.behind:
            return say(self, 404)
        with httpx2.Client(trust_env=False, verify=False) as client:
            headers = {"Accept": self.headers.get("Accept", "*/*"), "Accept-Encoding": "identity"}
            got = client.request(self.command, f"http://{self.front.behind}{self.path}", headers=headers)
        kept = {
            name: got.headers[name] for name in ("docker-content-digest", "link", "content-type") if name in got.headers
        }
        return say(self, got.status_code, got.content, **kept)

    def log_message(self, *args: object) -> None:
        pass


def say(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """An answer."""
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)


def on(end: str, *answers: tuple[int, dict[str, str]]) -> Answer:
    """The first answers to paths that end so; after them the registry answers."""
    left = list(answers)

    def answer(request: BaseHTTPRequestHandler) -> bool:
        if not urlsplit(request.path).path.endswith(end) or not left:
            return False
        status, headers = left.pop(0)
        say(request, status, **headers)
        return True

    return answer
