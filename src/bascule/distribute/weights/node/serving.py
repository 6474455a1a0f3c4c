"""Gives units to the node behind this one, over TCP: bound to one address, each connection by a token used once."""
# File descriptors.

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Protocol

from bascule.distribute.weights.ranges import SMALL, Piece, Unit

TOKEN = 64  # hexadecimal digits
REQUEST = struct.Struct(">I")  # the number of a unit
WAIT, DATA, GOOD, CHANGED, NONE = b"w", b"d", b"k", b"c", b"n"
STILL = 2.0  # seconds; how often a waiting peer hears that the wait is not a cut
SILENCE = 8  # seconds in which a block must have come; else the connection counts as cut
BUFFER = 1 << 19  # bytes of a block: 64 kB/s are fast enough
_TIME = struct.Struct("ll")


class Shelf(Protocol):
    """Where units come from: the source has all, a target those that it has finished."""

    units: tuple[Unit, ...]

    def wait_for(self, unit: int, within: float) -> bool:
        """True once the unit is there."""
        ...

    def open(self, file: int) -> int:
        """A descriptor of a file; OSError when it is no longer what it was."""
        ...

    def sent(self, piece: Piece, fd: int, data: bytes | None) -> bool:
        """Called behind every piece, with the bytes of a small file; False when the file has changed meanwhile."""
        ...


class Server:
    """Listens on one address at a time, and hands each connection to what its token stands for."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, Callable[[socket.socket], None]] = {}

    def listen(self, ip: str) -> int:
        """Bind to exactly this address; the port is any free one. Raises OSError."""
        listener = socket.socket()
        listener.bind((ip, 0))
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    def expect(self, tokens: list[str], use: Callable[[socket.socket], None]) -> None:
        """Let one connection in for each token."""
        self._tokens.update({token.encode(): use for token in tokens})

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        with connection:
            try:
                tune(connection)
                use = self._tokens.pop(receive(connection, TOKEN), None)
                if use:
                    use(connection)
            except OSError:
                return  # the peer is gone; it will come again, or not


def tune(connection: socket.socket) -> None:
    """No delay for small requests, and no wait for a peer that is silent for too long."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIME.pack(SILENCE, 0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(SILENCE * 3, 0))


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes, all within SILENCE. Raises OSError."""
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("closed by the other side, or silent")
    return data


def serve(shelf: Shelf, connection: socket.socket) -> None:
    """Answer requests until the peer closes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIME.pack(0, 0))
    while True:
        number = REQUEST.unpack(receive(connection, REQUEST.size))[0]
        while not shelf.wait_for(number, STILL):
            connection.sendall(WAIT)
        connection.sendall(DATA)
        good = _send_unit(shelf, shelf.units[number], connection)
        connection.sendall(GOOD if good else CHANGED)


def _send_unit(shelf: Shelf, unit: Unit, connection: socket.socket) -> bool:
    """Exactly the unit's bytes, padded where a file has become shorter; False when one has changed."""
    good, kept = True, bytearray()  # small pieces gather there, many to one call of send
    for piece in unit:
        if piece.length > SMALL or len(kept) >= BUFFER:
            connection.sendall(kept)
            kept.clear()
        try:
            fd = shelf.open(piece.file)
        except OSError:
            _pad(connection, kept, piece.length)
            good = False
            continue
        try:
            if piece.length > SMALL:
                all_of_it = _send_range(connection, fd, piece)
                good = shelf.sent(piece, fd, None) and all_of_it and good
            else:
                data = os.pread(fd, piece.length, piece.offset)
                kept += data.ljust(piece.length, b"\0")
                good = shelf.sent(piece, fd, data) and len(data) == piece.length and good
        finally:
            os.close(fd)
    connection.sendall(kept)
    return good


def _send_range(connection: socket.socket, fd: int, piece: Piece) -> bool:
    at, end = piece.offset, piece.offset + piece.length
    while at < end:
        gone = os.sendfile(connection.fileno(), fd, at, end - at)
        if not gone:
            _pad(connection, bytearray(), end - at)
            return False
        at += gone
    return True


def _pad(connection: socket.socket, kept: bytearray, size: int) -> None:
    """Zeros in place of what can't be read, so that the peer stays in step."""
    connection.sendall(kept)
    kept.clear()
    while size:
        connection.sendall(bytes(min(size, BUFFER)))
        size -= min(size, BUFFER)
