"""The speed of a service is measured in bounded time, whatever it is; what was cut is told as the least."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bascule.benchmark.quick import Speed, quick
from bascule.core.nouns import Endpoint
from bascule.journal import Event
from bascule.show.story import Narrator
from verify.server import Server, chunk


@contextmanager
def slow(*delays: float) -> Iterator[tuple[str, list[float]]]:
    """A service that sends a token after each delay in turn, and never ends; and when it was asked."""
    asked: list[float] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(time.monotonic())
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for delay in (*delays, *[delays[-1]] * 10_000):
                if over.wait(delay):
                    return
                try:
                    self.wfile.write(f"data: {chunk({'content': 'x'})}\n\n".encode())
                except OSError:
                    return

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1", asked
    finally:
        over.set()
        http.shutdown()
        http.server_close()


def measured(url: str, span: float) -> Speed | None:
    return asyncio.run(quick(Endpoint(url, "tiny", "/health"), context=None, span=span))


def told(speed: Speed) -> str:
    data = {"speed": json.loads(json.dumps(speed, default=lambda one: {n: getattr(one, n) for n in one.__slots__}))}
    (said,) = Narrator().tell(Event(1, datetime(2026, 12, 1, tzinfo=UTC), "speed", data))
    return said.text


def test_an_answer_that_is_not_over_in_time_counts_as_far_as_it_came() -> None:
    with slow(0.05) as (url, asked):
        began = time.monotonic()
        speed = measured(url, 1.0)
        took = time.monotonic() - began
    assert speed is not None and speed.cut and len(asked) == 1
    assert 1.0 <= took < 10.0, "the service itself would go on for minutes"
    assert 2 <= speed.tokens <= 20 and 0 < speed.tokens_per_s <= 21
    assert told(speed).startswith(f"at least {speed.tokens_per_s:.1f} tok/s at batch 1 · first token after ")
    assert told(speed).endswith(f"measured on {speed.tokens} pieces of an answer that was not over in time")


def test_a_service_that_gives_nothing_in_time_has_no_speed() -> None:
    with slow(60.0) as (url, asked):
        assert measured(url, 0.5) is None
    assert len(asked) == 1


def test_a_fast_service_is_asked_three_times_and_its_tokens_are_those_of_usage() -> None:
    with Server() as server:
        speed = measured(server.url, 60.0)
    assert speed is not None and (speed.cut, speed.tokens, speed.rounds, len(server.asked)) == (False, 12, 3, 3)
    assert "least" not in told(speed) and "pieces" not in told(speed)
