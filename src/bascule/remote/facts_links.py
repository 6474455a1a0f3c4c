"""Readings of the network: interfaces and their addresses, the default route, RDMA ports with their GID tables."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

from bascule.core.machine import Address, Gid, Interface, LinkKind, RdmaPort
from bascule.remote.reading import Reading, shortened, word

# iproute2 where it is, else an ioctl through python3.
_ADDRESSES = r"""
if command -v ip >/dev/null 2>&1; then ip -o -4 addr show
elif command -v python3 >/dev/null 2>&1; then python3 - <<'PY'
import fcntl, socket, struct
for _, name in socket.if_nameindex():
    def ask(number):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return socket.inet_ntoa(fcntl.ioctl(s.fileno(), number, struct.pack("256s", name.encode()))[20:24])
    try:
        address, mask = ask(0x8915), int.from_bytes(socket.inet_aton(ask(0x891b)), "big")
        print("0:", name, "inet", f"{address}/{bin(mask).count('1')}")
    except OSError:
        pass
PY
fi
"""

_INTERFACES = r"""
if command -v ip >/dev/null 2>&1; then ip -d -o link show 2>/dev/null || ip -o link show; fi
cd /sys/class/net && grep -s -e ^DEVTYPE= -e '^[-0-9a-z]' \
  */ifindex */type */mtu */operstate */speed */uevent /dev/null
