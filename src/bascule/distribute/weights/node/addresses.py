"""The IPv4 addresses of a node with the speed of their links, from the kernel, without iproute2."""
# Files of /proc and /sys.

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Any

GET_ADDRESS, GET_MASK = 0x8915, 0x891B  # ioctl numbers, from linux/sockios.h


def addresses() -> list[dict[str, Any]]:
    """Interface, ip, prefix, speed in Mbit/s (0 when the link doesn't say), and whether the default route uses it."""
    default = _default_interface()
    found = []
    for _, name in socket.if_nameindex():
        try:
            ip, mask = _ask(name, GET_ADDRESS), _ask(name, GET_MASK)
        except OSError:
            continue
        bits = bin(int.from_bytes(socket.inet_aton(mask), "big")).count("1")
        if not ip.startswith("127."):
            row = {"interface": name, "ip": ip, "prefix": bits, "speed": _speed(name), "default": name == default}
            found.append(row)
    return found


def _ask(name: str, number: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        return socket.inet_ntoa(fcntl.ioctl(asker.fileno(), number, struct.pack("256s", name.encode()))[20:24])


def _speed(name: str) -> int:
    try:
        with open(f"/sys/class/net/{name}/speed") as file:
            return max(0, int(file.read()))
    except (OSError, ValueError):
        return 0


def _default_interface() -> str:
    try:
        with open("/proc/net/route") as file:
            rows = [line.split() for line in file]
    except OSError:
        return ""
    return next((row[0] for row in rows if len(row) > 1 and row[1] == "00000000"), "")
