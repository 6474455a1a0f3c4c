"""Gathers what the checks ask for and gives the first finding that isn't OK."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from bascule.core.layout import own_address
from bascule.core.nouns import Evidence, Fate, Finding, Node, Step
from bascule.preflight.checks import Listener, gpus_are_there, ports_are_free, run_folder_has_space
from bascule.preflight.listeners import read_listeners
from bascule.remote.connect import Runners


async def preflight(nodes: Sequence[Node], runners: Runners, ports: Sequence[tuple[str, int]]) -> Finding:
    """Check the nodes of one start, head first; ports are (recipe key, number) that the head will listen on."""
    at = datetime.now(UTC)
    if trouble := facts_allow_it(nodes, at):
        return trouble
    head = nodes[0]
    listening = await read_listeners(runners[head.name], [port for _, port in ports])
    if trouble := ports_are_free(head, own_address(head) or "", ports, listening or (), at):
        return trouble
    seen = Evidence(head.name, "/proc/net/tcp, df", at, _seen(listening, ports))
    unread = [node.name for node in nodes if node.facts.run_dir_free_bytes is None]
    says = "the ports could not be looked at" if listening is None else "the ports are free"
    says += "" if unread else ", the nodes have room"
    says += f"; free disk could not be read on {', '.join(unread)}" if unread else ""
    return Finding(Step.PREFLIGHT, Fate.OK, "nodes-ready", says, (seen,))


def facts_allow_it(nodes: Sequence[Node], at: datetime) -> Finding | None:
    """What facts alone say against a start: no room for run folders, a GPU that is not there."""
    for node in nodes:
        if trouble := run_folder_has_space(node, at) or gpus_are_there(node, at):
            return trouble
    return None


def _seen(listening: Sequence[Listener] | None, ports: Sequence[tuple[str, int]]) -> str:
    if listening is None:
        return "/proc/net/tcp can't be read"
    return f"{len(listening)} listeners, none on {', '.join(str(port) for _, port in ports)}"
