"""The helper's loop: a request a line comes in as JSON, answers and progress go out; it ends with its controller."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bascule.distribute.images.node.blobs import Blob
from bascule.distribute.images.node.codecs import SAMPLE, codecs_here, measure
from bascule.distribute.images.node.fetch import Upstream, probe
from bascule.distribute.images.node.receive import Receiving
from bascule.distribute.images.node.relay import Relay
from bascule.distribute.images.node.sources import Offer, offer_content, offer_graph, offer_save
from bascule.distribute.images.node.tarsplit import NodeTrouble

SILENCE = 60.0  # seconds without a word from the controller after which the helper ends by itself


class Helper:
    """All that one helper holds: the blobs of one image, a relay, what is being received."""

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self.blobs: dict[str, Blob] = {}
        self.relay: Relay | None = None
        self.receiving: Receiving | None = None
        self.heard = time.monotonic()
        self._writing = threading.Lock()

    def tell(self, **what: Any) -> None:
        """One line to the controller."""
        with self._writing:
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()

    def loop(self) -> None:
        """Answer requests until there are no more; then everything ends."""
        threading.Thread(target=self._guard, daemon=True).start()
        self.tell(ready=True, codecs=codecs_here(), cores=os.cpu_count() or 1)
        for line in sys.stdin.buffer:
            self.heard = time.monotonic()
            request = json.loads(line)
            if request["do"] == "ping":
                self.tell(pong=True)
            else:
                threading.Thread(target=self._answer, args=(request,), daemon=True).start()
        self.end()

    def end(self) -> None:
        """End docker's long call and this process; threads that wait for a socket end with it."""
        if self.receiving:
            self.receiving.end()
        os._exit(0)

    def _guard(self) -> None:
        while time.monotonic() - self.heard < SILENCE:
            time.sleep(1)
        self.end()

    def _answer(self, request: dict[str, Any]) -> None:
        doing: Callable[..., Any] = getattr(self, "do_" + request.pop("do"))
        number = request.pop("number")
        try:
            self.tell(number=number, answer=doing(**request))
        except NodeTrouble as trouble:
            self.tell(number=number, code=trouble.code, seen=trouble.seen)
        except (OSError, http.client.HTTPException) as trouble:
            self.tell(number=number, code="helper-failed", seen=f"{type(trouble).__name__}: {trouble}")

    def do_offer(self, **what: Any) -> dict[str, Any]:
        """Make the source's blobs ready, and say what they are."""
        image, wanted, mode = what["image"], what["wanted"], what["mode"]
        if mode == "graph":
            self.offer = offer_graph(what["root"], image, wanted)
        elif mode == "content":
            self.offer = offer_content(what["root"], image, wanted)
        else:
            self.offer = offer_save(what["docker"], image, wanted, what["spool"])
        self.blobs = {blob.digest: blob for blob in self.offer.layers if blob}
        return {
            "config": base64.b64encode(self.offer.config).decode(),
            "layers": [
                {"digest": blob.digest, "size": blob.size, "media": media} if blob else None
                for blob, media in [(b, self.offer.media[i]) for i, b in enumerate(self.offer.layers)]
            ],
        }

    def do_listen(self, address: str, token: str, blobs: list[list[Any]]) -> dict[str, Any]:
        """Serve the blobs to other helpers; `blobs` are those that are yet to come."""
        self.blobs.update({digest: Blob(digest, size) for digest, size in blobs})
        self.relay = Relay(address, token, self.blobs).begin()
        return {"port": self.relay.port}

    def do_probe(self, upstream: list[Any], size: int) -> float:
        """Bytes a second from an upstream; a second look with more bytes when the first one was too short."""
        rate = probe(Upstream(*upstream), size)
        return probe(Upstream(*upstream), size * 4) if size / rate < 0.02 else rate

    def do_measure(self) -> dict[str, tuple[float, float]]:
        """What compressing the biggest blob would bring."""
        biggest = max(self.blobs.values(), key=lambda blob: blob.size, default=None)
        if biggest is None or biggest.size < SAMPLE:
            return {}
        sample = bytearray()
        for data in biggest.read(biggest.size // 2 // SAMPLE * SAMPLE):
            sample += data
            if len(sample) >= SAMPLE:
                break
        return measure(bytes(sample))

    def do_check(self, digest: str) -> bool:
        """Whether a blob is still what its name says."""
        made = hashlib.sha256()
        for data in self.blobs[digest].read():
            made.update(data)
        return f"sha256:{made.hexdigest()}" == digest

    def do_sent(self) -> int:
        """Bytes of blobs that this helper has sent."""
        return self.relay.sent if self.relay else 0

    def do_receive(self, **plan: Any) -> dict[str, Any]:
        """Fetch and ingest; progress is told meanwhile."""
        self.receiving = Receiving(plan, self.blobs, lambda what: self.tell(progress=what))
        return self.receiving.run()

    def do_wait(self) -> None:
        """Return once docker answers."""
        assert self.receiving
        self.receiving.docker.wait_back()

    def do_finish(self, tag: str) -> None:
        """Give the image its name, and forget the temporary one and the spool."""
        assert self.receiving
        self.receiving.finish(tag)

    def do_abandon(self) -> None:
        """Remove what was ingested."""
        assert self.receiving
        self.receiving.abandon()


if __name__ == "__main__":
    Helper().loop()
