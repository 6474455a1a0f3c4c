#!/usr/bin/env python3
"""Stands in for ssh where hosts are network namespaces: BASCULE_SSH="python3 examples/gpu/netns_ssh.py".

The destination is the name of a namespace (namespaces.py). It runs a command there, as sshd would by the login shell,
or forwards a Unix socket to an address that only the host reaches (-N -L SOCKET:ADDRESS:PORT). Other options are read
and have no meaning.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from namespaces import NETNS, enter

WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")  # options of ssh(1) that take a value
NO_CONNECTION = 255  # as ssh ends when there is none


@dataclass
class Wanted:
    """A command line of ssh."""

    host: str
    command: str
    forward: str  # SOCKET:ADDRESS:PORT, or ""


def main(words: Sequence[str]) -> int:
    """Go there; 255 when that can't be."""
    wanted = read(words)
    if not wanted.host or not (NETNS / wanted.host).exists():
        print(f"netns_ssh: there is no network namespace {wanted.host!r}", file=sys.stderr)
        return NO_CONNECTION
    listener = _listen(wanted.forward) if wanted.forward else None
    try:
        enter(wanted.host)
    except OSError as trouble:
        print(f"netns_ssh: {wanted.host}: {trouble}", file=sys.stderr)
        return NO_CONNECTION
    if listener is not None:
        _forward(listener, wanted.forward)
    os.execv("/bin/sh", ["sh", "-c", wanted.command] if wanted.command else ["sh"])
    return 0  # never: this process is the shell now


def read(words: Sequence[str]) -> Wanted:
    """What a command line asks for; words behind the destination are joined by spaces, as ssh does."""
    left, forward = list(words), ""
    while left and left[0].startswith("-") and left[0] != "--":
        option = left.pop(0)
        if option[1:2] in WITH_VALUE:
            value = option[2:] or (left.pop(0) if left else "")
            forward = value if option[1] == "L" else forward
    if left and left[0] == "--":
        left.pop(0)
    return Wanted(left[0].rpartition("@")[2] if left else "", " ".join(left[1:]), forward)


def _listen(forward: str) -> socket.socket:
    """The near end is made here: a socket file of this machine."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(forward.rsplit(":", 2)[0])
    listener.listen(64)
    return listener


def _forward(listener: socket.socket, forward: str) -> None:
    """Never returns; threads are where their maker is."""
    _, address, port = forward.rsplit(":", 2)
    while True:
        near, _ = listener.accept()
        threading.Thread(target=_carry, args=(near, address, int(port)), daemon=True).start()


def _carry(near: socket.socket, address: str, port: int) -> None:
    with near, contextlib.suppress(OSError), socket.create_connection((address, port), 10) as far:
        far.settimeout(None)
        back = threading.Thread(target=_pour, args=(far, near), daemon=True)
        back.start()
        _pour(near, far)
        back.join()


def _pour(source: socket.socket, target: socket.socket) -> None:
    """Bytes until the end of one direction, which is then closed on the other side as well."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
