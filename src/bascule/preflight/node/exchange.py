"""Listens at a node's own addresses and exchanges bytes with its peers, as told line by line on standard input.

It is sent to a node and must be understood by Python 3.6; exchange.pl is the same in Perl. Orders and answers:

    listen TAG ADDRESS TOKEN                  -> listening TAG PORT | failed TAG TEXT
    reach TAG ADDRESS PORT TOKEN PATIENCE     -> pair TAG OUTCOME LOCAL CONNECT_S ROUND_TRIP_S TEXT
    rate TAG ADDRESS PORT TOKEN BYTES SECONDS -> rate TAG BYTES SECONDS ROUND_TRIP_S TEXT

"-" stands for what is not known. It ends with its standard input, or when no order came for LIFE seconds, and with it
every listener and connection. What goes over the wire is told at serve().
"""

import errno
import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time
from typing import Callable  # noqa: UP035  Python 3.6

LIFE = 60.0  # seconds
ROUNDS = 5  # exchanges of a few bytes; the fastest counts
BULK = 48 * 1024  # bytes: five segments of 9000, and less than a kernel takes for a process that does not read
ANSWER = 10.0  # seconds that a busy peer may take for a word
CHUNK = 1 << 20  # bytes
OUTCOMES = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.EACCES: "no-route",
    errno.EPERM: "no-route",  # a firewall of its own that rejects what leaves
    errno.ETIMEDOUT: "no-answer",
}
speaking = threading.Lock()


class Trouble(Exception):
    """An exchange that ended early."""

    def __init__(self, outcome: str, seen: str) -> None:
        Exception.__init__(self, seen)
        self.outcome, self.seen = outcome, seen


def main() -> None:
    """Take orders until nobody gives any."""
    pending = b""
    while select.select([0], [], [], LIFE)[0]:
        got = os.read(0, 65536)
        if not got:
            break
        lines = (pending + got).split(b"\n")
        pending = lines.pop()
        for line in lines:
            obey(line.decode().split())
    os._exit(0)


def obey(words: "list[str]") -> None:
    """One order; those that take time in a thread of their own."""
    order = words[0]
    if order == "listen":
        listen(words[1], words[2], words[3])
    elif order == "reach":
        start(lambda: reach(words[1], words[2], int(words[3]), words[4], float(words[5])))
    elif order == "rate":
        start(lambda: rate(words[1], words[2], int(words[3]), words[4], (int(words[5]), float(words[6]))))


def start(work: "Callable[[], None]") -> None:
    """Do it in a thread, which ends with the process."""
    threading.Thread(target=work, daemon=True).start()


def say(*words: object) -> None:
    """One line of answer."""
    text = " ".join(str(word) for word in words).replace("\n", " ")
    with speaking:
        os.write(1, f"{text}\n".encode())


