"""The ways to a registry: mirrors and plain http, as docker's daemon.json allows them on this machine.

Source: dockerd's `registry-mirrors` and `insecure-registries` (docs.docker.com/reference/cli/dockerd, 2026-12). Mirrors
are for docker.io alone; docker gives them no account but one of their own.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bascule.registry.oci import Reference

LONGEST_FILE = 1 << 20  # bytes
MIRRORED = "registry-1.docker.io"
USUAL = (Path("/etc/docker/daemon.json"), Path("~/.config/docker/daemon.json"))


@dataclass(frozen=True, slots=True)
class Door:
    """One way to a registry."""

    host: str
    base: str  # https://host/v2
    accounts: tuple[str, ...]  # names under which its account may be kept
    insecure: bool = False  # http is meant
    mirror: bool = False


@dataclass(frozen=True, slots=True)
class Daemon:
    """What docker's daemon.json says of registries."""

    mirrors: tuple[str, ...] = ()  # URLs
    insecure: tuple[str, ...] = ()  # host, host:port or a network


def read_daemon(paths: Iterable[Path] = USUAL) -> Daemon:
    """What these files say together; one that is missing or broken says nothing."""
    found = [_read(path) for path in paths]
    mirrors = (url for one in found for url in _texts(one, "registry-mirrors"))
    insecure = (name for one in found for name in _texts(one, "insecure-registries"))
    return Daemon(tuple(dict.fromkeys(mirrors)), tuple(dict.fromkeys(insecure)))


def doors(reference: Reference, daemon: Daemon, insecure: bool) -> tuple[Door, ...]:
    """All ways to it: mirrors first, then the registry itself."""
    own = _door(reference.host, reference.accounts, insecure or is_insecure(reference.host, daemon))
    mirrors = daemon.mirrors if reference.host == MIRRORED else ()
    return (*(_mirror(url) for url in mirrors if urlsplit(url).netloc), own)


def is_insecure(host: str, daemon: Daemon) -> bool:
    """Whether http is allowed: on this machine, as docker does it, or where daemon.json lists it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if name == "localhost" or _is_loopback(name):
        return True
    return any(listed in (host, name) or _within(name, listed) for listed in daemon.insecure)


def _door(host: str, accounts: tuple[str, ...], insecure: bool) -> Door:
    return Door(host, f"{'http' if insecure else 'https'}://{host}/v2", accounts, insecure)


def _mirror(url: str) -> Door:
    parts = urlsplit(url)
    base = f"{parts.scheme or 'https'}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/v2"
    host = parts.netloc.rpartition("@")[2]
    return Door(host, base, (host, f"https://{host}"), parts.scheme == "http", True)


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _within(name: str, listed: str) -> bool:
    try:
        return "/" in listed and ipaddress.ip_address(name) in ipaddress.ip_network(listed, strict=False)
    except ValueError:
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.expanduser().open("rb") as file:
            found = json.loads(file.read(LONGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _texts(found: Mapping[str, Any], key: str) -> tuple[str, ...]:
    rows = found.get(key)
    return tuple(row for row in rows if isinstance(row, str)) if isinstance(rows, list) else ()
