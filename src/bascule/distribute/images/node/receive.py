"""One image comes to this node: fetched into the spool, given to docker while it comes, named when it is right."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from bascule.distribute.images.node.blobs import Blob, Spool
from bascule.distribute.images.node.fetch import Fetcher, Upstream
from bascule.distribute.images.node.ingest import TRIES, Docker, load, pull
from bascule.distribute.images.node.relay import Relay, manifest_of
from bascule.distribute.images.node.tarsplit import NodeTrouble

TELL_EVERY = 0.5  # seconds
WORTH_A_RETRY = ("docker-gone", "docker-misread")
MAY_BE_BYTES = ("docker-misread", "docker-failed")  # wrong bytes are a wrong digest, or no tar, or no gzip


class Receiving:
    """The state of it; `plan` says spool, docker, config, layers, upstreams, method, docker_checks and token."""

    def __init__(self, plan: dict[str, Any], blobs: dict[str, Blob], tell: Callable[[dict[str, Any]], None]) -> None:
        self.plan = plan
        self.tell = tell
        self.spool = Spool(plan["spool"])
        self.docker = Docker(plan["docker"])
        self.config = base64.b64decode(plan["config"])
        self.layers: list[Blob | None] = [
            blobs[layer["digest"]] if index in plan["missing"] else None for index, layer in enumerate(plan["layers"])
        ]
        self.missing = list({blob.digest: blob for blob in self.layers if blob}.values())
        spare = [layer for layer in plan["layers"] if layer and layer["digest"] not in blobs]
        self.spare = {layer["digest"]: Blob(layer["digest"], layer["size"]) for layer in spare}
        self.asked: set[str] = set()  # spare ones that docker wanted all the same
        self.fetchers = [self._fetcher(trusting=plan["docker_checks"])]
        self.ref = ""  # what docker calls it for now
        self.phase = "waits"
        self.trouble: NodeTrouble | None = None
        self._lock = -1
        self._fetching = threading.Thread()

    @property
    def received(self) -> int:
        """Bytes that came over the network."""
        return sum(each.received for each in self.fetchers)

    def run(self) -> dict[str, Any]:
        """All of it, but the name. Raises NodeTrouble."""
        self._take_lock()
        self.spool.sweep()
        self.docker.sweep()
        self.phase = "copies"
        self._fetching = threading.Thread(target=self._fetch, args=(self.fetchers[0], self.missing), daemon=True)
        self._fetching.start()
        threading.Thread(target=self._tell_often, daemon=True).start()
        try:
            self._ingest_until_it_works()
        except NodeTrouble as trouble:
            told = self.trouble or trouble
            if told.code == "disk-full":
                self._forget_parts()
            raise told from trouble
        finally:
            self.phase = ""
        return {
            "ref": self.ref,
            "received": self.received,
            "resumed": sum(each.resumed for each in self.fetchers),
            "from": self.fetchers[0].source,
        }

    def finish(self, tag: str) -> None:
        """Name it, and leave nothing else."""
        self.docker.ask("tag", self.ref, tag)
        self._drop_reference()
        self._clear_spool()
        os.close(self._lock)

    def abandon(self) -> None:
        """Remove the image that came, and what it came from."""
        self._drop_reference()
        self._clear_spool()

    def end(self) -> None:
        """Stop; what was fetched stays for the next copy."""
        self._stop_fetching()
        self.docker.end()

    def _take_lock(self) -> None:
        """One copy at a time has the spool; who had to wait must look again at what is missing. Raises NodeTrouble."""
        self._lock = os.open(os.path.join(self.spool.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        waited = False
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    self._progress("waits for another copy to this node")
                waited = True
                time.sleep(0.2)
            else:
                break
        if waited:
            raise NodeTrouble("another-copy", "another copy to this node has just ended")

    def _fetch(self, fetcher: Fetcher, blobs: list[Blob]) -> None:
        try:
            for blob in blobs:
                fetcher.fetch(blob)
        except NodeTrouble as trouble:
            if not fetcher.stop.is_set():  # which was no trouble
                self._stop_for(trouble)
        except OSError as trouble:
            self._stop_for(NodeTrouble("spool-failed", str(trouble)))

    def _stop_fetching(self) -> None:
        for each in self.fetchers:
            each.stop.set()

    def _stop_for(self, trouble: NodeTrouble) -> None:
        """Readers of what will not come, and docker, which waits for it, are told."""
        self.trouble = trouble
        for blob in self.missing:
            if not blob.done:
                blob.fail(str(trouble))
        self.docker.end()

    def _ingest_until_it_works(self) -> None:
        """Again when dockerd was restarted meanwhile: what is in the spool is not fetched again."""
        for turn in range(TRIES):
            try:
                self.ref = self._ingest()
            except NodeTrouble as trouble:
                unchecked = self.fetchers[0].trusting and trouble.code in MAY_BE_BYTES
                if self.trouble or turn == TRIES - 1 or not (unchecked or trouble.code in WORTH_A_RETRY):
                    raise
                self._progress("waits for docker")
                self.docker.wait_back()
                if unchecked:
                    self._fetch_checked()
            else:
                return

    def _fetch_checked(self) -> None:
        """Docker found a layer that isn't right: hash what came and fetch what is wrong, before docker gets any of it.

        Raises NodeTrouble.
        """
        self._stop_fetching()
        self._fetching.join()  # two must not write one file
        for blob in self.missing:
            blob.grow(0)
        self.fetchers.insert(0, self._fetcher(again=True))
        self._fetch(self.fetchers[0], self.missing)
        if self.trouble:
            raise self.trouble

    def _ingest(self) -> str:
        if self.plan["method"] == "load":
            return load(self.docker, self.plan["token"], self.config, self.layers)
        registry = self._registry()
        try:
            return pull(self.docker, registry)
        finally:
            registry.shutdown()
            registry.server_close()

    def _registry(self) -> Relay:
        """Where this node's docker pulls from. Layers that it has are fetched only if it asks for one all the same."""
        digest = f"sha256:{hashlib.sha256(self.config).hexdigest()}"
        blob = Blob(digest, len(self.config))
        blob.fd = os.memfd_create("config")
        os.write(blob.fd, self.config)
        blob.grow(blob.size, done=True)
        listed = [(layer["digest"], layer["size"], layer["media"]) for layer in self.plan["layers"]]
        served = {each.digest: each for each in [*self.missing, *self.spare.values(), blob]}
        registry = Relay("127.0.0.1", self.plan["token"], served, manifest_of(self.config, digest, listed))
        registry.on_ask = self._fetch_spare
        return registry.begin()

    def _fetch_spare(self, blob: Blob) -> None:
        if blob.digest in self.spare and blob.digest not in self.asked:
            self.asked.add(blob.digest)
            self.fetchers.append(self._fetcher())
            threading.Thread(target=self._fetch, args=(self.fetchers[-1], [blob]), daemon=True).start()

    def _fetcher(self, *, trusting: bool = False, again: bool = False) -> Fetcher:
        upstreams = [Upstream(*each) for each in self.plan["upstreams"]]
        return Fetcher(upstreams, self.spool, trusting=trusting, again=again)

    def _drop_reference(self) -> None:
        self.docker.work("rmi", self.ref)

    def _forget_parts(self) -> None:
        """A full disk is given back what this copy took of it."""
        self._stop_fetching()
        self._clear_spool()

    def _clear_spool(self) -> None:
        """Also of layers that an earlier try fetched and docker has by now."""
        listed = [layer["digest"] for layer in self.plan["layers"] if layer]
        self.spool.remove([*listed, *json.loads(self.config)["rootfs"]["diff_ids"]])

    def _tell_often(self) -> None:
        while self.phase:
            whole = all(blob.done for blob in self.missing)
            self._progress("docker unpacks" if whole else self.phase)
            time.sleep(TELL_EVERY)

    def _progress(self, phase: str) -> None:
        done, total = sum(blob.have for blob in self.missing), sum(blob.size for blob in self.missing)
        self.tell({"phase": phase, "done": done, "total": total, "received": self.received})
