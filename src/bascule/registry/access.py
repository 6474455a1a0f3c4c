"""How registries are reached in one command: its connections, logins, patience, and what is told on the way."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from bascule.registry.accounts import Accounts
from bascule.registry.doors import Daemon, read_daemon
from bascule.registry.patience import Allowance

PATIENCE = 20.0  # seconds of one wait that a registry may ask for
MOST_WAITING = 60.0  # seconds of all waits of a command


def new_client() -> httpx2.Client:
    """A client for one command; a proxy is taken from the environment."""
    return httpx2.Client(timeout=httpx2.Timeout(30, connect=10), max_redirects=5)


def default_accounts() -> Accounts:
    """The accounts of this user."""
    return Accounts.from_environment(os.environ)


@dataclass
class Shared:
    """What the requests of one command have in common; used by several threads."""

    client: httpx2.Client | None = None
    tokens: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)  # by base and repository
    allowances: dict[str, Allowance] = field(default_factory=dict)  # by host
    away: dict[str, str] = field(default_factory=dict)  # hosts that can't be reached -> why; not asked again
    waited: float = 0.0  # seconds
    received: int = 0  # bytes of bodies
    closed: bool = False  # nothing more is asked
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Access:
    """How registries are reached."""

    insecure: bool = False  # http, for a registry of one's own
    client: Callable[[], httpx2.Client] = new_client
    accounts: Accounts = field(default_factory=default_accounts)
    within: float = 3600  # seconds for one layer
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time  # seconds since the epoch
    daemon: Daemon = field(default_factory=read_daemon)
    tell: Callable[[str], None] = lambda _: None
    most: int | None = None  # bytes of one layer that may be fetched; None: any
    cache: Path | None = None  # of manifests and configurations, by their digests
    shared: Shared = field(default_factory=Shared)

    def connection(self) -> httpx2.Client:
        """The one client of this command."""
        with self.shared.lock:
            if self.shared.closed:
                raise RuntimeError("the connections of this command were closed")
            if self.shared.client is None:
                self.shared.client = self.client()
            return self.shared.client

    def close(self) -> None:
        """Let the connections go."""
        with self.shared.lock:
            self.shared.closed = True
            client, self.shared.client = self.shared.client, None
        if client:
            client.close()

    def counted(self, data: bytes) -> bytes:
        """The same bytes, counted."""
        with self.shared.lock:
            self.shared.received += len(data)
        return data

    def waits(self, seconds: float, why: str) -> bool:
        """Wait so long, and say why; False when that is more than is sensible."""
        with self.shared.lock:
            if seconds > PATIENCE or self.shared.waited + seconds > MOST_WAITING:
                return False
            self.shared.waited += seconds
        self.tell(f"{why}: waiting {seconds:g} s")
        self.sleep(seconds)
        return True
