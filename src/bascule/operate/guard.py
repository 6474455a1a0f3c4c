"""Watches a service that serves: every second its ranks, beside that what moves and what it says of its requests."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from bascule.launch.plan import place_of
from bascule.operate.asking import Asker
from bascule.operate.following import looker, vigil_over
from bascule.operate.ward import Ward
from bascule.watch.follow import LOOK_EVERY, Follower, Rank, how_it_ended
from bascule.watch.load import Asked, Load, has_metrics, times
from bascule.watch.serving import TRIES, Outlook, Served, Stance, State, judge
from bascule.watch.sockets import host_of

METRICS_EVERY = 15.0  # seconds; engines write a line into their log each time
ASK_EVERY = 60.0  # seconds from one question to the next, where it is to be asked regularly
LOADS = 120  # looks at the metrics that are kept: ten minutes
SETTLES = 7.0  # seconds that a single look takes: a node that has told nothing until then is lost
LOOKS = 3  # at the counters, which tell what is stopped
ONCE_WITHIN = 20.0  # seconds in which a single look must have seen the counters; else it does without


@dataclass(frozen=True, slots=True)
class Change:
    """A rank, or the whole service (None), that stands otherwise than before."""

    rank: int | None
    node: str
    state: State
    says: str


@dataclass
class Guard:
    """The watch over one start. `tell` gets every change; `regularly` asks for one token every minute."""

    ward: Ward
    tell: Callable[[Change], None]
    regularly: bool = False
    loads: deque[Load] = field(default_factory=lambda: deque(maxlen=LOADS))
    asked: Asked | None = None
    _told: dict[int | None, tuple[State, str]] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ward = self.ward
        plans = list(ward.ranks.values())
        places = [place_of(ward.nodes[plan.node]) for plan in plans]
        look_at = looker(ward.runners, ward.nodes, ward.kind)
        self.follower = Follower(ward.lore, places, look_at, None, _nothing, _nothing, _nothing, patience=math.inf)
        self.vigil = self.follower.vigil = vigil_over(ward.ranks, ward.nodes, ward.runners, ward.kind)
        head, *others = self.vigil.watched
        self.vigil.watched = [replace(head, api_port=self._port), *others]
        self.asker = Asker(ward.endpoint, ward.nodes[plans[0].node], ward.lore.name)

    @property
    def _port(self) -> int | None:
        return urlsplit(self.ward.endpoint.url).port

    async def until_trouble(self, *, once: bool = False) -> Outlook:
        """The outlook at the first trouble; with `once` after a single look at everything."""
        self.follower.resume(list(self.ward.ranks))
        began = time.monotonic()
        while True:
            await self.follower.look()
            outlook = self._judge()
            self._tell(outlook)
            if outlook.state.is_trouble or (once and self._has_looked(began)):
                return outlook
            self._go_on(outlook)
            await asyncio.sleep(LOOK_EVERY)

    async def close(self) -> None:
        """End what goes on in the background."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.follower.close()
        await self.vigil.close()
        await self.asker.close()

    def _judge(self) -> Outlook:
        return judge(self.served(), self.loads, self.asked, time.monotonic())

    def served(self) -> list[Served]:
        """What is known of each rank by now, in rank order."""
        samples = self.vigil.samples
        return [
            Served(
                rank.number,
                samples.get(rank.number, ()),
                rank.alive,
                how_it_ended(rank),
                rank.seen_at,
                rank.progress.spoke_at,
                connections=self._is_used(rank),
            )
            for rank in self.follower.ranks
        ]

    def _is_used(self, rank: Rank) -> bool:
        """Somebody is connected to the API, by the newest sockets that were read."""
        newest = next(
            (one.sockets for one in reversed(self.vigil.samples.get(rank.number, ())) if one.sockets is not None), ()
        )
        ours = [one for one in newest or () if one.state == "ESTABLISHED" and one.local.endswith(f":{self._port}")]
        return rank.number == 0 and any(host_of(one.remote) != host_of(one.local) for one in ours)

    def _has_looked(self, began: float) -> bool:
        """Every counter was read for long enough, and a question that is out has come back."""
        now = time.monotonic()
        pending = self.regularly and (self.asked is None or self.asked.pending or self._is_asked_again())
        answering = [rank.number for rank in self.follower.ranks if now - rank.seen_at < times().lost_s]
        complete = all(len(self.vigil.samples.get(rank, ())) >= LOOKS for rank in answering)
        return not pending and now - began >= SETTLES and (complete or now - began >= ONCE_WITHIN)

    def _is_asked_again(self) -> bool:
        return self.asked is not None and bool(self.asked.failed) and self.asked.tries < TRIES

    def _go_on(self, outlook: Outlook) -> None:
        """Begin what is due and not under way."""
        sizes = {rank.number: rank.log_bytes for rank in self.follower.ranks}
        self._begin("counters", 0.0, lambda: self.vigil.look(sizes))
        if has_metrics(self.ward.lore.name):
            self._begin("metrics", METRICS_EVERY, self._read_load)
        if outlook.doubt:
            self._due.pop("question", None)
        if outlook.doubt or self.regularly:
            self._begin("question", ASK_EVERY, lambda: self._ask(outlook.doubt))

    def _begin(self, name: str, every: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task, now = self._tasks.get(name), time.monotonic()
        if self._due.get(name, 0.0) > now or (task and not task.done()):
            return
        if task and task.done():
            task.result()  # a bug there is not to be lost
        self._due[name] = now + every
        self._tasks[name] = asyncio.create_task(work())

    async def _read_load(self) -> None:
        self.loads.append(await self.asker.load())

    async def _ask(self, doubt: str) -> None:
        tries = self.asked.tries + 1 if self.asked and self.asked.failed else 1
        began = time.monotonic()
        self.asked = Asked(began, tries=tries)
        if doubt:
            self.tell(Change(None, "", State.SERVING, f"in doubt, asks for one token: {doubt}"))
        failed, refused = await self.asker.ask()
        ended = time.monotonic()
        self.asked = replace(self.asked, ended_at=ended, failed=failed, refused=refused)
        self.tell(
            Change(None, "", State.SERVING if self.asked.answered else State.UNKNOWN, self._answer(ended - began))
        )

    def _answer(self, seconds: float) -> str:
        assert self.asked is not None
        if self.asked.answered:
            return f"gave a token in {seconds:.1f} s"
        why = self.asked.failed or self.asked.refused
        return f"asked for one token: {why}" if self.asked.failed else f"can't be asked for a token: {why}"

    def _tell(self, outlook: Outlook) -> None:
        """Every rank that stands otherwise, and the service where that is not said by a rank."""
        for stance in outlook.ranks:
            self._tell_one(stance.rank, stance)
        if outlook.rank is None and outlook.state.is_trouble:
            self._tell_one(None, Stance(0, outlook.state, outlook.says))

    def _tell_one(self, rank: int | None, stance: Stance) -> None:
        before, _ = self._told.get(rank, (State.SERVING, ""))
        if stance.state is before:
            return
        self._told[rank] = (stance.state, stance.says)
        node = self.follower.ranks[rank].node if rank is not None else ""
        self.tell(Change(rank, node, stance.state, stance.says or "serves again"))


def _nothing(_: object) -> None:
    """Nobody listens."""
