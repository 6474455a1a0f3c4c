"""What Docker Hub says of repositories, by its documented shapes; and what is made of answers that aren't."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bascule.core.reading import Unreadable
from bascule.discover.docker_hub import DockerHub, Popularity
from bascule.registry.troubles import RegistryTrouble
from candidates.hub_api import tag
from registry.registry_parts import direct

DIGEST = f"sha256:{'a' * 64}"


def asked(hub, **more):
    return DockerHub(direct(**more), hub.url)


def test_a_search_gives_repositories_with_their_pulls(hub):
    hub.found["vllm gb10"] = ["one/vllm", "two/vllm-gb10"]
    hub.pulls["two/vllm-gb10"] = 4200
    found = asked(hub).search("vllm gb10", 10)
    assert [(row.name, row.pulls, row.says) for row in found] == [
        ("one/vllm", 0, "made for tests"),
        ("two/vllm-gb10", 4200, "made for tests"),
    ]
    assert hub.asked == ["/v2/search/repositories/?query=vllm%20gb10&page_size=10"]
    assert asked(hub).search("nothing", 10) == ()


def test_pages_are_followed_as_far_as_is_wanted(hub):
    hub.page = 3
    hub.tags["o/n"] = [tag(f"v{number}") for number in range(8)]
    assert len(asked(hub).tags("o/n")) == 8 and len(hub.asked) == 3
    hub.asked.clear()
    assert [one.name for one in asked(hub).tags("o/n", 4)] == ["v0", "v1", "v2", "v3"] and len(hub.asked) == 2


def test_a_tag_says_platforms_digest_and_time(hub):
    hub.tags["o/n"] = [tag("1", "linux/amd64", "linux/arm64", digest=DIGEST), tag("2", updated="never")]
    first, second = asked(hub).tags("o/n")
    assert (first.platforms, first.digest) == (("linux/amd64", "linux/arm64"), DIGEST)
    assert str(first.updated).startswith("2026-11-20 10:00:00")
    assert (second.platforms, second.digest, second.updated) == ((), "", None)


def test_how_often_a_repository_was_pulled(hub):
    hub.pulls["o/n"] = 12
    found = asked(hub).popularity("o/n")
    assert found == Popularity(12, found.updated) and found.updated.year == 2026
    assert asked(hub).popularity("o/other") is None


def test_its_limit_is_waited_for_until_the_time_that_it_names(hub):
    slept = []
    hub.pulls["o/n"] = 12
    hub.answers = [(429, {"X-Retry-After": "1000010"})]
    assert asked(hub, sleep=slept.append, now=lambda: 1000000.0).popularity("o/n").pulls == 12
    assert slept == [10.0]
    hub.answers = [(429, {"X-Retry-After": "1003600"})]
    with pytest.raises(RegistryTrouble, match="Docker Hub has had too many requests") as caught:
        asked(hub, sleep=slept.append, now=lambda: 1000000.0).popularity("o/n")
    assert caught.value.kind == "registry-busy" and "try again in 3600 s" in caught.value.why and slept == [10.0]


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "registry-login"), (403, "registry-denied"), (500, "registry-broken")]
)
def test_its_refusals_have_names(hub, status, kind):
    hub.answers = [(status, {})] * 9
    with pytest.raises(RegistryTrouble) as caught:
        asked(hub).search("x", 5)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"results": 5},
        {"results": [5, {}, {"repo_name": 5}, {"repo_name": ""}, {"repo_name": "x" * 999}]},
        {"results": [], "next": "http://elsewhere.example/v2/"},
        {"results": [], "next": 5},
    ],
)
def test_answers_of_another_shape_are_survived(body):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    hub = DockerHub(direct(), f"http://127.0.0.1:{server.server_address[1]}")
    try:
        if isinstance(body, list):
            with pytest.raises(Unreadable, match="no JSON object"):
                hub.search("x", 5)
        else:
            assert hub.search("x", 5) == () and hub.tags("o/n") == ()
    finally:
        server.shutdown()
        server.server_close()
