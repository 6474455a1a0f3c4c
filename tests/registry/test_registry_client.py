"""What a registry says of an image: real answers, page by page, for a platform, and whether anybody signed it."""

import json
import tracemalloc
from urllib.parse import parse_qs

import pytest

from bascule.core.reading import Unreadable
from bascule.registry.image import fetch, signed
from bascule.registry.oci import reference_of
from bascule.registry.repository import Repository
from bascule.registry.troubles import NoPlatform, RegistryTrouble
from registry.registry_parts import INDEX, MANIFEST, direct, on, say

FILES = {"etc/engine": b"x" * 2000}


def at(host: str, name: str, access=None) -> Repository:
    return Repository(reference_of(f"{host}/{name}"), access or direct())


def test_an_image_is_described_without_its_layers(real):
    own = real.image("described", "1", FILES, Labels={"org.opencontainers.image.version": "0.32.0"})
    access = direct()
    image = fetch(at(real.host, "described:1", access), "linux/arm64")
    assert (image.digest, image.manifest, image.platforms) == (own, own, ())
    assert image.facts.created.isoformat() == "2026-11-20T10:00:00+00:00"
    assert image.facts.labels == {"org.opencontainers.image.version": "0.32.0"}
    assert image.facts.history == ("RUN pip install vllm",) and image.facts.entrypoint == ("vllm", "serve")
    assert len(image.facts.diff_ids) == 1 and image.size == image.layers[0].size > 0
    assert 0 < access.shared.received < 3000


def test_an_index_gives_its_platforms_and_the_one_that_is_asked(real):
    top = real.index("several", "1", {"amd64": FILES, "arm64": {"a": b"b"}})
    image = fetch(at(real.host, "several:1"), "linux/arm64")
    assert image.platforms == ("linux/amd64", "linux/arm64") and image.facts.platform == "linux/arm64"
    assert image.digest == top != image.manifest
    with pytest.raises(NoPlatform, match="it has linux/amd64, linux/arm64: nothing for linux/s390x") as caught:
        fetch(at(real.host, "several:1"), "linux/s390x")
    assert caught.value.there == ("linux/amd64", "linux/arm64") and caught.value.hopeless


def test_a_digest_costs_no_manifest(real, front):
    own = real.image("heads", "1", FILES)
    assert at(front.host, "heads:1").head("1") == own
    assert front.paths("GET") == [] and front.paths("HEAD") == ["/v2/heads/manifests/1"]
    assert at(real.host, "heads:1").has("1") and not at(real.host, "heads:1").has("2")


def test_what_was_fetched_once_is_kept_by_its_digest(real, front, tmp_path):
    own = real.image("kept", "1", FILES)
    first = fetch(at(front.host, "kept:1", direct(cache=tmp_path)), "linux/arm64")
    before = len(front.asked)
    assert fetch(at(front.host, "kept:1", direct(cache=tmp_path)), "linux/arm64") == first
    assert front.asked[before:] == [] or front.paths()[before:] == ["/v2/kept/manifests/1"]
    assert front.asked[-1][0] == "HEAD"
    place = tmp_path / own.replace(":", "-")
    place.write_bytes(place.read_bytes() + b" ")  # spoilt: fetched again
    assert fetch(at(front.host, "kept:1", direct(cache=tmp_path)), "linux/arm64") == first
    assert front.paths("GET").count("/v2/kept/manifests/1") == 2


def test_tags_come_page_by_page(real, front):
    names = [f"v0.{number}" for number in range(7)]
    for name in names:
        real.image("tagged", name, FILES)
    assert set(at(real.host, "tagged").tags().names) == set(names)  # this one gives them all at once
    front.odd.append(_in_pages(names, 2))
    tags = at(front.host, "tagged").tags()
    assert list(tags.names) == names and tags.whole
    assert [path.partition("?")[2] for path in front.paths()] == [
        "n=1000",
        "n=2&last=v0.1",
        "n=2&last=v0.3",
        "n=2&last=v0.5",
    ]


def _in_pages(names, size):
    """As the specification says: the page after `last`, and a Link to the next one."""

    def answer(request):
        asked = parse_qs(request.path.partition("?")[2])
        rest = [name for name in names if name > asked.get("last", [""])[0]]
        link = {"Link": f'</v2/tagged/tags/list?n={size}&last={rest[size - 1]}>; rel="next"'} if rest[size:] else {}
        say(request, 200, json.dumps({"name": "tagged", "tags": rest[:size]}).encode(), **link)
        return True

    return answer


@pytest.mark.parametrize(
    ("link", "pages"),
    [
        ('</v2/loop/tags/list?n=1000>; rel="next"', 2),  # the same page again
        ('<http://elsewhere.example/v2/loop/tags/list?last=b>; rel="next"', 1),
        ('</v2/other/tags/list?last=b>; rel="next"', 1),
        ('</v2/loop/tags/list/../../../catalog?last=b>; rel="next"', 1),
        ('<>; rel="next"', 1),
    ],
)
def test_a_next_page_that_leads_nowhere_good_is_not_followed(front, link, pages):
    def answer(request):
        say(request, 200, b'{"tags": ["a", "b", 5, "no/tag"]}', Link=link)
        return True

    front.odd.append(answer)
    assert at(front.host, "loop").tags().names == ("a", "b")
    assert len(front.asked) == pages


def test_endless_tags_end(front):
    def answer(request):
        number = len(front.asked)
        say(request, 200, json.dumps({"tags": [f"t{number}"]}).encode(), Link=f'<?last={number}>; rel="next"')
        return True

    front.odd.append(answer)
    tags = at(front.host, "endless").tags()
    assert len(tags.names) == 20 and not tags.whole


