"""Examines nodes: all at once, those that don't answer beside those that do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bascule.core.notices import Notice
from bascule.core.nouns import Node
from bascule.errors import BasculeError, NodeTrouble, NodeUnreachable
from bascule.preflight.node_checks import Needs, node_checks
from bascule.remote.clock import measure_clock
from bascule.remote.connect import connect
from bascule.remote.facts import read_facts
from bascule.remote.runner import Runner

if TYPE_CHECKING:
    from bascule.preflight.addresses import Proven


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found: the nodes that answer with their facts, the errors of the others, and what to know of them."""

    asked: tuple[str, ...]  # names, as the person gave them
    nodes: tuple[Node, ...]
    lost: Mapping[str, BasculeError]
    notices: tuple[Notice, ...] = ()
    proven: Proven | None = None  # who tells whom which address; None: not asked for, or fewer than two nodes answer

    @property
    def blocked(self) -> bool:
        """True when a start on these nodes would fail."""
        return any(one.weight == "blocker" for one in self.notices) or bool(self.proven and self.proven.fails)


async def examine(
    nodes: Sequence[Node],
    needs: Needs | None = None,
    prove: Callable[[Sequence[Node]], Awaitable[Proven]] | None = None,
) -> Examination:
    """Read every node and judge what was read; a node that is down keeps nobody from the others.

    `prove` is how several that answer try to reach each other; None leaves it out.
    """
    runners = connect(nodes)
    results = await asyncio.gather(*(_look(runners[node.name], node) for node in nodes))
    there = tuple(result for result in results if isinstance(result, Node))
    lost = {node.name: error for node, error in zip(nodes, results, strict=True) if isinstance(error, BasculeError)}
    notices = node_checks(there, needs or {}, datetime.now(UTC))
    proven = await prove(there) if prove and len(there) > 1 else None
    return Examination(tuple(node.name for node in nodes), there, lost, tuple(notices), proven)


async def _look(runner: Runner, node: Node) -> Node | BasculeError:
    """The facts, and over the connection that is open then, its clock and how long an answer takes."""
    try:
        read = await read_facts(runner, node)
        clock = await measure_clock(runner)
    except (NodeUnreachable, NodeTrouble) as error:
        return error
    if clock is None:
        return read
    return replace(
        read,
        facts=replace(
            read.facts,
            clock_offset_s=clock.offset_s,
            clock_error_s=clock.error_s,
            round_trip_s=clock.round_trip_s,
        ),
    )
