"""From what the sampler read to Samples: counters that only grow, and who used the CPU since the last look (pure)."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from bascule.watch.readings import Gpus, Process, Reading
from bascule.watch.samples import REQUESTS, Sample, Socket

TICK = 0.01  # seconds: USER_HZ is 100 on every Linux that an engine runs on, time(7)
BUSIEST = 4  # names
STOPPED = ("T", "t")  # states of a process that a signal or a debugger stopped, proc(5)
RUNNABLE = "R"  # of a process that runs, or would if it got a CPU
ENDED = ("Z", "X")  # states of a process that only waits to be collected, proc(5)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was counted of a rank so far."""

    totals: Mapping[str, float] = field(default_factory=dict)
    last: Mapping[str, tuple[str, float]] = field(default_factory=dict)  # counter -> where it was read, and the value
    ticks: Mapping[tuple[int, int], int] = field(default_factory=dict)  # of each process, by pid and beginning


@dataclass(frozen=True, slots=True)
class Dear:
    """What is looked at less often, as it was last seen; None is what was not seen."""

    gpus: Gpus | None = None
    cache_bytes: int | None = None
    sockets: tuple[Socket, ...] | None = None
    requests: tuple[int, float] | None = None  # that wait at its API, and since when by the watcher's clock


@dataclass(frozen=True, slots=True)
class Moment:
    """One look at one rank with all that belongs to it."""

    rank: int
    at: float  # seconds of the watcher's clock
    reading: Reading
    page: int | None  # bytes
    rdma: int | None  # bytes, of the node
    alone: bool  # no other rank of ours is on the node
    dear: Dear = Dear()


def enter(ledger: Ledger, moment: Moment) -> tuple[Ledger, Sample]:
    """The ledger with one look more, and the Sample that it makes. What was not read is in neither.

    A counter is the sum of what it gained: a process that ends takes its own count along, and that is no loss.
    """
    totals, last = dict(ledger.totals), dict(ledger.last)
    for name, (source, value) in _counters(moment).items():
        was, before = last.get(name, ("", 0.0))
        gained = value if not was else value - before if was == source else 0.0
        totals[name] = totals.get(name, 0.0) + max(0.0, gained)
        last[name] = (source, value)
    ticks = {(one.pid, one.began): one.own + one.children for one in moment.reading.processes}
    values = {name: totals[name] for name in _counters(moment)} | _gauges(moment)
    busiest = _busiest(ledger, moment.reading.processes) if ledger.ticks else ()
    return Ledger(totals, last, ticks), Sample(moment.rank, moment.at, values, moment.dear.sockets, busiest)


def is_compiler(name: str) -> bool:
    """True for programs that compile or link."""
    names = _names()
    return name in names["compilers"] or name.startswith(tuple(names["compiler_beginnings"]))


def cache_folders(env: Mapping[str, str]) -> tuple[str, ...]:
    """Where a rank with these variables keeps what it compiles; ~/ and %u are left to the node."""
    home = env.get("XDG_CACHE_HOME", "").rstrip("/")
    folders = []
    for row in _names()["cache"]:
        folder = env.get(row["variable"]) or row["folder"]
        if home and folder.startswith("~/.cache/"):
            folder = folder.replace("~/.cache", home, 1)
        folders.append("/".join(part for part in (folder, row.get("below", "")) if part))
    return tuple(dict.fromkeys(folder for folder in folders if ":" not in folder and folder.isprintable()))


def _counters(moment: Moment) -> dict[str, tuple[str, float]]:
    """Each counter that could be read: where, and its value there."""
    reading = moment.reading
    found: dict[str, tuple[str, float]] = {}
    if "cpu" in reading.cgroup:
        found["cpu_s"] = ("cgroup", reading.cgroup["cpu"] / 1e9)
    elif reading.processes:
        found["cpu_s"] = ("processes", TICK * sum(one.own + one.children for one in reading.processes))
    for name, key in (("read_bytes", "read"), ("written_bytes", "written")):
        told = [value for one in reading.processes if (value := getattr(one, key)) is not None]
        if key in reading.cgroup:
            found[name] = ("cgroup", reading.cgroup[key])
        elif told:
            found[name] = ("processes", sum(told))
    if reading.net:
        source = " ".join(sorted(reading.net))
        found["net_rx_bytes"] = (source, sum(received for received, _ in reading.net.values()))
        found["net_tx_bytes"] = (source, sum(sent for _, sent in reading.net.values()))
    if moment.rdma is not None:
        found["rdma_bytes"] = ("node", moment.rdma)
    return found


def _gauges(moment: Moment) -> dict[str, float]:
    alive = [one for one in moment.reading.processes if one.state not in ENDED]
    found: dict[str, float] = {
        "processes": len(alive),
        "compilers": sum(is_compiler(one.name) for one in alive),
        "stopped": sum(one.state in STOPPED for one in alive),
        "runnable": sum(one.state == RUNNABLE for one in alive),
    }
    if "paused" in moment.reading.cgroup:  # its processes show other states then
        found |= {"stopped": len(alive), "paused": 1.0}
    if "memory" in moment.reading.cgroup:
        found["memory_bytes"] = moment.reading.cgroup["memory"]
    elif alive and moment.page is not None:
        found["memory_bytes"] = moment.page * sum(one.pages for one in alive)
    if moment.dear.cache_bytes is not None:
        found["cache_bytes"] = moment.dear.cache_bytes
    if moment.dear.requests is not None:
        found |= zip(REQUESTS, map(float, moment.dear.requests), strict=True)
    return found | _gpu_gauges(moment.dear.gpus or Gpus(), {one.pid for one in alive}, moment.alone)


def _gpu_gauges(seen: Gpus, pids: set[int], alone: bool) -> dict[str, float]:
    """Of the GPUs on which the rank computes; of all of them when it is alone and nobody is known to compute.

    GB10 tells no memory of the GPU (`[N/A]`), only that of each process. Of a GPU that others use as well, only what
    the rank's own processes hold is its memory.
    """
    own = [app for app in seen.apps if app.pid in pids]
    wanted = {app.uuid for app in own}
    gpus = [gpu for gpu in seen.gpus if gpu.uuid in wanted or (alone and not seen.apps)]
    percents = [gpu.percent for gpu in gpus if gpu.percent is not None]
    told = [app.bytes for app in own if app.bytes is not None]
    others = any(app.uuid in wanted and app.pid not in pids for app in seen.apps)
    held = {"gpu_bytes": sum(told)} if told else {}
    return {
        **({"gpu_percent": max(percents)} if percents else {}),
        **_sum("gpu_watts", [gpu.watts for gpu in gpus]),
        **((held if others else {}) or _sum("gpu_bytes", [gpu.bytes for gpu in gpus]) or held),
    }


def _sum(name: str, parts: Sequence[float | None]) -> dict[str, float]:
    """The sum, unless a part of it is not known."""
    known = [part for part in parts if part is not None]
    return {name: sum(known)} if known and len(known) == len(parts) else {}


def _busiest(ledger: Ledger, processes: Iterable[Process]) -> tuple[str, ...]:
    """Names by the CPU that their processes used since the last look, most first; none that used nothing."""
    used: Counter[str] = Counter()
    for one in processes:
        used[one.name] += max(0, one.own + one.children - ledger.ticks.get((one.pid, one.began), 0))
    return tuple(name for name, ticks in used.most_common(BUSIEST) if ticks > 0)


@cache
def _names() -> dict[str, Any]:
    return tomllib.loads(resources.files("bascule.watch").joinpath("sampler.toml").read_text())
