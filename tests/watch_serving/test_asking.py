"""What is asked of a service over HTTP, here and through a real sshd: its metrics, and one token."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading

import pytest

from bascule.core.nouns import Endpoint, Node
from bascule.operate.asking import Asker
from watch_serving.test_serving_facts import METRICS

CHUNK = {"model": "m", "choices": [{"delta": {"content": "1"}, "finish_reason": "length"}]}


class Service(http.server.BaseHTTPRequestHandler):
    """Answers as an engine does; `status` is that of completions, `metrics` the text of /metrics."""

    status, metrics = 200, METRICS
    asked: list[dict] = []  # noqa: RUF012

    def do_GET(self):
        self._answer(200 if self.metrics else 404, self.metrics.encode())

    def do_POST(self):
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(self.status, f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode())

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    """A handler of its own, and the address where it answers."""
    handler = type("OwnService", (Service,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield handler
    server.shutdown()
    server.server_close()


def asked(url, what="ask", node=None):
    async def run():
        asker = Asker(Endpoint(url, "m", "/health"), node or Node("a", "local"), "vllm")
        try:
            return await getattr(asker, what)()
        finally:
            await asker.close()

    return asyncio.run(run())


def test_a_token_is_asked_for_and_no_more(service):
    assert asked(service.url) == ("", "")
    assert (service.asked[0]["max_tokens"], service.asked[0]["model"]) == (1, "m")


def test_an_error_of_the_service_is_a_failure_and_one_of_the_asker_is_not(service):
    service.status = 500
    failed, refused = asked(service.url)
    assert (failed.startswith("HTTP 500"), refused) == (True, "")
    service.status = 401
    failed, refused = asked(service.url)
    assert (failed, refused.startswith("HTTP 401")) == ("", True)


def test_a_port_at_which_nobody_listens_is_a_failure_where_it_can_be_reached():
    failed, refused = asked("http://127.0.0.1:9/v1")
    assert ("ConnectError" in failed, refused) == (True, "")


def test_metrics_are_read_and_those_that_are_not_there_are_not_known(service):
    load = asked(service.url, "load")
    assert (load.open, load.work) == (2.0, 2580.0)
    service.metrics = ""
    assert asked(service.url, "load").open is None
    assert asked("http://127.0.0.1:9/v1", "load").open is None


def test_a_head_that_only_ssh_reaches_is_asked_through_it(service, sshd):
    assert asked(service.url, node=sshd.node()) == ("", "")
    assert asked(service.url, "load", sshd.node()).open == 2.0


def test_a_head_that_ssh_does_not_let_through_can_not_be_asked(service, sshd):
    sshd.stop()
    sshd.start("AllowTcpForwarding no")
    failed, refused = asked(service.url, node=sshd.node())
    assert failed == ""
    assert refused