for mark in */device */wireless */bridge */tun_flags; do [ -e "$mark" ] && echo "$mark:"; done
cd /
"""

# Of a GID table only what is in use: the type of an empty row can't be read, its GID is all zero.
_RDMA = r"""
echo "ports"
if cd /sys/class/infiniband 2>/dev/null; then
  grep -s . */ports/*/state */ports/*/rate */ports/*/link_layer /dev/null
  grep -s . */ports/*/gid_attrs/types/* */ports/*/gid_attrs/ndevs/* /dev/null
  grep -sv '^0000:0000:0000:0000:0000:0000:0000:0000$' */ports/*/gids/* /dev/null
  for mark in */device/net/*; do [ -e "$mark" ] && echo "$mark:"; done
  cd /
fi
"""

_IP_LINK = re.compile(
    r"(?P<index>\d+): (?P<name>[^:@\s]+)[^<]*<(?P<flags>[^>]*)> mtu (?P<mtu>\d+)(?P<rest>.*)", re.ASCII
)
# What `ip -d link` calls the kind of an interface that is no hardware (ip-link(8), TYPE).
_KINDS: Mapping[LinkKind, str] = {
    "bridge": "bridge|openvswitch",
    "tunnel": "tun|wireguard|vxlan|geneve|gre|gretap|ip6gre|ip6gretap|ipip|sit|ip6tnl|vti|vti6|xfrm|ppp|l2tp",
    "virtual": "veth|dummy|macvlan|macvtap|ipvlan|ipvtap|ifb|netkit|vrf|nlmon|vcan",
    "ethernet": "bond|team|vlan",
}
_ARPHRD: Mapping[str, LinkKind] = {"772": "loopback", "32": "infiniband", "1": "ethernet"}  # linux/if_arp.h
_ROUTE_UP, _DEFAULT = 1, "00000000"  # linux/route.h, RTF_UP
Files = Mapping[str, str]  # path below the folder -> what stands in it


def _addresses(text: str) -> tuple[Address, ...]:
    """Lines of `ip -o -4 addr show`: index, interface, inet, address/prefix, …"""
    found = []
    for row in (line.split() for line in word(text).splitlines() if line.strip()):
        if "inet" not in row[:-1]:
            raise ValueError(shortened(" ".join(row)))
        ip, _, prefix = row[row.index("inet") + 1].partition("/")
        found.append(Address(row[1].rstrip(":"), str(ipaddress.IPv4Address(ip)), _prefix(prefix)))
    return tuple(found)


def _prefix(text: str) -> int:
    bits = int(text or 32)
    if not 0 <= bits <= 32:
        raise ValueError(f"a prefix of {bits} bits")
    return bits


def _default_interface(text: str) -> str:
    """From /proc/net/route: the way of the default route that is up and has the least metric."""
    head, *lines = word(text).splitlines()
    if not head.startswith("Iface"):
        raise ValueError(shortened(text))
    rows = [line.split() for line in lines]
    ways = [
        (int(row[6]), row[0])
        for row in rows
        if len(row) > 7 and row[1] == row[7] == _DEFAULT and int(row[3], 16) & _ROUTE_UP
    ]
    return min(ways)[1] if ways else ""


def _interfaces(text: str) -> tuple[Interface, ...]:
    """From `ip -d -o link show` where it is, with what sysfs adds; else from sysfs alone.

    In a container or a network namespace sysfs may show another network: it counts where name and index are the same.
    """
    files = _files(text)
    rows = [found for line in text.splitlines() if (found := _IP_LINK.match(line))]
    if rows:
        return tuple(_by_ip(row, _trusted(files, row)) for row in rows)
    names = sorted({path.partition("/")[0] for path in files if path.endswith("/ifindex")})
    if not names:
        raise ValueError(shortened(text) or "neither ip nor /sys/class/net tells them")
    return tuple(_by_sysfs(name, files) for name in names)


def _files(text: str) -> Files:
    """Lines `PATH:TEXT` of a grep over several files; of a file with several lines, the last."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {path: value.strip() for path, colon, value in pairs if colon and "/" in path and " " not in path}


def _trusted(files: Files, row: re.Match[str]) -> Files:
    name = row["name"]
    same = files.get(f"{name}/ifindex") == row["index"]
    return {path: value for path, value in files.items() if same and path.startswith(f"{name}/")}


def _by_ip(row: re.Match[str], files: Files) -> Interface:
    name, up = row["name"], "LOWER_UP" in row["flags"].split(",")
    return Interface(name, _kind_by_ip(row, files), up, int(row["mtu"]), _speed(files.get(f"{name}/speed")))


def _kind_by_ip(row: re.Match[str], files: Files) -> LinkKind:
    link = re.search(r"\slink/(\w+)", row["rest"])
    if link and link[1] in ("loopback", "infiniband"):
        return "loopback" if link[1] == "loopback" else "infiniband"
    if _is_wifi(row["name"], files):
        return "wifi"
    details = row["rest"].partition(" promiscuity ")[2]
    if not details and files:  # busybox tells no details
        return _kind_by_sysfs(row["name"], files)
    for kind, words in _KINDS.items():
        if re.search(rf"\s({words})\s", f"{details} "):
            return kind
    if link and link[1] == "none":
        return "tunnel"
    return "ethernet" if link and link[1] == "ether" else "other"


def _by_sysfs(name: str, files: Files) -> Interface:
    mtu = files.get(f"{name}/mtu", "")
    up = files.get(f"{name}/operstate") in ("up", "unknown")
    return Interface(
        name, _kind_by_sysfs(name, files), up, int(mtu) if mtu.isdigit() else None, _speed(files.get(f"{name}/speed"))
    )


def _kind_by_sysfs(name: str, files: Files) -> LinkKind:
    devtype = files.get(f"{name}/uevent", "").removeprefix("DEVTYPE=")
    kind = _ARPHRD.get(files.get(f"{name}/type", ""), "other")
    if _is_wifi(name, files):
        return "wifi"
    if f"{name}/bridge" in files:
        return "bridge"
    if f"{name}/tun_flags" in files or devtype in _KINDS["tunnel"].split("|"):
        return "tunnel"
    if kind == "ethernet" and f"{name}/device" not in files and devtype not in _KINDS["ethernet"].split("|"):
        return "virtual"
    return kind


def _is_wifi(name: str, files: Files) -> bool:
    """By sysfs, or by its name: systemd calls wireless LANs wl… (systemd.net-naming-scheme(7))."""
    return f"{name}/wireless" in files or files.get(f"{name}/uevent") == "DEVTYPE=wlan" or name.startswith("wl")


def _speed(text: str | None) -> int | None:
    """Mbit/s; drivers print -1 where they don't know."""
    return int(text) if text and text.isascii() and text.isdigit() and int(text) > 0 else None


def _rdma(text: str) -> tuple[RdmaPort, ...]:
    """All ports of all devices, in the order of their names."""
    if not text.startswith("ports"):
        raise ValueError(shortened(text) or "nothing was printed")
    files = _files(text)
    places = [path.split("/") for path in files if path.endswith("/state")]
    return tuple(_port(place[0], place[2], files) for place in sorted(places) if place[2:3] and place[2].isdigit())


def _port(device: str, port: str, files: Files) -> RdmaPort:
    at = f"{device}/ports/{port}"
    rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", files.get(f"{at}/rate", ""), re.ASCII)
    return RdmaPort(
        device,
        int(port),
        files[f"{at}/state"].endswith("ACTIVE"),
        files.get(f"{at}/link_layer", ""),
        float(rate[1]) if rate else None,
        _netdev(device, at, files),
        tuple(_gids(at, files)),
    )


def _netdev(device: str, at: str, files: Files) -> str | None:
    """What the GID table names, else the only netdev of its PCI function."""
    named = [value for path, value in files.items() if path.startswith(f"{at}/gid_attrs/ndevs/")]
    beside = [path.rpartition("/")[2] for path in files if path.startswith(f"{device}/device/net/")]
    return next(iter(named or (beside if len(beside) == 1 else [])), None)


def _gids(at: str, files: Files) -> Iterator[Gid]:
    for index in sorted(int(path.rpartition("/")[2]) for path in files if path.startswith(f"{at}/gids/")):
        ip = ipaddress.IPv6Address(files[f"{at}/gids/{index}"])
        yield Gid(index, files.get(f"{at}/gid_attrs/types/{index}", ""), str(ip.ipv4_mapped or ip))


READINGS = (
    Reading("addresses", _ADDRESSES, {"addresses": _addresses}),
    Reading("interfaces", _INTERFACES, {"interfaces": _interfaces}),
    Reading("routes", "cat /proc/net/route", {"default_interface": _default_interface}),
    Reading("rdma", _RDMA, {"rdma": _rdma}),
)
