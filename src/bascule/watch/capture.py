"""Evidence of a start that hangs or died, taken on all nodes at once before anything is stopped."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from bascule.core.nouns import Node
from bascule.errors import BasculeError
from bascule.remote.runner import Result, Runner
from bascule.watch.masking import hide_in_plain, hide_secrets, secret_values
from bascule.watch.sampler import Sampler, Watched
from bascule.watch.samples import Sample
from bascule.watch.samples_csv import to_csv

WITHIN = 15.0  # seconds for all of it
PART_WITHIN = 5.0  # seconds for each of its parts
LARGEST = 200_000  # bytes of a part; ten parts and a few containers stay below 2 MB a node
FIRSTS = 3  # processes of a rank whose variables are read: the leader has not all of them, the engine behind it has
_HEXADECIMAL = re.compile(r"(?<=\t)[0-9A-F]{8}(?=\t)")  # the columns of /proc/net/route; /proc/net/dev has no tabs


@dataclass(frozen=True, slots=True)
class Captured:
    """What was taken, and what could not be, with the reason."""

    folder: Path
    files: tuple[Path, ...]
    samples: tuple[Sample, ...]  # one or two per rank, with sockets where they could be read
    missing: Mapping[str, str] = field(default_factory=dict)  # "node part" -> why
    timers: Mapping[str, str] = field(default_factory=dict)  # node -> its TCP sockets with their timers, as `ss` says


@dataclass
class _Taking:
    """One node while its evidence comes in."""

    node: Node
    runner: Runner
    ranks: Sequence[Watched]
    peers: Sequence[str]
    within: float  # seconds for each part
    parts: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name


async def capture(
    ranks: Sequence[Watched],
    nodes: Sequence[Node],
    runners: Mapping[str, Runner],
    folder: Path,
    samples: Sequence[Sample] = (),
    within: float = PART_WITHIN,
) -> Captured:
    """Everything that may tell why, as files of masked text in a new folder below `folder`; at most WITHIN seconds.

    Besides: `samples`, the counters so far, as CSV. A node that does not answer is in `missing`. Raises OSError when
    nothing can be written.
    """
    takings = [
        _Taking(
            node, runners[node.name], [rank for rank in ranks if rank.node == node.name], _peers(node, nodes), within
        )
        for node in nodes
    ]
    await asyncio.gather(*(_take(taking) for taking in takings))
    place = _new_folder(folder)
    secrets = {value for taking in takings for value in _secrets_of(taking)}
    files = [
        _write(place, f"{_plain(one.name)}.{part}", text, secrets)
        for one in takings
        for part, text in one.parts.items()
    ]
    taken = [sample for one in takings for sample in one.samples]
    files.append(_write(place, "counters.csv", to_csv([*samples, *taken]), secrets))
    missing = {f"{one.name} {part}": why for one in takings for part, why in one.missing.items()}
    if missing:
        files.append(
            _write(place, "missing.txt", "".join(f"{what}: {why}\n" for what, why in missing.items()), secrets)
        )
    timers = {one.name: one.parts.get("timers.txt", "") for one in takings}
    return Captured(place, tuple(files), tuple(taken), missing, timers)


async def read_part(runner: Runner, *words: str) -> str:
    """One part alone, as a node prints it. Raises NodeUnreachable; what can't be read says why."""
    return (await _call(runner, words, PART_WITHIN)).stdout[:LARGEST].decode(errors="replace")


async def _take(taking: _Taking) -> None:
    """All parts at once, behind one look that finds the processes. The time is one for all of them."""
    try:
        async with asyncio.timeout(WITHIN):
            pids = await _find(taking)
            await asyncio.gather(*(_part(taking, name, words) for name, words in _wanted(taking, pids)))
    except TimeoutError:
        taking.missing["all"] = f"not everything was read within {WITHIN:g} s"


async def _find(taking: _Taking) -> dict[int, tuple[int, ...]]:
    """The pids of each rank, and Samples with their sockets."""
    sampler = Sampler(taking.runner, taking.node, taking.ranks, taking.peers)
    try:
        async with asyncio.timeout(taking.within):
            taking.samples += await sampler.look()
            await sampler.settle()
            taking.samples += await sampler.look()
    except TimeoutError:
        taking.missing["processes"] = f"the ranks were not found within {taking.within:g} s"
    except BasculeError as trouble:
        taking.missing["processes"] = trouble.seen or trouble.says
    finally:
        await sampler.close()
    if sampler.trouble:
        taking.missing["processes"] = sampler.trouble
    taking.parts |= {"sockets.txt": _socket_lines(taking.samples)} if taking.samples else {}
    return sampler.pids


