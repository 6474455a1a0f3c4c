"""Looks at all ranks of a node every two seconds; what costs more is looked at less often, in the background."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Literal

from bascule.core.nouns import Node
from bascule.errors import BasculeError
from bascule.remote.runner import Result, Runner
from bascule.watch import readings
from bascule.watch.ledger import Dear, Ledger, Moment, enter
from bascule.watch.readings import Garbled, Look, Reading
from bascule.watch.samples import Sample
from bascule.watch.sockets import about_peers

LOOK_EVERY = 2.0  # seconds: a look takes 7 ms of one core for a rank of 60 processes
WITHIN = 8.0  # seconds that a look may take
# Seconds between two looks at least. With SHARE, all parts together stay below 1 % of a core.
AT_LEAST: Mapping[str, float] = {
    "roots": 10.0,
    "marks": 30.0,
    "sockets": 12.0,
    "gpus": 5.0,
    "caches": 10.0,
    "requests": 5.0,
}
SHARE = 0.002  # of one core that each of these may take: one that took 40 ms comes again after 20 s
CACHE_SECONDS = 1.0  # that the sizes of one rank's caches may take
_COMMENT = re.compile(r"^\s*#.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Watched:
    """A rank as it is found on its node."""

    rank: int
    node: str
    name: str  # SERVICE.GENERATION.rRANK, as its label has it
    runtime: Literal["venv", "image"] = "venv"
    interface: str | None = None  # that carries its address; None: all of the node but the loopback
    caches: tuple[str, ...] = ()  # folders, see cache_folders()
    api_port: int | None = None  # whose connections are to be looked at; None: it has none, or nobody asks yet


@dataclass
class Sampler:
    """One node's ranks. It keeps what a look needs of the last one; nothing is kept on the node."""

    runner: Runner
    node: Node
    ranks: Sequence[Watched]
    peers: Collection[str] = ()  # addresses of all other nodes, for sockets that can't be told apart by process
    clock: Callable[[], float] = time.monotonic
    trouble: str = ""  # why the last look gave nothing, or a part of it
    _ledgers: dict[int, Ledger] = field(default_factory=dict)
    _roots: dict[int, tuple[int, int]] = field(default_factory=dict)
    _marks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _dear: dict[int, Dear] = field(default_factory=dict)
    _pids: dict[int, tuple[int, ...]] = field(default_factory=dict)
    known: dict[int, dict[int, str]] = field(default_factory=dict)  # processes that each rank ever had, and their names
    _due: dict[str, float] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def look(self) -> list[Sample]:
        """One Sample per rank that was found; none, and `trouble`, when nothing could be read.

        Raises NodeUnreachable. Its sockets are in a Sample once, when they were read anew.
        """
        self.trouble = ""
        if self._is_due("roots"):  # where the containers begin is needed first
            self._begin("roots")
            await self.settle()
        at = self.clock()
        result = await self._call("look", *self._look_words(), within=WITHIN)
        try:
            seen = readings.parse_look(result.text)
        except Garbled as trouble:
            self.trouble = f"{self.node.name}: {trouble} {result.complaint if not result.ok else ''}".strip()
            return []
        self._roots = {rank: root for rank, root in self._roots.items() if _is_there(seen, rank)}
        samples = [self._sample(rank, seen, at) for rank in self.ranks if _is_there(seen, rank.rank)]
        for part in AT_LEAST:
            if self._is_due(part):
                self._begin(part)
        return samples

    @property
    def pids(self) -> dict[int, tuple[int, ...]]:
        """The processes of each rank at the last look, its first one in front where it is left."""
        return dict(self._pids)

    async def settle(self) -> None:
        """Wait for what is read in the background, so that the next look has it."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def close(self) -> None:
        """End what is read in the background."""
        for task in self._tasks.values():
            task.cancel()
        await self.settle()

    def _sample(self, rank: Watched, seen: Look, at: float) -> Sample:
        reading: Reading = seen.ranks[rank.rank]
        dear = self._dear.get(rank.rank, Dear())
        moment = Moment(rank.rank, at, reading, seen.page, seen.rdma, len(self.ranks) == 1, dear)
        self._ledgers[rank.rank], sample = enter(self._ledgers.get(rank.rank, Ledger()), moment)
        self._dear[rank.rank] = replace(dear, sockets=None)  # they are told once
        names = {one.pid: one.name for one in reading.processes}
        first = reading.root[0] if reading.root else 0
        self._pids[rank.rank] = tuple(sorted(names, key=lambda pid: (pid != first, pid)))
        if rank.runtime == "venv":
            names.pop(first, None)  # a shell that waits for the engine
        self.known.setdefault(rank.rank, {}).update(names)
        return sample

    def _look_words(self) -> list[str]:
        words: list[str] = []
        for rank in self.ranks:
            pid, began = self._roots.get(rank.rank, ("-", "-"))
            place = self._place(rank) if rank.runtime == "venv" else "-"
            marks = ",".join(map(str, self._marks.get(rank.rank, ()))) or "-"
            words += [str(rank.rank), place, str(pid), str(began), marks]
        interfaces = {rank.interface for rank in self.ranks}
        return [*words, "--", "-" if None in interfaces else ",".join(sorted(filter(None, interfaces)))]

    def _place(self, rank: Watched) -> str:
        return f"{self.node.facts.run_dir}/{rank.name}"

    def _is_due(self, part: str) -> bool:
        task = self._tasks.get(part)
        late = self._due.get(part, 0.0) <= self.clock() and (task is None or task.done())
        return late and bool(self._part_words(part))

    def _begin(self, part: str) -> None:
        self._due[part] = self.clock() + AT_LEAST[part]
        self._tasks[part] = asyncio.create_task(self._part(part))

    async def _part(self, part: str) -> None:
        """One of the dear parts; the more it takes of the node, the later it comes again."""
        words = self._part_words(part)
        try:
            result = await self._call(part, *words, within=15)
            _TAKE[part](self, result.text)
        except BasculeError:
            return  # the node is lost: the next look tells it
        except Garbled as trouble:
            self.trouble = f"{self.node.name}: {trouble}"
            return
        self._due[part] = self.clock() + max(AT_LEAST[part], readings.taken(result.text) / SHARE)

    def _part_words(self, part: str) -> list[str]:
        """What the part is called with; nothing when it has nothing to look at."""
        docker = " ".join(self.node.facts.docker.command) if self.node.facts.docker else "docker"
        begun = [one for one in self.ranks if one.runtime == "image" and one.rank not in self._roots]
        images = [word for one in begun for word in (str(one.rank), one.name)]
        venvs = [word for one in self.ranks if one.runtime == "venv" for word in (str(one.rank), self._place(one))]
        match part:
            case "roots":
                return [docker, *images] if images else []
            case "marks":
                return venvs
            case "gpus":
                own = ",".join(map(str, self.node.gpus or ())) or "all"
                return [own] if self.node.facts.gpus != () else []
            case "sockets":
                return [word for one in self.ranks for word in self._socket_words(one)]
            case "requests":
                return [str(one.api_port) for one in self.ranks if one.api_port]
            case _:
                return self._cache_words()

    def _socket_words(self, rank: Watched) -> list[str]:
        pids = self._pids.get(rank.rank)
        return [str(rank.rank), str(pids[0]), ",".join(map(str, pids))] if pids else []

    def _cache_words(self) -> list[str]:
        words: list[str] = []
        for rank in self.ranks:
            root = "-" if rank.runtime == "venv" else str(self._roots.get(rank.rank, (0, 0))[0])
            words += [str(rank.rank), root, ":".join(rank.caches)] if rank.caches and root != "0" else []
        return [f"{CACHE_SECONDS:g}", *words] if words else []

    async def _call(self, function: str, *words: str, within: float) -> Result:
        return await self.runner.run(("sh", "-s", "--", function, *words), stdin=_script(), within=within)

    def take_roots(self, text: str) -> None:
        """Where the containers begin."""
        self._roots |= readings.parse_roots(text)

    def take_marks(self, text: str) -> None:
        """Processes that left the session of their rank."""
        self._marks = readings.parse_marks(text)

    def take_gpus(self, text: str) -> None:
        """The GPUs of the node, for all ranks."""
        gpus = readings.parse_gpus(text)
        self._keep(lambda dear, rank: replace(dear, gpus=gpus))

    def take_caches(self, text: str) -> None:
        """The sizes of their caches."""
        sizes = readings.parse_caches(text)
        self._keep(lambda dear, rank: replace(dear, cache_bytes=sizes.get(rank)))

    def take_sockets(self, text: str) -> None:
        """Their sockets; of a whole network, those that say something about peers."""
        found = {
            rank: one.sockets if one.mine else about_peers(one.sockets, self.peers)
            for rank, one in readings.parse_sockets(text).items()
        }
        self._keep(lambda dear, rank: replace(dear, sockets=found.get(rank)))

    def take_requests(self, text: str) -> None:
        """What waits at the API of the one rank that has it."""
        found, now = readings.parse_requests(text), self.clock()
        asked = {one.rank for one in self.ranks if one.api_port}
        since = None if found is None else (found[0], now - found[1])
        self._keep(lambda dear, rank: replace(dear, requests=since if rank in asked else None))

    def _keep(self, change: Callable[[Dear, int], Dear]) -> None:
        self._dear = {one.rank: change(self._dear.get(one.rank, Dear()), one.rank) for one in self.ranks}


_TAKE: Mapping[str, Callable[[Sampler, str], None]] = {
    "roots": Sampler.take_roots,
    "marks": Sampler.take_marks,
    "gpus": Sampler.take_gpus,
    "caches": Sampler.take_caches,
    "sockets": Sampler.take_sockets,
    "requests": Sampler.take_requests,
}


def _is_there(seen: Look, rank: int) -> bool:
    reading = seen.ranks.get(rank)
    return reading is not None and (reading.root is not None or bool(reading.processes))


def _script() -> str:
    """The functions without their comments: they travel with every look."""
    return _COMMENT.sub("", resources.files("bascule.watch").joinpath("sampler.sh").read_text())
