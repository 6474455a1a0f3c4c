"""Who listens on a node: /proc/net/tcp, with the owning process where this user may see it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence

from bascule.preflight.checks import Listener
from bascule.remote.runner import Runner

LISTEN = "0A"  # state in /proc/net/tcp, include/net/tcp_states.h

_SCRIPT = r"""
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
echo "=== owners"
inodes=" $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v ports="$1" '
  BEGIN { n = split(ports, p, " "); for (i = 1; i <= n; i++) want[p[i]] = 1 }
  $4 == "0A" { split($2, a, ":"); if (want[a[2]]) printf "%s ", $10 }')"
[ "$inodes" = " " ] || ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v inodes="$inodes" '
  /^\/proc/ { split($1, part, "/"); pid = part[3] }
  match($0, /socket:\[[0-9]+\]/) {
    inode = substr($0, RSTART + 8, RLENGTH - 9)
    if (index(inodes, " " inode " ")) print inode, pid
  }' | sort -u | while read -r inode pid; do
    echo "$inode $pid $(stat -c %U "/proc/$pid") $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c 1-80)"
  done
"""


async def read_listeners(runner: Runner, ports: Sequence[int]) -> list[Listener] | None:
    """The listeners of a node; owners are looked up only for these ports. None when the table can't be read."""
    wanted = " ".join(f"{port:04X}" for port in ports)
    result = await runner.run(("sh", "-s", "--", wanted), stdin=_SCRIPT, within=30)
    if "local_address" not in result.text:
        return None
    return parse_listeners(result.text)


def parse_listeners(text: str) -> list[Listener]:
    """Listeners from /proc/net/tcp{,6} and the lines `INODE PID USER COMMAND` behind them."""
    table, _, owners = text.partition("=== owners")
    by_inode = {row[0]: row for row in (line.split(" ", 3) for line in owners.splitlines()) if len(row) == 4}
    return list(_listeners(table, by_inode))


def _listeners(table: str, owners: dict[str, list[str]]) -> Iterator[Listener]:
    for line in table.splitlines():
        row = line.split()
        if len(row) < 10 or row[3] != LISTEN:
            continue
        address, _, port = row[1].partition(":")
        owner = owners.get(row[9])
        who = f"{owner[3].strip().split(' ')[0]}, user {owner[2]}" if owner else ""
        yield Listener(_address(address), int(port, 16), int(owner[1]) if owner else None, who)


def _address(text: str) -> str:
    """The kernel prints addresses as 32-bit words in host order."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    if len(raw) == 4:
        return socket.inet_ntoa(raw)
    address = ipaddress.IPv6Address(raw)
    return str(address.ipv4_mapped or address)