def _wanted(taking: _Taking, pids: Mapping[int, tuple[int, ...]]) -> list[tuple[str, list[str]]]:
    """Each part and its words; those about processes only where there are some."""
    docker = " ".join(taking.node.facts.docker.command) if taking.node.facts.docker else "docker"
    every = [str(pid) for rank in taking.ranks for pid in pids.get(rank.rank, ())]
    firsts = [str(pid) for rank in taking.ranks for pid in pids.get(rank.rank, ())[:FIRSTS]]
    containers = [
        (f"container{rank.rank}.json", ["container", docker, rank.name])
        for rank in taking.ranks
        if rank.runtime == "image"
    ]
    processes = [
        ("processes.txt", ["processes", *every[:300]]),
        ("stacks.txt", ["stacks", f"{taking.within / 2:g}", *every[:100]]),
        ("environment.txt", ["environment", *firsts]),
    ]
    return [
        *(processes if every else []),
        *containers,
        ("network.txt", ["network", *taking.peers]),
        ("timers.txt", ["sockets"]),
        ("ras.txt", ["ras"]),
        ("kernel.txt", ["kernel"]),
        ("gpus.txt", ["gpus"]),
        ("machine.txt", ["machine", taking.node.facts.run_dir or "/"]),
    ]


async def _part(taking: _Taking, name: str, words: Sequence[str]) -> None:
    try:
        result = await _call(taking.runner, words, taking.within)
    except BasculeError as trouble:
        taking.missing[name] = trouble.seen or trouble.says
        return
    if result.timed_out:
        taking.missing[name] = f"not read to its end within {taking.within:g} s"
    elif not result.stdout:
        taking.missing[name] = result.complaint
    if result.stdout:
        text = result.stdout[:LARGEST].decode(errors="replace")
        taking.parts[name] = _HEXADECIMAL.sub(_dotted, text) if name == "network.txt" else text


async def _call(runner: Runner, words: Sequence[str], within: float) -> Result:
    script = resources.files("bascule.watch").joinpath("capture.sh").read_text()
    return await runner.run(("sh", "-s", "--", *words), stdin=script, within=within)


def _dotted(found: re.Match[str]) -> str:
    """An address as /proc/net/route prints it: so that it can be read, and masked where it must be."""
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(found[0])))


def _write(place: Path, name: str, text: str, secrets: Iterable[str]) -> Path:
    path = place / name
    path.write_text(_masked(name, text, secrets))
    return path


def _masked(name: str, text: str, secrets: Iterable[str]) -> str:
    """JSON is masked as what it says; what should be JSON and is none, as text."""
    if name.endswith(".json"):
        try:
            return hide_secrets(json.dumps(hide_in_plain(json.loads(text)), indent=1), secrets)
        except ValueError:
            return hide_secrets(text, secrets)
    return hide_secrets(text, secrets)


def _secrets_of(taking: _Taking) -> set[str]:
    """Values of secret variables in environments and containers, to be hidden wherever they stand."""
    lines = taking.parts.get("environment.txt", "").splitlines()
    for part, text in taking.parts.items():
        if part.endswith(".json"):
            lines += [match[1] for match in re.finditer(r'^\s*"([A-Za-z_]\w*=[^"\n]*)",?$', text, re.MULTILINE)]
    return secret_values(dict(line.partition("=")[::2] for line in lines if "=" in line))


def _socket_lines(samples: Sequence[Sample]) -> str:
    rows = [(one.rank, socket) for one in samples for socket in one.sockets or ()]
    return "".join(f"rank {rank} {one.state} {one.local} {one.remote}".rstrip() + "\n" for rank, one in rows)


def _peers(node: Node, nodes: Sequence[Node]) -> list[str]:
    others = [one for one in nodes if one.name != node.name]
    found = [ip for one in others for ip in (one.address, *(address.ip for address in one.facts.addresses)) if ip]
    return [ip for ip in dict.fromkeys(found) if not ip.startswith("127.")]


def _new_folder(folder: Path) -> Path:
    """capture1, capture2, …: what was taken earlier is kept."""
    for number in range(1, 1000):
        place = folder / f"capture{number}"
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            continue
        return place
    raise FileExistsError(f"{folder} has a thousand captures")


def _plain(name: str) -> str:
    """A node's name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80] or "node"
