"""A small OpenAI-compatible server in a thread that can add, and that can go wrong in every way seen in the field."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

REASONING = "add the ones, then the tens"


class Server:
    """Answers at `url` as `mode` says until the with-block ends; `asked` are the bodies of the requests.

    With `recorded` it sends that stream, byte for byte.
    """

    def __init__(self, mode: str = "right", recorded: bytes = b"") -> None:
        self.mode = mode
        self.recorded = recorded
        self.asked: list[dict[str, Any]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_of": self}))
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def events(self, question: str) -> Iterator[str]:
        """The data of each server-sent event."""
        a, b = map(int, re.findall(r"\d+", question))
        reasoning = "reasoning_content" if self.mode == "reasoning in reasoning_content" else "reasoning"
        answer = str(a + b + (1 if self.mode == "wrong number" else 0))
        yield chunk({"role": "assistant", "content": ""})
        if self.mode == "HTTP 200, error in the stream":
            yield json.dumps({"error": {"message": "EngineCore encountered an issue.", "code": 500}})
            return
        if self.mode == "no JSON":
            yield "<html>busy</html>"
            return
        if self.mode == "think tags in the content":
            answer = f"{REASONING}\n</think>\n\n{answer}"
        elif self.mode != "no reasoning":
            yield from (chunk({reasoning: word}) for word in re.findall(r"\S+\s*", REASONING))
        if self.mode == "tokens used up":
            yield chunk({}, "length")
        else:
            yield from (chunk({"content": letter}) for letter in answer)
            yield chunk({}, "stop")
        if self.mode != "no usage":
            yield json.dumps({"model": "tiny", "choices": [], "usage": {"completion_tokens": 12}})
        yield "[DONE]"


def chunk(delta: dict[str, str], finish: str | None = None) -> str:
    """One piece of an answer."""
    return json.dumps({"model": "tiny", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: Server

    def do_POST(self) -> None:
        server = self.server_of
        server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if server.mode == "HTTP 500":
            self.send_error(500, "out of luck")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if server.recorded:
            self._send(server.recorded)
        elif server.mode != "empty stream":
            question = server.asked[-1]["messages"][0]["content"]
            for number, data in enumerate(server.events(question)):
                if server.mode == "connection cut" and number == 3:
                    self.close_connection = True
                    return
                self._send(f"data: {data}\n\n".encode())
        self._send(b"")

    def _send(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):X}\r\n".encode() + data + b"\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet."""
