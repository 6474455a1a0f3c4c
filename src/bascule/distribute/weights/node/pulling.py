"""Fetches what a target lacks from the node before it, over several connections at once."""
# File descriptors.

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from bascule.distribute.weights.node.serving import (
    BUFFER,
    DATA,
    GOOD,
    REQUEST,
    SILENCE,
    WAIT,
    receive,
    tune,
)
from bascule.distribute.weights.node.target import Target
from bascule.distribute.weights.node.wire import Trouble
from bascule.distribute.weights.ranges import SMALL, Piece

DEPTH = 2  # requests that wait at the peer, so that no round trip stands between two units
CONNECT_WITHIN = 3  # seconds
Emit = Callable[[dict[str, Any]], None]


class Puller:
    """One way to get units; a target that loses it gets another one."""

    def __init__(self, target: Target, emit: Emit, name: int) -> None:
        self._target, self._emit, self.name = target, emit, name
        self._todo = deque(target.missing())
        self._lock = threading.Lock()
        self._running = 0
        self._ended = False
        self._why = "closed by the other side"

    def connect(self, ip: str, port: int, tokens: list[str]) -> None:
        """Open one connection for each token and begin. Raises Trouble when there is no way."""
        sockets = []
        try:
            for token in tokens:
                connection = socket.create_connection((ip, port), CONNECT_WITHIN)
                sockets.append(connection)
                connection.settimeout(None)
                tune(connection)
                connection.sendall(token.encode())
        except OSError as trouble:
            for connection in sockets:
                connection.close()
            raise Trouble("cut", f"no connection to {ip}", str(trouble)) from trouble
        self._running = len(sockets)
        for connection in sockets:
            threading.Thread(target=self._run_and_close, args=(connection,), daemon=True).start()

    def adopt(self, connection: socket.socket) -> None:
        """Use a connection that came in: the other end of it is the node before this one."""
        with self._lock:
            self._running += 1
        self._run(connection)

    def _run_and_close(self, connection: socket.socket) -> None:
        with connection:
            self._run(connection)

    def _run(self, connection: socket.socket) -> None:
        asked: deque[int] = deque()
        try:
            while True:
                while len(asked) < DEPTH and (unit := self._take()) is not None:
                    asked.append(unit)
                    connection.sendall(REQUEST.pack(unit))
                if not asked:
                    break
                self._receive(connection, asked[0])
                asked.popleft()
        except BlockingIOError:
            self._why = f"silent for {SILENCE} s"
        except OSError as trouble:
            self._why = str(trouble)
        except Trouble as trouble:
            self._why = ""
            self._emit({"event": "trouble", **trouble.plain()})
        self._end(asked)

    def _take(self) -> int | None:
        with self._lock:
            return self._todo.popleft() if self._todo and self._why else None

    def _end(self, asked: deque[int]) -> None:
        with self._lock:
            self._todo.extend(asked)
            self._running -= 1
            lost = not self._running and self._todo and self._why and not self._ended
            self._ended = self._ended or bool(lost)
        if lost:
            self._emit({"event": "lost", "pull": self.name, "why": self._why})

    def _receive(self, connection: socket.socket, unit: int) -> None:
        state = receive(connection, 1)
        while state == WAIT:
            state = receive(connection, 1)
        if state != DATA:
            raise ConnectionError("the other side does not keep to the protocol")
        digests: list[list[Any]] = []
        got = 0
        try:
            for gained in self._pieces(connection, unit, digests):
                self._target.count(gained)
                got += gained
            state = receive(connection, 1)
        except (OSError, Trouble):
            self._target.count(-got)
            raise
        if state != GOOD:
            self._target.count(-got)
            raise ConnectionError("a file changed at the node before")  # the source itself tells more
        self._target.finish(unit, digests)

    def _pieces(self, connection: socket.socket, unit: int, digests: list[list[Any]]) -> Iterator[int]:
        """Receive and write all pieces of a unit; yields the bytes that each step gained."""
        pieces = deque(self._target.units[unit])
        while pieces:
            if pieces[0].length > SMALL:
                yield from self._range(connection, pieces.popleft())
                continue
            some = [pieces.popleft()]  # as many small ones as one block holds: 100,000 files are few system calls
            total = some[0].length
            while pieces and total + pieces[0].length <= BUFFER:
                total += pieces[0].length
                some.append(pieces.popleft())
            data = memoryview(receive(connection, total) if total else b"")
            for piece in some:
                told = self._target.write_small(piece, data[: piece.length])
                digests += [[piece.file, told]] if told else []
                data = data[piece.length :]
            yield total

    def _range(self, connection: socket.socket, piece: Piece) -> Iterator[int]:
        buffer = memoryview(bytearray(BUFFER))
        at, end = piece.offset, piece.offset + piece.length
        with self._target.writing(piece) as fd:
            while at < end:
                want = min(BUFFER, end - at)
                got = connection.recv_into(buffer, want, socket.MSG_WAITALL)
                if got < want:
                    raise ConnectionError("closed by the other side, or silent")
                self._target.put(fd, buffer[:got], at)
                at += got
                yield got
