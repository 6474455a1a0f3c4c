"""What a rank runs in: a process group on the node, or a container; the same five verbs for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bascule.core.nouns import Glimpse, Node, RankPlan, RankState
from bascule.launch.docker import DockerRuntime
from bascule.launch.venv import VenvRuntime
from bascule.remote.runner import Result, Runner


class Runtime(Protocol):
    """How ranks are started, seen and stopped on one node."""

    async def start(self, runner: Runner, node: Node, name: str, plan: RankPlan, label: Mapping[str, str]) -> Result:
        """Start one rank; a Result that is not ok says in its complaint why nothing was started."""
        ...

    async def observe(self, runner: Runner, node: Node, cursors: Mapping[str, str]) -> list[Glimpse]:
        """One look at ranks; a cursor says where the log was left: "" is its beginning, RECENT near its end."""
        ...

    async def find(self, runner: Runner, node: Node, service: str = "") -> list[RankState]:
        """The ranks of a service, or of all services, that are there now or have ended there."""
        ...

    async def stop(self, runner: Runner, node: Node, names: Sequence[str], grace: int) -> None:
        """End ranks: TERM, and KILL after so many seconds. Raises NodeTrouble when something is left."""
        ...

    async def remove(self, runner: Runner, node: Node, names: Sequence[str]) -> None:
        """Remove what ranks that have ended left behind."""
        ...


RUNTIMES: Mapping[str, Runtime] = {"venv": VenvRuntime(), "image": DockerRuntime()}  # by the kind of artefact
