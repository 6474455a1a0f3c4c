"""Gives blobs to this node's docker: a pull from our registry on 127.0.0.1, or a load without the layers it has."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from typing import IO

from bascule.distribute.images.node.blobs import Blob
from bascule.distribute.images.node.posting import Posting, daemon_socket
from bascule.distribute.images.node.relay import Relay
from bascule.distribute.images.node.tarsplit import NodeTrouble

COPY_NAME = "bascule-copy"  # in the name of every temporary reference
DOCKER_BACK_WITHIN = 60.0  # seconds that a restarting dockerd may take
TRIES = 3
F_SETPIPE_SZ = 1031  # fcntl.F_SETPIPE_SZ, which Python knows from 3.10 on
PIPE_BYTES = 1 << 20
_LOST = re.compile(
    r"cannot connect to the docker daemon|error during connect|unexpected EOF|connection re(fused|set)"
    r"|context canceled|server is shutting down|daemon is shutting|broken pipe|transport is closing|unavailable"
    r"|^EOF$|: EOF$|exit status -?\d+$",
    re.IGNORECASE | re.MULTILINE,
)
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
# A layer's bytes were not those of its digest: it is fetched again. docker load with overlay2 says "invalid diffID".
_MISREAD = re.compile(
    r"verification failed for digest|unexpected commit digest|digest mismatch|invalid diffID", re.IGNORECASE
)
_DENIED = re.compile(r"permission denied.*docker\.sock", re.IGNORECASE)
CAUSES = (
    (_FULL, "disk-full"),
    (_DENIED, "docker-denied"),
    (_MISREAD, "docker-misread"),
    (_LOST, "docker-gone"),
)


class Docker:
    """The docker command of this node; one long call at a time, which can be ended."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self._running: subprocess.Popen[bytes] | Posting | None = None

    def ask(self, *words: str) -> str:
        """What a short command prints. Raises NodeTrouble when it fails."""
        done = subprocess.run([*self.words, *words], capture_output=True, check=False, timeout=120)
        if done.returncode:
            raise trouble_of(done.stderr.decode(errors="replace"), done.returncode)
        return done.stdout.decode(errors="replace").strip()

    def work(self, *words: str, feed: Iterator[bytes] | None = None) -> str:
        """What a long command prints; feed goes to its standard input. Raises NodeTrouble when it fails."""
        pipe, source = subprocess.PIPE, subprocess.DEVNULL if feed is None else subprocess.PIPE
        wrong: list[NodeTrouble] = []
        with subprocess.Popen([*self.words, *words], stdin=source, stdout=pipe, stderr=pipe) as process:
            self._running = process
            if feed is not None:
                assert process.stdin
                stdin, process.stdin = process.stdin, None  # communicate must leave it to the feeder
                _widen(stdin)
                threading.Thread(target=self._feed, args=(process, stdin, feed, wrong), daemon=True).start()
            out, err = process.communicate()
            self._running = None
        if wrong:
            raise wrong[0]
        if process.returncode:
            raise trouble_of(err.decode(errors="replace") or out.decode(errors="replace"), process.returncode)
        return out.decode(errors="replace")

    def _feed(
        self, process: subprocess.Popen[bytes], stdin: IO[bytes], feed: Iterator[bytes], wrong: list[NodeTrouble]
    ) -> None:
        """Write all, or end the process: an input that only closes early might be taken for whole."""
        try:
            for data in feed:
                stdin.write(data)
        except NodeTrouble as trouble:
            wrong.append(trouble)
            process.kill()
        except OSError:  # docker ended; it says why
            pass
        finally:
            with contextlib.suppress(OSError):
                stdin.close()

    def post(self, posting: Posting, parts: list[bytes | Blob]) -> None:
        """Load an archive without the docker command in between. Raises NodeTrouble."""
        self._running = posting
        try:
            wrong = posting.load(parts)
        except OSError as lost:
            raise NodeTrouble("docker-gone", str(lost) or type(lost).__name__) from lost
        finally:
            self._running = None
        if wrong:
            raise trouble_of(wrong, 1)

    def end(self) -> None:
        """End the long call, if there is one."""
        running = self._running
        if running is not None:
            with contextlib.suppress(PermissionError):  # sudo; docker ends when its input or our registry does
                running.kill()

    def wait_back(self) -> None:
        """Return once dockerd answers. Raises NodeTrouble when it doesn't within DOCKER_BACK_WITHIN."""
        until = time.monotonic() + DOCKER_BACK_WITHIN
        while True:
            try:
                self.ask("version", "--format", "{{.Server.Version}}")
            except NodeTrouble as trouble:
                if time.monotonic() > until:
                    raise NodeTrouble("docker-gone", trouble.seen) from trouble
                time.sleep(0.5)
            else:
                return

    def sweep(self) -> None:
        """Remove temporary references that a killed copy has left."""
        for line in self.ask("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").splitlines():
            if re.match(rf"127\.0\.0\.1:\d+/{COPY_NAME}/", line) and not line.endswith(":<none>"):
                self.work("rmi", line)


def _widen(pipe: IO[bytes]) -> None:
    """Fewer turns between the two ends of a pipe; a user may be refused a wide one."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe.fileno(), F_SETPIPE_SZ, PIPE_BYTES)


def pull(docker: Docker, relay: Relay) -> str:
    """Pull from our registry; gives the temporary reference. What docker has of it already is not asked for again."""
    ref = f"127.0.0.1:{relay.port}/{COPY_NAME}/{relay.token}:copy"
    docker.work("pull", "--quiet", ref)
    return ref


def load(docker: Docker, token: str, config: bytes, layers: list[Blob | None]) -> str:
    """Load an archive without the layers that are there (None); gives the temporary reference.

    The archive is fed while its blobs still come: a wrong digest ends it before its end, and docker keeps nothing.
    """
    ref = f"127.0.0.1:1/{COPY_NAME}/{token}:copy"
    parts = list(archive(ref, config, layers))
    if path := daemon_socket(docker.words):
        docker.post(Posting(path), parts)
    else:
        docker.work("load", "--quiet", feed=_flat(parts))
    return ref


def archive(ref: str, config: bytes, layers: list[Blob | None]) -> Iterator[bytes | Blob]:
    """The parts of a docker archive; layers that are None are named in it but left out."""
    name = hashlib.sha256(config).hexdigest() + ".json"
    names = [f"layer-{index}/layer.tar" for index in range(len(layers))]
    manifest = json.dumps([{"Config": name, "RepoTags": [ref], "Layers": names}]).encode()
    for path, data in ((name, config), ("manifest.json", manifest)):
        yield _header(path, len(data)) + data + _padding(len(data))
    for path, blob in [(names[index], layer) for index, layer in enumerate(layers)]:
        if blob is None:
            continue
        yield _header(path, blob.size)
        yield blob
        yield _padding(blob.size)
    yield bytes(1024)


def _flat(parts: list[bytes | Blob]) -> Iterator[bytes]:
    """All bytes; what follows a blob comes only once its digest was right. Raises NodeTrouble."""
    for part in parts:
        if isinstance(part, Blob):
            yield from part.read()
            part.wait_done()
        else:
            yield part


def trouble_of(said: str, status: int) -> NodeTrouble:
    """The named trouble in what docker said."""
    said = said.strip() or f"exit status {status}"
    for pattern, code in CAUSES:
        if pattern.search(said):
            return NodeTrouble(code, said)
    return NodeTrouble("docker-failed", said)


def _header(path: str, size: int) -> bytes:
    entry = tarfile.TarInfo(path)
    entry.size = size
    entry.mode = 0o644
    return entry.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % 512)
