"""From nodes to Runners, by how each is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bascule.core.nouns import Node
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Runner
from bascule.remote.ssh import SshRunner
from bascule.remote.tape import TellingRunner

Runners = Mapping[str, Runner]  # by the name of the node


def connect(nodes: Iterable[Node]) -> Runners:
    """A Runner for each node; nothing is opened before the first command."""
    return {node.name: LocalRunner(node) if node.is_local else SshRunner(node) for node in nodes}


def tellers(nodes: Iterable[Node], tell: Callable[[str], None]) -> Runners:
    """Runners that only tell."""
    return {node.name: TellingRunner(node, tell) for node in nodes}
