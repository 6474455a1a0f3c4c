"""Two network namespaces as two hosts, made by system calls alone: for machines without iproute2.

Each host has a "fabric" that leads to the other one, 10.77.0.1 and 10.77.0.2, and a "LAN" with the default route that
leads nowhere, 10.88.1.2 and 10.88.2.2: the two links of a desk-side machine with a fast cable and a slow Wi-Fi.

usage: namespaces.py up|down [NAME]     needs root; the hosts are NAME-1 and NAME-2
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NETNS = Path("/run/netns")  # where ip netns keeps them as well
NEW_NET, NEW_MOUNTS = 0x40000000, 0x20000  # CLONE_NEWNET, CLONE_NEWNS of linux/sched.h
BIND, RECURSIVE, PRIVATE, DETACH = 0x1000, 0x4000, 0x40000, 2  # MS_… of linux/mount.h, MNT_DETACH of umount(2)

# linux/rtnetlink.h, linux/if_link.h, linux/veth.h
NEW_LINK, NEW_ADDRESS, NEW_ROUTE = 16, 20, 24
REQUEST, ACKNOWLEDGE, CREATE, EXCLUSIVE = 0x1, 0x4, 0x400, 0x200
ERROR, UP = 2, 1
LINK_NAME, LINK_INFO, LINK_NAMESPACE, INFO_KIND, INFO_DATA, VETH_PEER = 3, 18, 28, 1, 2, 1
ADDRESS_ADDRESS, ADDRESS_LOCAL, ROUTE_GATEWAY, ROUTE_OUT = 1, 2, 5, 4

_libc = ctypes.CDLL(None, use_errno=True)


def main(words: Sequence[str]) -> int:
    """Make or remove the two hosts."""
    verb, name = (*words, "two")[:2] if words else ("", "")
    if verb not in ("up", "down"):
        print(__doc__, file=sys.stderr)
        return 2
    down(name)
    if verb == "up":
        up(name)
    return 0


def up(name: str) -> None:
    """Make the hosts; the far ends of their LANs are in a third namespace, where nobody answers."""
    for end in ("1", "2", "lan"):
        _create(f"{name}-{end}")
    _join(f"{name}-1", "fab1", f"{name}-2", "fab2")
    for k in (1, 2):
        _join(f"{name}-{k}", f"lan{k}", f"{name}-lan", f"far{k}")
    with _inside(f"{name}-lan") as lan:
        for link in ("far1", "far2"):
            _set_up(lan, link)
    for k in (1, 2):
        with _inside(f"{name}-{k}") as host:
            _set_up(host, "lo")
            for link, address in ((f"fab{k}", f"10.77.0.{k}"), (f"lan{k}", f"10.88.{k}.2")):
                _add_address(host, link, address)
                _set_up(host, link)
            _add_default_route(host, f"lan{k}", f"10.88.{k}.1")


def down(name: str) -> None:
    """Remove what is there of the hosts; links end with their namespaces, and those with their last process."""
    for end in ("1", "2", "lan"):
        path = NETNS / f"{name}-{end}"
        if path.exists():
            _libc.umount2(bytes(path), DETACH)
            path.unlink()


def enter(name: str) -> None:
    """Make this process one of the host: its network, its interfaces in /sys, and a /dev/shm of its own.

    Engines take two ranks that share /dev/shm for ranks of one host. Raises OSError.
    """
    with (NETNS / name).open("rb") as file:
        call("setns", file.fileno(), NEW_NET)
    call("unshare", NEW_MOUNTS)
    call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
    call("mount", b"tmpfs", b"/dev/shm", b"tmpfs", 0, None)
    with contextlib.suppress(OSError):  # some sandboxes allow no sysfs: then /sys shows the machine's interfaces
        _own_sys()


def call(name: str, *words: object) -> int:
    """A system call by its name in libc. Raises OSError."""
    done: int = getattr(_libc, name)(*words)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


def _own_sys() -> None:
    """The interfaces of this network namespace where /sys shows interfaces; all else stays as it is."""
    call("mount", b"sysfs", b"/dev/shm", b"sysfs", 0, None)
    for place in (b"class/net", b"devices/virtual/net"):
        call("mount", b"/dev/shm/" + place, b"/sys/" + place, None, BIND, None)
    call("umount2", b"/dev/shm", DETACH)


def _create(name: str) -> None:
    """A new network namespace that stays when no process is in it."""
    NETNS.mkdir(parents=True, exist_ok=True)
    (NETNS / name).touch(exist_ok=False)
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(OSError):
            call("unshare", NEW_NET)
            call("mount", b"/proc/self/ns/net", bytes(NETNS / name), None, BIND, None)
            status = 0
        os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise OSError(f"no network namespace could be made for {name}: is this root?")


@contextlib.contextmanager
def _inside(name: str) -> Iterator[socket.socket]:
    """A route socket of a namespace: it stays there when its maker comes back."""
    with Path("/proc/self/ns/net").open("rb") as home, (NETNS / name).open("rb") as away:
        call("setns", away.fileno(), NEW_NET)
        try:
            route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        finally:
            call("setns", home.fileno(), NEW_NET)
    with route:
        yield route


def _join(host: str, link: str, other: str, far: str) -> None:
    """A cable (veth) between two namespaces."""
    with _inside(host) as route, (NETNS / other).open("rb") as there:
        peer = _link() + _attribute(LINK_NAME, far.encode() + b"\0")
        peer += _attribute(LINK_NAMESPACE, struct.pack("=I", there.fileno()))
        info = _attribute(INFO_KIND, b"veth") + _attribute(INFO_DATA, _attribute(VETH_PEER, peer))
        named = _attribute(LINK_NAME, link.encode() + b"\0")
        _ask(route, NEW_LINK, CREATE | EXCLUSIVE, _link() + named + _attribute(LINK_INFO, info))


def _set_up(route: socket.socket, link: str) -> None:
    _ask(route, NEW_LINK, 0, _link(UP) + _attribute(LINK_NAME, link.encode() + b"\0"))


def _add_address(route: socket.socket, link: str, ip: str) -> None:
    number = _index(route, link)
    raw = socket.inet_aton(ip)
    head = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, number)
    _ask(route, NEW_ADDRESS, CREATE, head + _attribute(ADDRESS_LOCAL, raw) + _attribute(ADDRESS_ADDRESS, raw))


def _add_default_route(route: socket.socket, link: str, gateway: str) -> None:
    """In the main table (254), made by boot (3), universe (0), unicast (1)."""
    head = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
    out = _attribute(ROUTE_OUT, struct.pack("=I", _index(route, link)))
    _ask(route, NEW_ROUTE, CREATE, head + _attribute(ROUTE_GATEWAY, socket.inet_aton(gateway)) + out)


def _index(route: socket.socket, link: str) -> int:
    """The number of a link, as the kernel tells it for a request by name (RTM_GETLINK)."""
    answer = _exchange(route, 18, 0, _link() + _attribute(LINK_NAME, link.encode() + b"\0"))
    number: int = struct.unpack_from("=BxHi", answer, 16)[2]
    return number


def _link(flags: int = 0) -> bytes:
    """struct ifinfomsg; the flags are set and are all that changes."""
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 0, flags, flags)


def _attribute(kind: int, payload: bytes) -> bytes:
    """struct rtattr, padded to four bytes."""
    return struct.pack("=HH", 4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def _ask(route: socket.socket, kind: int, flags: int, body: bytes) -> None:
    _exchange(route, kind, flags | ACKNOWLEDGE, body)


def _exchange(route: socket.socket, kind: int, flags: int, body: bytes) -> bytes:
    """Send one message and give back the answer. Raises OSError with what the kernel objects to."""
    route.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST | flags, 1, 0) + body)
    answer = route.recv(65536)
    if struct.unpack_from("=H", answer, 4)[0] == ERROR:
        number: int = -struct.unpack_from("=i", answer, 16)[0]
        if number:
            raise OSError(number, f"netlink message {kind}: {os.strerror(number)}")
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
