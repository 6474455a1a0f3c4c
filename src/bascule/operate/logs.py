"""The logs of all ranks of a service as one stream, read from the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from bascule.core.nouns import Node, RankState
from bascule.launch import start as ranks
from bascule.launch.runtime import RUNTIMES
from bascule.operate.services import Service, reach
from bascule.remote.connect import Runners

LOOK_EVERY = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Line:
    """One line of one rank."""

    rank: int
    node: str
    text: str


@dataclass
class _Cursor:
    state: RankState
    node: Node
    name: str
    at: str = ""  # where the log was left
    rest: bytes = b""


async def lines(service: Service, *, follow: bool) -> AsyncIterator[Line]:
    """The lines of the newest start, rank by rank as they come; with follow until the last rank has ended."""
    nodes, runners, unreachable = await reach(service.nodes)
    if unreachable:
        raise unreachable[0]
    cursors = await _cursors(service, nodes, runners)
    while cursors:
        gained, alive = await _look(cursors, runners)
        for line in gained:
            yield line
        if not gained:
            if not (follow and alive):
                break
            await asyncio.sleep(LOOK_EVERY)
    for cursor in cursors:
        if cursor.rest:  # a last line without its end
            yield Line(cursor.state.rank, cursor.state.node, cursor.rest.decode(errors="replace"))


async def _cursors(service: Service, nodes: list[Node], runners: Runners) -> list[_Cursor]:
    per_node = [(node, await ranks.find([node], runners, service.name)) for node in nodes]
    newest = max(((s.started_at or 0, s.generation) for _, found in per_node for s in found), default=None)
    cursors: dict[str, _Cursor] = {}
    for node, found in per_node:
        for state in found:
            name = ranks.name_of(state)
            if newest and state.generation == newest[1]:
                cursors.setdefault(f"{state.node} {name}", _Cursor(state, node, name))
    return list(cursors.values())


async def _look(cursors: list[_Cursor], runners: Runners) -> tuple[list[Line], bool]:
    gained: list[Line] = []
    alive = False
    for cursor in cursors:
        runtime = RUNTIMES[cursor.state.runtime]
        for glimpse in await runtime.observe(runners[cursor.node.name], cursor.node, {cursor.name: cursor.at}):
            alive = alive or glimpse.alive
            cursor.at = glimpse.cursor
            *whole, cursor.rest = (cursor.rest + glimpse.gained).split(b"\n")
            gained += [Line(cursor.state.rank, cursor.state.node, raw.decode(errors="replace")) for raw in whole]
    return gained, alive
