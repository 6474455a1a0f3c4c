"""A real registry, and a small server whose answers a test writes itself."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from bascule.registry.access import Access
from bascule.registry.accounts import Accounts
from bascule.registry.doors import Daemon
from registry.registry_parts import Registry
from registry.registry_parts import registry as running


def direct(accounts: Path = Path("/nonexistent"), **more) -> Access:
    """By http, and by no proxy."""
    client = more.pop("client", lambda: httpx2.Client(trust_env=False, timeout=10, max_redirects=3))
    return Access(True, client, Accounts(accounts), sleep=lambda _: None, daemon=Daemon(), **more)


@pytest.fixture(scope="session")
def registry(tmp_path_factory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("registry")) as server:
        yield server


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