def listen(tag: str, address: str, token: str) -> None:
    """A listener at a port that the kernel chooses."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        door.bind((address, 0))
        door.listen(256)
    except OSError as trouble:
        say("failed", tag, trouble.strerror)
        return
    start(lambda: welcome(door, token.encode()))
    say("listening", tag, door.getsockname()[1])


def welcome(door: socket.socket, token: bytes) -> None:
    """Serve whoever comes."""
    while True:
        try:
            guest, _ = door.accept()
        except OSError:
            time.sleep(0.05)  # out of files for a moment
            continue
        threading.Thread(target=serve, args=(guest, token), daemon=True).start()


def serve(guest: socket.socket, token: bytes) -> None:
    """The guest says the token, and is answered with it. Then `p` is echoed, `b` is followed by BULK bytes and answered
    with `b`, and `r` by as many bytes as the guest likes, answered with `BYTES SECONDS` when it has said all."""
    guest.settimeout(LIFE)
    quick(guest)
    try:
        if take(guest, len(token)) != token:
            return
        guest.sendall(token)
        word = guest.recv(1)
        while word in (b"p", b"b"):
            if word == b"b":
                take(guest, BULK)
            guest.sendall(word)
            word = guest.recv(1)
        if word == b"r":
            count(guest)
    except (OSError, Trouble):
        pass  # the guest has seen it as well, and tells it
    finally:
        guest.close()


def count(guest: socket.socket) -> None:
    """Bytes after the first piece, and the time from that one to the last."""
    room, total = bytearray(CHUNK), 0
    size = guest.recv_into(room)
    began = last = time.monotonic()
    while size:
        size = guest.recv_into(room)
        total += size
        last = time.monotonic() if size else last
    guest.sendall(f"{total} {last - began:.6f}\n".encode())


def reach(tag: str, address: str, port: int, token: str, patience: float) -> None:
    """Everything that a pair has to show, but for its rate."""
    peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    outcome, seen, local, connect_s, fastest = "reached", "", "-", "-", "-"
    try:
        connect_s = f"{connect(peer, address, port, patience):.6f}"
        local = peer.getsockname()[0]
        greet(peer, token)
        fastest = f"{min(ping(peer) for _ in range(ROUNDS)):.6f}"
        bulk(peer, patience)
    except Trouble as trouble:
        outcome, seen = trouble.outcome, trouble.seen
    except OSError as trouble:
        outcome, seen = "mute", trouble.strerror or str(trouble)
    peer.close()
    say("pair", tag, outcome, local, connect_s, fastest, seen)


def rate(tag: str, address: str, port: int, token: str, most: "tuple[int, float]") -> None:
    """Send so many bytes, or for so many seconds; the peer counts. The round trip is measured again, in the quiet."""
    peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connect(peer, address, port, ANSWER)
        greet(peer, token)
        fastest = min(ping(peer) for _ in range(ROUNDS))
        peer.sendall(b"r")
        pour(peer, *most)
        total, took = read_line(peer).split()
        say("rate", tag, total, took, f"{fastest:.6f}")
    except (OSError, Trouble, ValueError) as trouble:
        say("rate", tag, "-", "-", "-", trouble)
    finally:
        peer.close()


def connect(peer: socket.socket, address: str, port: int, patience: float) -> float:
    """Seconds from SYN to the established connection."""
    peer.settimeout(patience)
    began = time.monotonic()
    try:
        peer.connect((address, port))
    except socket.timeout:  # noqa: UP041  Python 3.6
        raise Trouble("no-answer", f"SYN-SENT for {patience:g} s") from None
    except OSError as trouble:
        seen = trouble.strerror or str(trouble)
        raise Trouble(OUTCOMES.get(trouble.errno or 0, "unproven"), seen) from None
    took = time.monotonic() - began
    quick(peer)
    return took


def greet(peer: socket.socket, token: str) -> None:
    """It is really the helper of that node."""
    peer.settimeout(ANSWER)
    peer.sendall(token.encode())
    if take(peer, len(token)) != token.encode():
        raise Trouble("stranger", "somebody else answers there")


def ping(peer: socket.socket) -> float:
    """Seconds for one byte there and back."""
    began = time.monotonic()
    peer.sendall(b"p")
    take(peer, 1)
    return time.monotonic() - began


def bulk(peer: socket.socket, patience: float) -> None:
    """Full-size segments: stalled is what the peer's kernel leaves unacknowledged for so long, however busy it is."""
    data = memoryview(b"b" + bytes(BULK))
    peer.setblocking(False)
    before, moved = -1, time.monotonic()
    while True:
        data = data[send_some(peer, data) :]
        left = unacknowledged(peer) + len(data)
        if not left:
            break
        if left != before:
            before, moved = left, time.monotonic()
        elif time.monotonic() - moved > patience:
            raise Trouble("stalled", f"{left} of {BULK} bytes not acknowledged for {patience:g} s")
        time.sleep(0.0005)
    peer.settimeout(ANSWER)
    take(peer, 1)


def pour(peer: socket.socket, size: int, seconds: float) -> None:
    """Send, and then say that it was all."""
    chunk, end = bytes(CHUNK), time.monotonic() + seconds
    while size > 0 and time.monotonic() < end:
        size -= peer.send(chunk[:size] if size < CHUNK else chunk)
    peer.shutdown(socket.SHUT_WR)


def send_some(peer: socket.socket, data: memoryview) -> int:
    """What the kernel takes of it now."""
    try:
        return peer.send(data) if data else 0
    except BlockingIOError:
        return 0


def unacknowledged(peer: socket.socket) -> int:
    """Bytes that were sent and not acknowledged by the other kernel: SIOCOUTQ, tcp(7)."""
    told: int = struct.unpack("i", fcntl.ioctl(peer.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
    return told


def take(peer: socket.socket, size: int) -> bytes:
    """So many bytes. A connection that ends before them, or is silent for too long, is mute."""
    got = b""
    while len(got) < size:
        try:
            more = peer.recv(size - len(got))
        except socket.timeout:  # noqa: UP041  Python 3.6
            raise Trouble("mute", f"connected, then no word for {peer.gettimeout():g} s") from None
        if not more:
            raise Trouble("mute", "connected, then closed without a word")
        got += more
    return got


def read_line(peer: socket.socket) -> str:
    """A line of few bytes."""
    got = b""
    while not got.endswith(b"\n"):
        got += take(peer, 1)
    return got.decode()


def quick(sock: socket.socket) -> None:
    """Send small pieces at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


if __name__ == "__main__":
    main()
