"""Answers that no registry should give, and its logins."""

import asyncio
import base64
import json
from dataclasses import replace

import httpx2
import pytest

from bascule.core.reading import Unreadable
from bascule.probe.verdict import Word
from bascule.probe.views.registry import open_registry
from bascule.registry.accounts import Accounts
from probe.probe_cases import Q35_TEXT
from probe_views.views_cases import (
    CONFIG,
    GOOD,
    TOP,
    answers,
    digest,
    files_of,
    layer,
    packed,
    report,
    send,
    under,
)

OLD = files_of("vllm-0.14.0")


def opened(reference: str, access, package: str = "vllm", platform: str = "linux/arm64"):
    return asyncio.run(open_registry(reference, package, platform, access))


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
    secure = replace(access(client=client), insecure=False)
    with pytest.raises(Unreadable, match="a login over a connection that isn't encrypted"):
        opened("h.x/engine:1", secure)


@pytest.mark.parametrize("text", ["", "[]", '{"auths": 5}', '{"auths": {"h.x": {"auth": "?"}}}', "[" * 100_000])
def test_a_broken_file_of_accounts_is_none(access, tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert Accounts(tmp_path / "config.json").of(("h.x",)) == (None, "")


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
