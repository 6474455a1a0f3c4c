"""One target's part of a copy: prepare, pull along a chain, verify, make visible; another way when one is lost."""

from __future__ import annotations

import asyncio
import secrets
import time

from bascule.core.nouns import Finding
from bascule.distribute.weights.findings import finding
from bascule.distribute.weights.job import Job
from bascule.distribute.weights.manifest import summary
from bascule.distribute.weights.plan import Route, routes
from bascule.distribute.weights.progress import CopyProgress, Meter, Phase, Receipt
from bascule.distribute.weights.ranges import SMALL
from bascule.distribute.weights.relay import Bridge
from bascule.distribute.weights.station import Event, Refused, Station

MOST_CONNECTIONS = 4
TRIES = 2  # for a file that arrived wrong


class Delivery:
    """One target. After prepare() of all, deliver() of all at once."""

    def __init__(self, job: Job, station: Station) -> None:
        self.job, self.station, self.name = job, station, station.node.name
        self.whole = False  # visible already
        self.lacks_units = True
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._began = time.monotonic()
        self._meter = Meter()
        self._bridge: Bridge | None = None
        self._route: Route | None = None
        self._used: set[Route] = set()
        self._arrived = False
        self._notes: list[str] = []
        self._pull = self._held_then = self._tries = self._came_with = 0
        self.total = self.held = self.hashed = 0
        station.on_event = self._events.put_nowait
        job.listeners.append(self._hear_source)

    async def prepare(self) -> None:
        """See what the target has. Raises Refused."""
        job = self.job
        self._tell("checking")
        wanted = {"path": job.path, "manifest": job.raw, "verify": job.verify, "seed": job.seed}
        seen = await self.station.ask("prepare", **wanted)
        self.whole, self.total, self.held = seen["whole"], seen["total"], seen["held"]
        self.lacks_units, self._came_with = seen["units"] > 0, self.held

    async def deliver(self) -> Receipt | Finding:
        """Bring what is lacking, verify all, make it visible."""
        try:
            return await self._deliver()
        except Refused as refused:
            return finding(refused.complaint)
        finally:
            if self._bridge:
                await self._bridge.end()

    async def _deliver(self) -> Receipt:
        await self.job.want_checksums(self._to_hash_at_once())
        await self.station.ask("begin")
        if self.lacks_units:
            await self._next_route()
        while not await self._is_right():
            await self._wait_until_arrived()
        if changed := (await self.job.source.ask("check"))["changed"]:
            says = f"{len(changed)} files changed during the copy: {changed[0]}"
            raise Refused(self.job.source.complain("changed", says, "\n".join(changed)))
        notes = [] if self.whole else (await self.station.ask("commit"))["notes"]
        self._tell("done")
        return self._receipt([*self._notes, *notes])

    def _to_hash_at_once(self) -> list[int]:
        """Files that the source won't hash while it sends them."""
        entries = self.job.manifest.entries
        return [number for number in self.job.manifest.files if not self.lacks_units or entries[number].size > SMALL]

    async def _wait_until_arrived(self) -> None:
        """Follow the target until all units are there and hashed; take another way when one is lost."""
        while (event := await self._events.get())["event"] != "arrived":
            await self._take(event)
        self._tell("verifying")
        self._arrived = True

    async def _take(self, event: Event) -> None:
        kind = event["event"]
        if kind == "progress":
            self.held, self.hashed = event["bytes"], event["hashed"]
            self._tell("sending" if self.held < self.total else "verifying")
        elif kind == "digests":
            self.job.ledger.tell(self.name, event["files"])
        elif kind in ("trouble", "gone"):
            raise Refused(self.station.complain(event["kind"], event["says"], event["seen"]))
        elif kind == "source-trouble":
            raise Refused(self.job.source.complain(event["kind"], event["says"], event["seen"]))
        elif kind == "lost" and event["pull"] == self._pull:
            await self._next_route(why=event["why"])

    async def _is_right(self) -> bool:
        """True when every checksum is what it should be; wrong files are fetched once more, from the source."""
        if not self._arrived:
            return False
        job = self.job
        await job.want_checksums(job.manifest.files)
        while job.ledger.unknown(job.manifest.files):
            await self._take(await self._events.get())
        wrong = job.ledger.wrong(self.name)
        if not wrong:
            return True
        self._tries += 1
        said = "\n".join(job.ledger.said(self.name, number) for number in wrong[:20])
        if self.whole:
            says = f"a model is there already, and {job.manifest.entries[wrong[0]].path} has other content"
            raise Refused(self.station.complain("in-the-way", says, said))
        if self._tries == TRIES:
            says = f"{len(wrong)} files arrived wrong, twice: {job.manifest.entries[wrong[0]].path}"
            raise Refused(self.station.complain("corrupt", says, said))
        self._notes = [f"{len(wrong)} files were wrong and came again: {job.manifest.entries[wrong[0]].path}"]
        job.ledger.forget(self.name, wrong)
        self._arrived = False
        await self.station.ask("drop", files=wrong)
        self._used.clear()
        await self._next_route(again=True)
        return False

    async def _next_route(self, *, why: str = "", again: bool = False) -> None:
        """Pull along the best way that was not lost since the last progress. Raises Refused when none is left."""
        job = self.job
        if self.held > self._held_then:
            self._used = {self._route} if self._route else set()
        self._held_then = self.held
        links = {name: station.links for name, station in job.stations.items()}
        preferred = {name: station.node.address for name, station in job.stations.items()}
        before = [job.source.node.name] if again else job.before(self.name)
        last = why
        for route in routes(self.name, before, links, preferred):
            if route in self._used:
                continue
            self._used.add(route)
            try:
                await self._pull_along(route)
            except Refused as refused:
                last = refused.complaint.seen
                continue
            self._route = route
            return
        raise Refused(self.station.complain("cut", "the weights can't be brought there any more", last))

    async def _pull_along(self, route: Route) -> None:
        upstream = self.job.stations[route.upstream]
        count = min(MOST_CONNECTIONS, max(2, min(upstream.cores, self.station.cores)))
        tokens = [secrets.token_hex(32) for _ in range(count)]
        port = (await upstream.ask("listen", ip=route.ip or "127.0.0.1", tokens=tokens))["port"]
        self._pull += 1
        if route.ip:
            await self.station.ask("pull", ip=route.ip, port=port, tokens=tokens, pull=self._pull)
            return
        keys = [secrets.token_hex(32) for _ in range(count)]
        door = (await self.station.ask("await", tokens=keys, pull=self._pull))["port"]
        self._bridge = self._bridge or Bridge(upstream.node, self.station.node)
        for token, key in zip(tokens, keys, strict=True):
            await self._bridge.join((port, token), (door, key))

    def _hear_source(self, event: Event) -> None:
        if event["event"] == "source-trouble":
            self._events.put_nowait(event)
        elif event["event"] == "digests":
            self._events.put_nowait({"event": "known"})  # perhaps the last one that was waited for

    def _tell(self, phase: Phase) -> None:
        rate = self._meter.rate(time.monotonic(), self.held)
        eta = (self.total - self.held) / rate if rate else None
        files = len(self.job.manifest.files)
        hashed = files if phase == "done" else min(files, self.hashed)
        self.job.tell(CopyProgress(self.name, phase, self.held, self.total, rate, eta, hashed, files))

    def _receipt(self, notes: list[str]) -> Receipt:
        job = self.job
        return Receipt(
            target=self.name,
            path=job.path,
            files=len(job.manifest.files),
            bytes=job.manifest.bytes,
            sent=self.total - self._came_with,
            seconds=time.monotonic() - self._began,
            verified=summary(job.manifest, job.verify, job.seed),
            already_there=self.whole,
            route=str(self._route) if self._route else "it was there",
            notes=tuple(notes),
        )
