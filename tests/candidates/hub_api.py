"""A server on loopback that answers like Docker Hub's own API: search, repositories, tags, pages, limits."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

WHEN = "2026-11-20T10:00:00.123456Z"


@dataclass
class HubApi:
    """What it knows; `answers` are given before all others, as (status, headers)."""

    found: dict[str, list[str]] = field(default_factory=dict)  # query -> owner/name
    pulls: dict[str, int] = field(default_factory=dict)  # owner/name -> pulls
    tags: dict[str, list[dict[str, object]]] = field(default_factory=dict)  # owner/name -> rows
    answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    page: int = 100  # rows, whatever is asked for
    url: str = ""


def tag(
    name: str, *platforms: str, digest: str = "", updated: str = "2026-11-20T10:00:00.123456Z"
) -> dict[str, object]:
    """A row of the tags, as its document has it."""
    images = [
        {"architecture": one.split("/")[1], "os": one.split("/")[0], "size": 5, "digest": digest, "status": "active"}
        for one in platforms
    ]
    return {
        "creator": 1,
        "id": 2,
        "images": images,
        "last_updated": updated,
        "last_updater_username": "me",
        "name": name,
        "repository": 3,
        "full_size": 5,
        "v2": True,
        "tag_status": "active",
        "tag_last_pushed": updated,
        "digest": digest,
    }


@contextlib.contextmanager
def speaking(hub: HubApi) -> Iterator[HubApi]:
    """The server at `hub.url` while the context is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubApi

    def do_GET(self) -> None:
        self.hub.asked.append(self.path)
        if self.hub.answers:
            status, headers = self.hub.answers.pop(0)
            return self.say(status, {"detail": "Rate limit exceeded", "error": False}, headers)
        url = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        match parts:
            case ["v2", "search", "repositories"]:
                names = self.hub.found.get(asked["query"], [])
                return self.rows(url.path, asked, [self._found(name) for name in names])
            case ["v2", "repositories", owner, name] if f"{owner}/{name}" in self.hub.pulls:
                return self.say(200, self._repository(owner, name))
            case ["v2", "namespaces", owner, "repositories", name, "tags"] if f"{owner}/{name}" in self.hub.tags:
                return self.rows(url.path, asked, self.hub.tags[f"{owner}/{name}"])
        return self.say(404, {"message": "object not found", "errinfo": {}})

    def rows(self, path: str, asked: Mapping[str, str], rows: list[dict[str, object]]) -> None:
        """A page, with the address of the next one."""
        number, size = int(asked.get("page", 1)), min(int(asked.get("page_size", 10)), self.hub.page)
        more = {**asked, "page": str(number + 1)}
        query = "&".join(f"{key}={value.replace(' ', '+')}" for key, value in more.items())
        following = f"{self.hub.url}{path}?{query}" if len(rows) > number * size else None
        page = rows[(number - 1) * size : number * size]
        self.say(200, {"count": len(rows), "next": following, "previous": None, "results": page})

    def _found(self, name: str) -> dict[str, object]:
        return {
            "repo_name": name,
            "short_description": "made for tests",
            "star_count": 1,
            "pull_count": self.hub.pulls.get(name, 0),
            "repo_owner": "",
            "is_automated": False,
            "is_official": False,
        }

    def _repository(self, owner: str, name: str) -> dict[str, object]:
        return {
            "user": owner,
            "name": name,
            "namespace": owner,
            "repository_type": "image",
            "status": 1,
            "description": "made for tests",
            "is_private": False,
            "star_count": 1,
            "pull_count": self.hub.pulls[f"{owner}/{name}"],
            "last_updated": "2026-11-20T10:00:00.123456Z",
        }

    def say(self, status: int, body: object, headers: Mapping[str, str] = {}) -> None:
        """An answer in JSON, with what is left of the limit."""
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"X-RateLimit-Limit": "180", "X-RateLimit-Remaining": "170", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass
