"""What the sampler's commands print, read strictly: a line that is not as it should be makes the whole answer void."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bascule.watch.samples import Socket
from bascule.watch.sockets import decode

LONGEST = 4 * 1024 * 1024  # characters of an answer; 4000 processes and 1000 sockets per rank are far below
_NUMBER = re.compile(r"[0-9]{1,20}\Z")  # the kernel's counters are below 2**64
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?\Z")
_SECONDS = re.compile(r"([0-9]{1,6})m([0-9]{1,2}(?:\.[0-9]{1,9})?)s\Z")


class Garbled(ValueError):
    """An answer that the sampler's commands don't give; nothing of it is believed."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a rank. Times are in ticks of 1/100 s (USER_HZ, proc(5)); bytes are None where unreadable."""

    pid: int
    began: int
    state: str  # R, S, D, T (stopped), Z (ended), … as proc(5)
    own: int
    children: int  # of those that ended and were waited for
    pages: int  # resident
    read: int | None
    written: int | None
    name: str  # at most 15 characters


@dataclass(frozen=True, slots=True)
class Reading:
    """What was printed of one rank."""

    root: tuple[int, int] | None = None  # pid of its first process, and when that began
    processes: tuple[Process, ...] = ()
    cgroup: Mapping[str, int] = field(default_factory=dict)  # cpu (ns), read, written, memory (bytes), paused (1)
    net: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # interface -> bytes received, sent


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all ranks of a node."""

    ranks: Mapping[int, Reading]
    rdma: int | None = None  # bytes, both directions
    page: int | None = None  # bytes


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; None is what it does not report, such as GB10 its memory."""

    uuid: str
    percent: float | None
    watts: float | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class App:
    """One process that computes on a GPU."""

    pid: int
    bytes: int | None
    uuid: str


@dataclass(frozen=True, slots=True)
class Gpus:
    """All GPUs of a node; none where nvidia-smi is not, or does not answer."""

    gpus: tuple[Gpu, ...] = ()
    apps: tuple[App, ...] = ()


@dataclass(frozen=True, slots=True)
class Sockets:
    """TCP sockets of one rank; `mine` is False where only those of its whole network could be read."""

    mine: bool
    sockets: tuple[Socket, ...]


def parse_look(text: str) -> Look:
    """The answer of `look`. Raises Garbled."""
    kept: dict[int, _Kept] = {}
    words = 0
    rdma = page = None
    for tag, rest in _lines(text, "look"):
        if tag == "page":
            page = _page(rest)
        elif tag == "rdma":
            words, rdma = words + _number(rest.rsplit(" ", 1)[-1]), True
        else:
            _take(kept, tag, rest)
    ranks = {rank: one.reading() for rank, one in kept.items()}
    return Look(ranks, words * 4 if rdma else None, page)  # port_*_data counts 4-byte words


def parse_gpus(text: str) -> Gpus:
    """The answer of `gpus`. Raises Garbled; a value in words, such as [N/A] or [Not Supported], is None."""
    gpus, apps = [], []
    for tag, rest in _lines(text, "gpus"):
        row = [word.strip() for word in rest.split(",")]
        if tag == "gpu" and len(row) == 4:
            gpus.append(Gpu(row[0], _reported(row[1]), _reported(row[2]), _mebibytes(row[3])))
        elif tag == "app" and len(row) == 3 and _NUMBER.match(row[0]):
            apps.append(App(int(row[0]), _mebibytes(row[1]), row[2]))
        elif "," in rest:  # else it is a sentence of nvidia-smi: no devices, a driver that doesn't answer
            raise Garbled(f"{tag} {rest}"[:200])
    return Gpus(tuple(gpus), tuple(apps))


def parse_caches(text: str) -> dict[int, int]:
    """The answer of `caches`: bytes by rank; a rank whose caches took too long is missing. Raises Garbled."""
    sizes: dict[int, int] = {}
    for _, rest in _lines(text, "caches", "cache"):
        rank, size = _numbers(rest, 2)
        sizes[rank] = sizes.get(rank, 0) + size * 1024
    return sizes


def parse_marks(text: str) -> dict[int, tuple[int, ...]]:
    """The answer of `marks`: pids by rank. Raises Garbled."""
    found: dict[int, tuple[int, ...]] = {}
    for _, rest in _lines(text, "marks", "mark"):
        rank, pid = _numbers(rest, 2)
        found[rank] = (*found.get(rank, ()), pid)
    return found


def parse_roots(text: str) -> dict[int, tuple[int, int]]:
    """The answer of `roots`: first process of each container and when it began, by rank. Raises Garbled."""
    rows = [_numbers(rest, 3) for _, rest in _lines(text, "roots", "root")]
    return {rank: (pid, began) for rank, pid, began in rows}


def parse_sockets(text: str) -> dict[int, Sockets]:
    """The answer of `sockets`, by rank. Raises Garbled."""
    rows: dict[int, list[Socket]] = {}
    whole: dict[int, bool] = {}
    for tag, rest in _lines(text, "sockets"):
        row = rest.split(" ")
        rank, mine = _number(row[0]), row[1:2] == ["mine"]
        if tag == "network" and len(row) == 2:
            whole[rank] = mine
        elif tag == "socket" and len(row) == 5:
            rows.setdefault(rank, []).append(_socket(*row[2:]))
        else:
            raise Garbled(f"{tag} {rest}"[:200])
    return {rank: Sockets(mine, tuple(rows.get(rank, ()))) for rank, mine in whole.items()}


def parse_requests(text: str) -> tuple[int, float] | None:
    """The answer of `requests`: how many wait, and for how many seconds the first; None where that isn't told.

    Raises Garbled.
    """
    rows = [_numbers(rest, 2) for _, rest in _lines(text, "requests", "waiting")]
    return (rows[0][0], rows[0][1] / 1000) if rows else None


def taken(text: str) -> float:
    """CPU seconds that an answer says it took, shell and children: the last two lines of `times`; 0 if it says none."""
    _, _, behind = text.partition("=== took\n")
    found = [_SECONDS.match(word) for line in behind.splitlines()[:2] for word in line.split()]
    return sum(int(one[1]) * 60 + float(one[2]) for one in found if one)


@dataclass
class _Kept:
    """A Reading while its lines come in."""

    root: tuple[int, int] | None = None
    processes: list[Process] = field(default_factory=list)
    cgroup: dict[str, int] = field(default_factory=dict)
    net: dict[str, tuple[int, int]] = field(default_factory=dict)

    def reading(self) -> Reading:
        return Reading(self.root, tuple(self.processes), self.cgroup, self.net)

    def add(self, name: str, value: int) -> None:
        self.cgroup[name] = self.cgroup.get(name, 0) + value


def _lines(text: str, name: str, only: str = "") -> Iterator[tuple[str, str]]:
    """The lines of an answer as tag and rest; it must be whole."""
    if len(text) > LONGEST:
        raise Garbled(f"{len(text)} characters")
    lines = text.split("\n")
    if lines[0] != f"=== {name}" or "=== end" not in lines:
        raise Garbled(f"no whole answer of `{name}`: {text[:100]!r}")
    for line in lines[1 : lines.index("=== end")]:
        if line == "=== took":
            return
        tag, _, rest = line.partition(" ")
        if only and tag != only:
            raise Garbled(line[:200])
        yield tag, rest


def _take(kept: dict[int, _Kept], tag: str, rest: str) -> None:
    """One line about a rank."""
    number, _, rest = rest.partition(" ")
    one = kept.setdefault(_number(number), _Kept())
    if (take := _TAKERS.get(tag)) is None:
        raise Garbled(f"{tag} {rest}"[:200])
    take(one, rest)


def _take_rank(one: _Kept, rest: str) -> None:
    pid, _, began = rest.partition(" ")
    one.root = None if pid == "-" else (_number(pid), _number(began))


def _take_process(one: _Kept, rest: str) -> None:
    row = rest.split(" ", 10)
    if len(row) != 11 or len(row[2]) != 1:
        raise Garbled(f"process {rest}"[:200])
    pid, began, user, system, user_children, system_children, pages = map(_number, (*row[:2], *row[3:8]))
    read, written = (None if word == "-" else _number(word) for word in row[8:10])
    own, children = user + system, user_children + system_children
    one.processes.append(Process(pid, began, row[2], own, children, pages, read, written, row[10]))


def _take_net(one: _Kept, rest: str) -> None:
    name, _, numbers = rest.partition(" ")
    received, sent = _numbers(numbers, 2)
    one.net[name] = (received, sent)


def _take_cgroup(one: _Kept, rest: str) -> None:
    """`cpu usage_usec N`, `cpu usage_nsec N`, `memory N`; as version 1 or 2 prints it a device's I/O, or a pause."""
    what, _, rest = rest.partition(" ")
    row = rest.split()
    if what == "memory":
        one.add("memory", _number(rest))
    elif what == "paused" and rest in ("frozen 1", "FREEZING", "FROZEN"):
        one.add("paused", 1)
    elif what == "cpu" and len(row) == 2 and row[0] in ("usage_usec", "usage_nsec"):
        one.add("cpu", _number(row[1]) * (1000 if row[0] == "usage_usec" else 1))
    elif what == "io" and row[1:2] in (["Read"], ["Write"]) and len(row) == 3:
        one.add("read" if row[1] == "Read" else "written", _number(row[2]))
    elif what == "io" and "=" in rest:
        pairs = dict(word.partition("=")[::2] for word in row[1:])
        one.add("read", _number(pairs.get("rbytes", "")))
        one.add("written", _number(pairs.get("wbytes", "")))
    else:
        raise Garbled(f"cgroup {what} {rest}"[:200])


_TAKERS: Mapping[str, Callable[[_Kept, str], None]] = {
    "rank": _take_rank,
    "process": _take_process,
    "net": _take_net,
    "cgroup": _take_cgroup,
}


def _socket(state: str, local: str, remote: str) -> Socket:
    try:
        return decode(state, local, remote)
    except ValueError:
        raise Garbled(f"socket {state} {local} {remote}"[:200]) from None


def _page(rest: str) -> int:
    """`KernelPageSize:        4 kB`, from smaps."""
    row = rest.split()
    if len(row) != 3 or row[2] != "kB":
        raise Garbled(f"page {rest}"[:200])
    return _number(row[1]) * 1024


def _number(text: str) -> int:
    if not _NUMBER.match(text):
        raise Garbled(f"{text[:100]!r} is no number")
    return int(text)


def _numbers(text: str, count: int) -> list[int]:
    row = text.split(" ")
    if len(row) != count:
        raise Garbled(f"{text[:100]!r} are not {count} numbers")
    return [_number(word) for word in row]


def _reported(word: str) -> float | None:
    return float(word) if _DECIMAL.match(word) else None


def _mebibytes(word: str) -> int | None:
    return int(float(word) * 1024 * 1024) if _DECIMAL.match(word) else None
