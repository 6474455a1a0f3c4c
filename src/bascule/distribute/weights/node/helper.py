"""The helper on a node: answers the controller's questions on its channel, and ends with it."""
# Runs on the node.

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bascule.distribute.weights.manifest import from_plain, to_plain
from bascule.distribute.weights.node.addresses import addresses
from bascule.distribute.weights.node.commit import commit
from bascule.distribute.weights.node.listing import list_source
from bascule.distribute.weights.node.place import Place
from bascule.distribute.weights.node.pulling import Puller
from bascule.distribute.weights.node.serving import Server, serve
from bascule.distribute.weights.node.source import Source
from bascule.distribute.weights.node.survey import survey
from bascule.distribute.weights.node.target import Target
from bascule.distribute.weights.node.wire import Outlet, Trouble, messages, submit

SILENCE = 45.0  # seconds without a word from the controller, after which it counts as gone
TICK = 0.3  # seconds between two reports of progress
Message = dict[str, Any]


class Helper:
    """One method for each question; what they raise as Trouble is told to the controller."""

    def __init__(self, outlet: Outlet) -> None:
        self._emit = outlet.send
        self._server = Server()
        self._source: Source | None = None
        self._target: Target | None = None
        self.heard = time.monotonic()

    def answer(self, message: Message) -> None:
        """Do what is asked, and send the answer under the question's number."""
        asked: Callable[[Message], Message | None] = getattr(self, f"do_{message['ask']}")
        try:
            reply = asked(message) or {}
        except Trouble as trouble:
            reply = {"trouble": trouble.plain()}
        except OSError as trouble:
            reply = {"trouble": Trouble("unread", f"{message['ask']} failed", str(trouble)).plain()}
        self._emit({"answer": message["number"], **reply})

    def do_hello(self, message: Message) -> Message:
        """Who and where this is."""
        return {"cores": os.cpu_count() or 1, "addresses": addresses()}

    def do_list(self, message: Message) -> Message:
        """Become the source of a path."""
        root, manifest = list_source(message["path"])
        self._source = Source(root, manifest, message, self._emit)
        return {"manifest": to_plain(manifest)}

    def do_prepare(self, message: Message) -> Message:
        """Become a target."""
        manifest = from_plain(message["manifest"])
        self._target = Target(Place(message["path"], manifest), manifest, message, self._emit)
        return self._target.prepare()

    def do_begin(self, message: Message) -> None:
        """Hash what is here."""
        self._its_target().begin()

    def do_listen(self, message: Message) -> Message:
        """Serve on an address; each token lets one connection in."""
        self._server.expect(message["tokens"], lambda connection: serve(self._shelf(), connection))
        return {"port": self._server.listen(message["ip"])}

    def do_await(self, message: Message) -> Message:
        """Wait on loopback for connections that a bridge makes, to pull through them."""
        puller = Puller(self._its_target(), self._emit, message["pull"])
        self._server.expect(message["tokens"], puller.adopt)
        return {"port": self._server.listen("127.0.0.1")}

    def do_pull(self, message: Message) -> None:
        """Connect to the node before this one, and pull."""
        puller = Puller(self._its_target(), self._emit, message["pull"])
        puller.connect(message["ip"], message["port"], message["tokens"])

    def do_hash(self, message: Message) -> None:
        """Hash files at the source."""
        self._its_source().hash_files(message["files"])

    def do_check(self, message: Message) -> Message:
        """What changed at the source."""
        source = self._its_source()
        source.flush()
        return {"changed": source.check()}

    def do_drop(self, message: Message) -> None:
        """Forget files that arrived wrong."""
        self._its_target().drop(message["files"])

    def do_commit(self, message: Message) -> Message:
        """Make it visible."""
        return {"notes": commit(self._its_target().place)}

    def do_survey(self, message: Message) -> Message:
        """What an engine would read."""
        return {"files": survey(message["path"], message["seed"])}

    def watch(self) -> None:
        """Report progress, and end when the controller is silent."""
        while time.monotonic() - self.heard < SILENCE:
            time.sleep(TICK)
            if self._source:
                self._source.flush()
            target = self._target
            if target:
                self._emit({"event": "progress", "bytes": target.bytes, "hashed": target.hashed})
            else:
                self._emit({"event": "alive"})
        os._exit(1)

    def _shelf(self) -> Source | Target:
        return self._source or self._its_target()

    def _its_target(self) -> Target:
        if self._target is None:
            raise Trouble("unread", "this helper is no target")
        return self._target

    def _its_source(self) -> Source:
        if self._source is None:
            raise Trouble("unread", "this helper is no source")
        return self._source


def main() -> None:
    """Serve until the channel closes."""
    outlet = Outlet(sys.stdout.buffer)
    helper = Helper(outlet)
    pool = ThreadPoolExecutor(16)
    threading.Thread(target=helper.watch, daemon=True).start()
    for message in messages(sys.stdin.buffer):
        helper.heard = time.monotonic()
        if message["ask"] != "ping":
            submit(pool, helper.answer, message)
    os._exit(0)  # threads may still wait for peers that are gone
