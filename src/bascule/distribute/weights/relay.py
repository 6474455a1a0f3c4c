"""The way through ssh and this machine, for nodes that can't reach each other: two ssh processes joined by pipes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from bascule.core.nouns import Node
from bascule.remote import shell
from bascule.remote.ssh import ssh_words

# Joins standard input and output to a port on loopback. The first line says port and token: tokens are never in argv.
# What a login shell printed before the other side's mark is skipped.
_BRIDGE = r"""
import os, socket, threading
def line():
    data = b""
    while not data.endswith(b"\n"):
        one = os.read(0, 1)
        if not one: os._exit(1)
        data += one
    return data[:-1]
port, token = line().split()
peer = socket.create_connection(("127.0.0.1", int(port)))
peer.sendall(token)
os.write(1, b"bascule-bridge\n")
while not line().endswith(b"bascule-bridge"): pass
def out():
    while True:
        data = memoryview(peer.recv(1 << 20))
        if not data: os._exit(0)
        while data: data = data[os.write(1, data):]
threading.Thread(target=out, daemon=True).start()
while True:
    data = os.read(0, 1 << 20)
    if not data: os._exit(0)
    peer.sendall(data)
"""
Door = tuple[int, str]  # port on loopback, and the token that opens it


class Bridge:
    """Some connections between the helpers of two nodes; ended with end()."""

    def __init__(self, one: Node, other: Node) -> None:
        self._one, self._other = one, other
        self._processes: list[asyncio.subprocess.Process] = []

    async def join(self, one: Door, other: Door) -> None:
        """One connection; data runs through ssh and pipes of the kernel, not through this process."""
        to_other, from_one = os.pipe()
        to_one, from_other = os.pipe()
        os.write(from_one, _first_line(other))
        os.write(from_other, _first_line(one))
        try:
            self._processes += [
                await _start(self._one, to_one, from_one),
                await _start(self._other, to_other, from_other),
            ]
        finally:
            for fd in (to_other, from_one, to_one, from_other):
                os.close(fd)

    async def end(self) -> None:
        """End all of it."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        await asyncio.gather(*(process.wait() for process in self._processes))


def _first_line(door: Door) -> bytes:
    return f"{door[0]} {door[1]}\n".encode()


async def _start(node: Node, stdin: int, stdout: int) -> asyncio.subprocess.Process:
    quiet = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *_words(node), stdin=stdin, stdout=stdout, stderr=quiet, start_new_session=True
    )


def _words(node: Node) -> Sequence[str]:
    bridge = ("python3", "-c", _BRIDGE)
    if node.is_local:
        return bridge
    # A connection of its own: one that is shared is one process, and one core, for all of them.
    own = ("-o", "ControlPath=none", "-o", "Compression=no", "-o", "Ciphers=^aes128-gcm@openssh.com")
    first, *rest = ssh_words(node.host)
    return (first, *own, *rest, shell.line(bridge))
