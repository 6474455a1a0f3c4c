"""What an engine is to bascule: command lines per rank, where it answers, and the phases of its log."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Protocol

from bascule.core.layout import Place, Start
from bascule.core.nouns import Candidate, Endpoint, RankPlan, Setting

DUMMY = "dummy"  # the load format of weights that are made up; vLLM and SGLang call it so
READY = "ready"  # the phase in which the engine itself says that it serves


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a start: it begins at a line of the log that matches, and may last so many seconds."""

    name: str
    begins: re.Pattern[str] | None  # None: begins with the process
    within_s: float
    next: str = ""  # the step that comes next in the normal order, in words
    progress: re.Pattern[str] | None = None  # groups `percent`, or `done` and `all`: how far a bar of this phase is
    waits: bool = False  # only the peers can move it on: CPU time proves nothing here
    head_only: bool = False  # only the head goes through it
    quiet_s: float = 0.0  # how long it may show no movement at all and still be well
    spin_s: float = 600.0  # how long CPU time alone may move, with memory flat, before it is called spinning


@dataclass(frozen=True, slots=True)
class Lore:
    """Facts about an engine that live in a data file beside the code."""

    name: str
    source: str
    packages: tuple[str, ...]  # names of the distribution on a package index
    aliases: Mapping[str, str]  # short spelling of a flag -> the one we use
    phases: tuple[Phase, ...]
    host_ip: str = ""  # the variable that says which address its own queues advertise; "" = there is none
    load_format: str = ""  # the flag that says how it gets its weights; "" = there is none


class Engine(Protocol):
    """How one engine is started over the nodes of a Start."""

    @property
    def lore(self) -> Lore:
        """Its facts."""
        ...

    @property
    def spans_nodes(self) -> bool:
        """True when one model may be spread over several nodes."""
        ...

    def ranks(self, start: Start) -> tuple[RankPlan, ...]:
        """The exact words of each rank."""
        ...

    def endpoint(self, start: Start) -> Endpoint:
        """Where it will answer."""
        ...


@cache
def read_lore(name: str) -> Lore:
    """The facts of an engine, from lore/NAME.toml."""
    text = resources.files("bascule.engines").joinpath(f"lore/{name}.toml").read_text()
    raw = tomllib.loads(text)
    phases = tuple(_phase(row) for row in raw["phases"])
    told = {key: raw[key] for key in ("host_ip", "load_format") if key in raw}
    return Lore(name, raw["source"], tuple(raw["packages"]), raw.get("aliases", {}), phases, **told)


def settings_from_words(words: Sequence[str], lore: Lore) -> tuple[Setting, ...]:
    """Engine flags as a person types them -> settings, in the spelling of the lore.

    `--flag value`, `--flag=value` and `--flag` are understood. Raises ValueError at a word that belongs to no flag.
    """
    found: list[Setting] = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            found.append(Setting("flag", lore.aliases.get(name, name), value if equals else ""))
        elif found and found[-1].value == "":
            found[-1] = Setting("flag", found[-1].name, word)
        else:
            raise ValueError(word)
    return tuple(found)


def flags(defaults: Mapping[str, str | None], settings: Iterable[Setting], node: str) -> tuple[str, ...]:
    """The flags of one rank: what bascule sets, overridden by the candidate's settings, in a stable order."""
    merged = _merged(defaults, settings, "flag", node)
    words: list[str] = []
    for name, value in merged.items():
        words += [name] if value == "" else [name, value]
    return tuple(words)


def environment(defaults: Mapping[str, str | None], settings: Iterable[Setting], node: str) -> dict[str, str]:
    """The environment of one rank, on top of what the node itself has."""
    return _merged(defaults, settings, "env", node)


def address_variables(place: Place, *names: str) -> dict[str, str | None]:
    """The variables that tell torch's Gloo and NCCL which interface to use, and others that hold the own address.

    NCCL reads a list of prefixes, so eth1 would be eth10 as well; a "=" before it makes them whole names (NCCL's user
    guide, Environment Variables, 2.19 to 2.29). It chooses the GID index of each port by itself: ports can differ.
    """
    exact = f"={place.interface}" if place.interface else None
    by_interface: dict[str, str | None] = {"GLOO_SOCKET_IFNAME": place.interface, "NCCL_SOCKET_IFNAME": exact}
    return {**dict.fromkeys(names, place.address), **by_interface, **_rdma_variables(place)}


def _rdma_variables(place: Place) -> dict[str, str | None]:
    """The ports that NCCL may use; without any it must not look for some, since those that it finds lead nowhere."""
    if place.hcas is None:
        return {}
    return {"NCCL_IB_HCA": f"={','.join(place.hcas)}"} if place.hcas else {"NCCL_IB_DISABLE": "1"}


def has_dummy_weights(candidate: Candidate, lore: Lore) -> bool:
    """True when the engine makes the weights up: then no answer can be right, and none proves anything."""
    told = [one.value for one in candidate.in_force if (one.kind, one.name) == ("flag", lore.load_format)]
    return told[-1:] == [DUMMY]


def python_of(start: Start) -> str:
    """The interpreter of a candidate: of its Python environment, the one it names, or the one that its image finds."""
    artefact = start.candidate.artefact
    if artefact.python:
        return artefact.python
    return f"{artefact.ref}/bin/python" if artefact.kind == "venv" else "python3"


def _phase(row: Mapping[str, Any]) -> Phase:
    patterns = {key: re.compile(row[key]) for key in ("begins", "progress") if key in row}
    return Phase(**{"begins": None, **row, **patterns})


def _merged(defaults: Mapping[str, str | None], settings: Iterable[Setting], kind: str, node: str) -> dict[str, str]:
    merged = dict(defaults)
    for setting in settings:
        if setting.kind == kind and setting.node in (None, node):
            merged[setting.name] = setting.value
    return {name: value for name, value in merged.items() if value is not None}
