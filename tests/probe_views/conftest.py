"""A real registry, and a small server whose answers a test writes itself."""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from bascule.registry.access import Access
from bascule.registry.accounts import Accounts
from bascule.registry.doors import Daemon
from probe_views.views_cases import digest

CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: "{root}"}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def direct(accounts: Path = Path("/nonexistent"), **more) -> Access:
    """By http, and by no proxy."""
    client = more.pop("client", lambda: httpx2.Client(trust_env=False, timeout=10, max_redirects=3))
    return Access(True, client, Accounts(accounts), sleep=lambda _: None, daemon=Daemon(), **more)


class Registry:
    """The registry of Debian's package docker-registry, filled by its own API."""

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"

    def blob(self, name: str, data: bytes) -> None:
        with direct().client() as client:
            begun = client.post(f"http://{self.host}/v2/{name}/blobs/uploads/").raise_for_status()
            place = httpx2.URL(begun.headers["location"]).copy_merge_params({"digest": digest(data)})
            client.put(place, content=data, headers={"Content-Type": "application/octet-stream"}).raise_for_status()

    def manifest(self, name: str, tag: str, data: bytes, kind: str) -> None:
        with direct().client() as client:
            client.put(
                f"http://{self.host}/v2/{name}/manifests/{tag}", content=data, headers={"Content-Type": kind}
            ).raise_for_status()


@pytest.fixture(scope="session")
def registry(tmp_path_factory) -> Iterator[Registry]:
    if not shutil.which("docker-registry"):
        if "CI" in os.environ:
            pytest.fail("CI needs Debian's package docker-registry")
        pytest.skip("no docker-registry (Debian's package of that name)")
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config.yml").write_text(CONFIG.format(root=folder, port=port))
    process = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stderr=subprocess.DEVNULL)
    try:
        _answers(port, process)
        yield Registry(port)
    finally:
        process.kill()
        process.wait()


def _answers(port: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("docker-registry does not answer")


@pytest.fixture
def serve() -> Iterator[Callable[[Callable], str]]:
    """Start a server that answers each GET by a function of the handler; gives its host."""
    servers = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *args) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def access() -> Callable[..., Access]:
    return direct
