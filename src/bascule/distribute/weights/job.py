"""What all deliveries of one copy share: the source, the manifest, the checksums, and who can pass the weights on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bascule.distribute.weights.ledger import Ledger
from bascule.distribute.weights.manifest import Manifest, from_plain
from bascule.distribute.weights.progress import CopyProgress
from bascule.distribute.weights.station import Event, Station

Verify = Literal["auto", "full"]
Tell = Callable[[CopyProgress], None]


@dataclass
class Job:
    """One call of copy_weights."""

    path: str
    verify: Verify
    tell: Tell
    source: Station
    raw: dict[str, Any]  # the manifest as the source sent it, and as targets get it
    manifest: Manifest
    ledger: Ledger
    seed: int
    order: tuple[str, ...] = ()  # of the chain
    stations: dict[str, Station] = field(default_factory=dict)  # all that can give units, by name
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)  # files whose checksum the source was asked for
    told: asyncio.Condition = field(default_factory=asyncio.Condition)

    def hear_source(self, event: Event) -> None:
        """What the source tells: checksums, or trouble that ends all deliveries."""
        if event["event"] == "digests":
            self.ledger.tell_source(event["files"])
        elif event["event"] in ("trouble", "gone"):
            event = {**event, "event": "source-trouble"}
        for listener in self.listeners:
            listener(event)

    async def want_checksums(self, numbers: Sequence[int]) -> None:
        """Let the source hash those of the files that nobody knows yet, each once."""
        wanted = [number for number in self.ledger.unknown(numbers) if number not in self.asked]
        self.asked.update(wanted)
        if wanted:
            await self.source.ask("hash", files=wanted)

    def before(self, target: str) -> list[str]:
        """From whom a target may pull: those before it in the chain that are alive, the nearest first."""
        ahead = self.order[: self.order.index(target)]
        return [*(name for name in reversed(ahead) if not self.stations[name].gone), self.source.node.name]


async def list_source(source: Station, path: str, verify: Verify, tell: Tell) -> Job:
    """Make the job: the source lists its files. Raises Refused."""
    seed = secrets.randbelow(1 << 32)
    raw = (await source.ask("list", path=path, verify=verify, seed=seed))["manifest"]
    manifest = from_plain(raw)
    job = Job(path, verify, tell, source, raw, manifest, Ledger(manifest, verify), seed)
    source.on_event = job.hear_source
    job.stations[source.node.name] = source
    return job