def test_no_tags_are_no_tags(front):
    def answer(request):
        say(request, 200, b'{"name": "x", "tags": null}')
        return True

    front.odd.append(answer)
    assert at(front.host, "x").tags().names == ()


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (401, "registry-login", "docker login"),
        (403, "registry-denied", "docker login"),
        (404, "registry-missing", "check the name"),
        (429, "registry-busy", "try again later"),
        (500, "registry-broken", "mirror"),
        (503, "registry-broken", "mirror"),
        (418, "registry-answer", "is 127.0.0.1"),
    ],
)
def test_each_refusal_has_a_name_and_a_remedy(front, status, kind, advice):
    front.odd.append(on("/manifests/1", *[(status, {})] * 9))
    with pytest.raises(RegistryTrouble) as caught:
        fetch(at(front.host, "any:1"), "linux/arm64")
    assert caught.value.kind == kind and advice in caught.value.advice


def test_a_registry_that_is_away_is_asked_once(front):
    access = direct()
    for name in ("a", "b"):
        with pytest.raises(RegistryTrouble) as caught:
            fetch(at("127.0.0.1:1", f"{name}:1", access), "linux/arm64")
        assert caught.value.kind == "registry-unreachable" and "ConnectError" in caught.value.why
    assert list(access.shared.away) == ["127.0.0.1:1"]


def test_a_manifest_of_200_mb_is_refused_in_bounded_memory(front):
    sent = [0]

    def answer(request):
        request.send_response(200)
        request.send_header("Content-Length", str(200 << 20))
        request.end_headers()
        try:
            while sent[0] < 200 << 20:
                request.wfile.write(bytes(1 << 20))
                sent[0] += 1 << 20
        except OSError:
            pass
        return True

    front.odd.append(answer)
    tracemalloc.start()
    with pytest.raises(RegistryTrouble, match="more than 4194304 bytes") as caught:
        fetch(at(front.host, "huge:1"), "linux/arm64")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.kind == "manifest-too-large" and peak < 24 << 20 and sent[0] < 100 << 20


def test_unsigned_signed_and_not_told(real, front):
    own = real.image("signed", "1", FILES)
    name = at(real.host, "signed:1")
    image = fetch(name, "linux/arm64")
    assert signed(name, image)[0] == "absent"
    real.image("signed", own.replace(":", "-") + ".sig", {"signature": b"s"})
    assert signed(name, image)[0] == "present"
    front.odd.append(on(".sig", (403, {})))
    assert signed(at(front.host, "signed:1"), image)[0] == "unknown"


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("application/vnd.dev.sigstore.bundle.v0.3+json", "present"),
        ("application/vnd.cncf.notary.signature", "present"),
        ("application/spdx+json", "absent"),
    ],
)
def test_what_refers_to_an_image_by_the_api_or_by_its_tag(real, front, kind, state):
    name = f"referred-{len(kind)}"
    own = real.image(name, "1", FILES)
    image = fetch(at(real.host, f"{name}:1"), "linux/arm64")
    row = {"mediaType": MANIFEST, "digest": own, "size": 5, "artifactType": kind}
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [row]}).encode()

    def answer(request):
        if "/referrers/" not in request.path:
            return False
        say(request, 200, index)
        return True

    front.odd.append(answer)
    assert signed(at(front.host, f"{name}:1"), image)[0] == state
    real.manifest(name, own.replace(":", "-"), index, INDEX)  # the real one has no API of referrers
    assert signed(at(real.host, f"{name}:1"), image)[0] == state


def test_a_redirect_to_another_host_takes_no_login_along(real, front):
    real.image("moved", "1", FILES)
    front.token = "t"

    def away(request):
        if "/blobs/" not in request.path or request.headers.get("Authorization") != "Bearer t":
            return False
        say(request, 307, Location=f"http://{real.host.replace('127.0.0.1', 'localhost')}{request.path}")
        return True

    front.odd.append(away)
    seen = []
    access = direct()
    access.connection().event_hooks["request"].append(seen.append)
    assert fetch(at(front.host, "moved:1", access), "linux/arm64").facts.platform == "linux/arm64"
    assert [request.headers.get("authorization") for request in seen if request.url.host == "localhost"] == [None]
    assert "Bearer t" in [request.headers.get("authorization") for request in seen if request.url.host != "localhost"]


@pytest.mark.parametrize(
    ("name", "familiar", "publisher"),
    [
        ("ubuntu:24.04", "ubuntu", "docker.io/library"),
        ("vllm/vllm-openai", "vllm/vllm-openai", "docker.io/vllm"),
        ("nvcr.io/nvidia/vllm:26.05-py3", "nvcr.io/nvidia/vllm", "nvcr.io/nvidia"),
        ("my.host:5000/team/vllm", "my.host:5000/team/vllm", "my.host:5000"),
    ],
)
def test_how_people_name_an_image_and_who_publishes_it(name, familiar, publisher):
    found = reference_of(name)
    assert (found.familiar, found.publisher) == (familiar, publisher)


def test_a_tag_that_changes_while_it_is_read_is_no_answer(front):
    def lying(request):
        say(request, 200, b"{}", Docker_Content_Digest=f"sha256:{'1' * 64}")
        return True

    front.odd.append(lying)
    with pytest.raises(Unreadable, match="another digest"):
        fetch(at(front.host, "lying:1"), "linux/arm64")
