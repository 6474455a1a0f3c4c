"""Blobs between helpers, on loopback with real sockets: they grow, resume, are checked, and have two readers."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.distribute.images.node.blobs import Blob, Spool, file_blob, rebuilt_blob
from bascule.distribute.images.node.codecs import codecs_here
from bascule.distribute.images.node.fetch import Fetcher, Upstream
from bascule.distribute.images.node.ingest import trouble_of
from bascule.distribute.images.node.relay import Relay
from bascule.distribute.images.node.tarsplit import NodeTrouble

CONTENT = random.Random(7).randbytes(3_000_001)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path / "spool"))


def whole(tmp_path: Path, content: bytes = CONTENT) -> Blob:
    (tmp_path / "blob").write_bytes(content)
    return file_blob(DIGEST, str(tmp_path / "blob"))


def serve(*blobs: Blob, name: str = "a", codec: str = "") -> tuple[Relay, Upstream]:
    relay = Relay("127.0.0.1", "secret", {blob.digest: blob for blob in blobs}).begin()
    return relay, Upstream(name, "127.0.0.1", relay.port, "secret", codec)


def read(spool: Spool) -> bytes:
    return Path(spool.whole(DIGEST)).read_bytes()


def test_a_blob_is_fetched_checked_and_named(tmp_path: Path, spool: Spool) -> None:
    relay, upstream = serve(whole(tmp_path))
    fetcher = Fetcher([upstream], spool)
    blob = Blob(DIGEST, len(CONTENT))
    fetcher.fetch(blob)
    assert (read(spool), blob.done, fetcher.received) == (CONTENT, True, len(CONTENT))
    assert relay.sent == len(CONTENT)


@pytest.mark.parametrize("codec", codecs_here())
@pytest.mark.parametrize("there", [0, 1_234_567])
def test_a_packed_blob_resumes_too(tmp_path: Path, spool: Spool, codec: str, there: int) -> None:
    Path(spool.part(DIGEST)).write_bytes(CONTENT[:there])
    _, upstream = serve(whole(tmp_path), codec=codec)
    fetcher = Fetcher([upstream], spool)
    fetcher.fetch(Blob(DIGEST, len(CONTENT)))
    assert (read(spool), fetcher.resumed) == (CONTENT, there)


@pytest.mark.parametrize("there", [0, 1, 2_999_999, 3_000_001])
def test_what_is_there_is_not_sent_again(tmp_path: Path, spool: Spool, there: int) -> None:
    Path(spool.part(DIGEST)).write_bytes(CONTENT[:there])
    _, upstream = serve(whole(tmp_path))
    fetcher = Fetcher([upstream], spool)
    fetcher.fetch(Blob(DIGEST, len(CONTENT)))
    assert (read(spool), fetcher.resumed, fetcher.received) == (CONTENT, there, len(CONTENT) - there)


def test_what_was_finished_is_checked_before_it_is_used_again(tmp_path: Path, spool: Spool) -> None:
    Path(spool.whole(DIGEST)).write_bytes(bytes(len(CONTENT)))
    _, upstream = serve(whole(tmp_path))
    Fetcher([upstream], spool).fetch(Blob(DIGEST, len(CONTENT)))
    assert read(spool) == CONTENT


def test_a_wrong_digest_is_never_named(tmp_path: Path, spool: Spool) -> None:
    _, upstream = serve(whole(tmp_path, bytes(len(CONTENT))))
    blob = Blob(DIGEST, len(CONTENT))
    with pytest.raises(NodeTrouble) as trouble:
        Fetcher([upstream], spool).fetch(blob)
    assert trouble.value.code == "layer-corrupt"
    assert not blob.done
    assert list(Path(spool.folder).iterdir()) == []


def test_a_wrong_relay_is_bettered_by_the_source(tmp_path: Path, spool: Spool) -> None:
    (tmp_path / "b").mkdir()
    _, wrong = serve(whole(tmp_path / "b", bytes(len(CONTENT))), name="b")
    _, right = serve(whole(tmp_path))
    Fetcher([wrong, right], spool).fetch(Blob(DIGEST, len(CONTENT)))
    assert read(spool) == CONTENT


def test_two_children_read_while_it_grows(tmp_path: Path) -> None:
    source = Blob(DIGEST, len(CONTENT))
    source.fd = os.open(tmp_path / "growing", os.O_RDWR | os.O_CREAT)
    _, upstream = serve(source)
    spools = [Spool(str(tmp_path / name)) for name in ("one", "two")]
    children = [
        threading.Thread(target=Fetcher([upstream], spool).fetch, args=(Blob(DIGEST, len(CONTENT)),))
        for spool in spools
    ]
    for child in children:
        child.start()
    first = Path(spools[0].part(DIGEST))
    for start in range(0, len(CONTENT), 1_000_000):
        piece = CONTENT[start : start + 1_000_000]
        os.pwrite(source.fd, piece, start)
        source.grow(start + len(piece), done=start + len(piece) == len(CONTENT))
        until = time.monotonic() + 5
        while _is_short(first, start + len(piece)):
            assert time.monotonic() < until
            time.sleep(0.001)
    for child in children:
        child.join()
    assert [read(spool) for spool in spools] == [CONTENT, CONTENT]


def _is_short(path: Path, size: int) -> bool:
    """The .part has fewer bytes; once it has its final name it is whole."""
    try:
        return path.stat().st_size < size
    except FileNotFoundError:
        return False


def test_a_relay_that_dies_is_left_for_the_one_above(tmp_path: Path, spool: Spool) -> None:
    half = len(CONTENT) // 2

    def breaks(offset: int) -> Iterator[bytes]:
        yield CONTENT[offset:half] or b""
        raise NodeTrouble("blob-failed", "it broke")

    _, broken = serve(rebuilt_blob(DIGEST, len(CONTENT), breaks), name="b")
    relay, right = serve(whole(tmp_path))
    fetcher = Fetcher([broken, right], spool)
    fetcher.fetch(Blob(DIGEST, len(CONTENT)))
    assert (read(spool), fetcher.source) == (CONTENT, "a")
    assert relay.sent == len(CONTENT) - half


def test_a_connection_that_ends_early_without_an_error_is_one(tmp_path: Path, spool: Spool) -> None:
    liar = socket.create_server(("127.0.0.1", 0))

    def promise() -> None:
        while True:
            link, _ = liar.accept()
            link.recv(10_000)
            link.sendall(b"HTTP/1.1 206 Partial\r\nContent-Length: %d\r\n\r\n" % len(CONTENT))
            link.close()

    threading.Thread(target=promise, daemon=True).start()
    _, right = serve(whole(tmp_path))
    fetcher = Fetcher([Upstream("b", "127.0.0.1", liar.getsockname()[1], "secret"), right], spool)
    fetcher.fetch(Blob(DIGEST, len(CONTENT)))
    assert (read(spool), fetcher.source) == (CONTENT, "a")


def test_a_source_that_lost_the_layer_says_so_at_once(spool: Spool) -> None:
    def gone(offset: int) -> Iterator[bytes]:
        raise NodeTrouble("layer-gone", f"no file for byte {offset}")
        yield b""

    _, upstream = serve(rebuilt_blob(DIGEST, len(CONTENT), gone))
    with pytest.raises(NodeTrouble) as trouble:
        Fetcher([upstream], spool).fetch(Blob(DIGEST, len(CONTENT)))
    assert trouble.value.code == "layer-gone"


def test_a_relay_that_is_much_slower_than_the_one_above_is_left(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bascule.distribute.images.node.fetch.LOOK", 0.1)

    def crawls(offset: int) -> Iterator[bytes]:
        for start in range(offset, len(CONTENT), 300_000):
            time.sleep(0.06)
            yield CONTENT[start : start + 300_000]

    _, lame = serve(rebuilt_blob(DIGEST, len(CONTENT), crawls), name="b")
    _, quick = serve(whole(tmp_path))
    fetcher = Fetcher([lame, quick._replace(rate=400e6)], spool)
    fetcher.fetch(Blob(DIGEST, len(CONTENT)))
    assert (read(spool), fetcher.source) == (CONTENT, "a")


def ask(relay: Relay, path: str, **headers: str) -> http.client.HTTPResponse:
    link = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=5)
    link.request("GET", path, headers=headers)
    return link.getresponse()


def test_nothing_is_given_without_the_token(tmp_path: Path) -> None:
    relay, _ = serve(whole(tmp_path))
    for path in (f"/wrong/blobs/{DIGEST}", f"/blobs/{DIGEST}", f"/secre/blobs/{DIGEST}", f"/v2/x/blobs/{DIGEST}"):
        assert ask(relay, path).status == 404
    assert ask(relay, f"/secret/blobs/{DIGEST}").status == 200


@pytest.mark.parametrize(
    ("asked", "status", "got"),
    [
        ("bytes=5-", 206, CONTENT[5:]),
        ("bytes=5-9", 206, CONTENT[5:10]),
        ("bytes=3000000-", 206, CONTENT[-1:]),
        ("bytes=3000001-", 416, b""),
    ],
)
@pytest.mark.parametrize("rebuilt", [False, True])
def test_ranges(tmp_path: Path, asked: str, status: int, got: bytes, rebuilt: bool) -> None:
    blob = rebuilt_blob(DIGEST, len(CONTENT), lambda at: iter([CONTENT[at:]])) if rebuilt else whole(tmp_path)
    relay, _ = serve(blob)
    reply = ask(relay, f"/secret/blobs/{DIGEST}", Range=asked)
    assert (reply.status, reply.read()) == (status, got)


def test_docker_is_told_in_plain_http_that_there_is_no_tls(tmp_path: Path) -> None:
    relay, _ = serve(whole(tmp_path))
    with socket.create_connection(("127.0.0.1", relay.port), 5) as link:
        link.sendall(b"\x16\x03\x01\x00\x05hello")
        assert link.recv(100).startswith(b"HTTP/1.0 400 ")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("filesystem layer verification failed for digest sha256:c524fc", "docker-misread"),
        ("failed commit on ref: unexpected commit digest sha256:1, expected sha256:2", "docker-misread"),
        ("write /var/lib/docker: no space left on device", "disk-full"),
        ("error during connect: EOF", "docker-gone"),
        ("invalid tar header", "docker-failed"),
    ],
)
def test_what_docker_complains_of_has_a_name(said: str, code: str) -> None:
    assert trouble_of(said, 1).code == code
