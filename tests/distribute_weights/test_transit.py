"""The helper's two sides joined by real sockets in one process: bytes flipped on the way, files that shrink."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time

import pytest

from bascule.distribute.weights.ledger import Ledger
from bascule.distribute.weights.manifest import MIB
from bascule.distribute.weights.node.listing import list_source
from bascule.distribute.weights.node.place import Place
from bascule.distribute.weights.node.pulling import Puller
from bascule.distribute.weights.node.serving import Server, serve
from bascule.distribute.weights.node.source import Source
from bascule.distribute.weights.node.target import Target

TOKEN = "a" * 64
HOW = {"verify": "auto", "seed": 1}


class Pair:
    """A source and a target."""

    def __init__(self, tmp_path, *, verify="auto"):
        how = {**HOW, "verify": verify}
        self.events: queue.Queue[dict] = queue.Queue()
        root, self.manifest = list_source(str(tmp_path / "m"))
        self.ledger = Ledger(self.manifest, verify)
        self.source = Source(root, self.manifest, how, self.events.put)
        self.place = Place(str(tmp_path / "there"), self.manifest)
        self.target = Target(self.place, self.manifest, how, self.hear)
        self.target.prepare()
        self.server = Server()
        self.server.expect([TOKEN], lambda connection: serve(self.source, connection))
        self.port = self.server.listen("127.0.0.1")

    def hear(self, event):
        if event["event"] == "digests":
            self.ledger.tell("t", event["files"])
        else:
            self.events.put(event)

    def pull(self, port):
        self.target.begin()
        Puller(self.target, self.hear, 1).connect("127.0.0.1", port, [TOKEN])
        event = self.events.get(timeout=20)
        while event["event"] == "digests":
            event = self.events.get(timeout=20)
        return event

    def wrong(self):
        self.source.flush()
        self.source.hash_files(list(self.manifest.files))
        while self.ledger.unknown(self.manifest.files):
            self.ledger.tell_source(self.events.get(timeout=20).get("files", ()))
        return [self.manifest.entries[number].path for number in self.ledger.wrong("t")]


def proxy(port, flip_at):
    """A way to the port on which one byte towards the client is flipped."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(one, other, flip):
        seen = 0
        while data := bytearray(one.recv(1 << 16)):
            if flip is not None and seen <= flip < seen + len(data):
                data[flip - seen] ^= 1
            seen += len(data)
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)

    def run():
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=pump, args=(client, server, None), daemon=True).start()
        pump(server, client, flip_at)

    threading.Thread(target=run, daemon=True).start()
    return listener.getsockname()[1]


@pytest.fixture
def files(tmp_path):
    root = tmp_path / "m"
    root.mkdir()
    (root / "a").write_bytes(os.urandom(1000))
    (root / "large").write_bytes(os.urandom(5 * MIB))
    return root


@pytest.mark.parametrize("verify", ["auto", "full"])
@pytest.mark.parametrize(("flip_at", "wrong"), [(None, []), (100, ["a"]), (3 * MIB, ["large"])])
def test_a_byte_flipped_in_transit_is_found(tmp_path, files, flip_at, wrong, verify):
    pair = Pair(tmp_path, verify=verify)
    assert pair.pull(proxy(pair.port, flip_at))["event"] == "arrived"
    assert pair.wrong() == wrong


def test_a_byte_flipped_on_the_disk_behind_the_hash_is_found_by_full(tmp_path, files):
    pair = Pair(tmp_path, verify="full")
    pair.pull(pair.port)
    assert pair.wrong() == []
    pair.target.drop([])
    part = tmp_path / ".there.bascule-part/data/a"
    part.write_bytes(b"x" * 1000)
    pair.target.begin()
    until = time.monotonic() + 10
    while pair.wrong() != ["a"]:  # events of the pull may still be in the queue
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_file_that_shrinks_is_told_and_does_not_arrive(tmp_path, files):
    pair = Pair(tmp_path)
    os.truncate(files / "large", 2 * MIB)
    event = pair.pull(pair.port)
    assert (event["event"], event["kind"]) == ("trouble", "changed")
    assert 1 in pair.target.missing()


def test_a_wrong_token_gets_nothing(tmp_path, files):
    pair = Pair(tmp_path)
    with socket.create_connection(("127.0.0.1", pair.port)) as stranger:
        stranger.sendall(b"b" * 64)
        assert stranger.recv(1) == b""
    assert pair.pull(pair.port)["event"] == "arrived"
    with socket.create_connection(("127.0.0.1", pair.port)) as late:  # a token works once
        late.sendall(TOKEN.encode())
        assert late.recv(1) == b""


def test_nothing_is_visible_before_commit(tmp_path, files):
    pair = Pair(tmp_path)
    pair.pull(pair.port)
    assert not (tmp_path / "there").exists()
