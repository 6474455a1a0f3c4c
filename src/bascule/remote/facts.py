"""What is read from a node once: the commands of all readings as one POSIX script, and their parsers."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Node
from bascule.remote import facts_disks, facts_docker, facts_gpu, facts_links, facts_machine
from bascule.remote.clock import clock_offset
from bascule.remote.reading import Reading
from bascule.remote.runner import Runner

SECTION = "=== "
WITHIN = 25.0  # seconds

READINGS: tuple[Reading, ...] = (  # those that may hang come last, so that the others are read
    *facts_machine.READINGS,
    *facts_links.READINGS,
    *facts_docker.READINGS,
    *facts_disks.READINGS,
    *facts_gpu.READINGS,
)
_CLOCK = "date +%s.%N"


async def read_facts(runner: Runner, node: Node, within: float = WITHIN) -> Node:
    """The node with its facts. Raises NodeUnreachable."""
    sent = time.time()
    result = await runner.run(("sh", "-s", "--", node.run_dir or ""), stdin=script(), within=within)
    received = time.time()
    text, late = result.text, ""
    if result.timed_out:
        text, _, broken = text.rpartition(SECTION)
        late = f"not read within {within:g} s: stopped at {(broken.split() or ['the beginning'])[0]}"
    sections = _sections(text)
    facts = _facts(sections, late or "nothing was printed")
    return replace(node, facts=_with_clock(facts, sections, sent, received))


def script() -> str:
    """All commands, each behind the name of its section; what it asks for is told by the facts it gives."""
    parts = [Reading("clock", _CLOCK), *READINGS, Reading("clock_end", _CLOCK)]
    body = "\n".join(f'echo "{SECTION}{part.section}"\n{part.command.strip()}' for part in parts)
    return f"export LC_ALL=C\n{body}\n"


def parse_facts(text: str) -> NodeFacts:
    """Facts from what the script printed; what is missing or unreadable is named in `unknown`. Never raises."""
    return _facts(_sections(text), "nothing was printed")


def interface_of(facts: NodeFacts, ip: str) -> str | None:
    """The interface that carries this address: by the very address first, else by its network."""
    for address in facts.addresses:
        if address.ip == ip:
            return address.interface
    wanted = ipaddress.ip_address(ip)
    for address in facts.addresses:
        if wanted in ipaddress.ip_network(f"{address.ip}/{address.prefix}", strict=False):
            return address.interface
    return None


def _sections(text: str) -> dict[str, str]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith(SECTION):
            current = sections.setdefault(line.removeprefix(SECTION).strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in sections.items()}


def _facts(sections: Mapping[str, str], missing: str) -> NodeFacts:
    found: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for reading in READINGS:
        text = sections.get(reading.section)
        if text is None:
            unknown |= dict.fromkeys(reading.parsers, missing)
            continue
        for name, parse in reading.parsers.items():
            try:
                found[name] = parse(text)
            except ValueError as trouble:
                unknown[name] = str(trouble)
        unknown |= reading.doubts(text)
    return NodeFacts(**found, unknown=unknown)


def _with_clock(facts: NodeFacts, sections: Mapping[str, str], sent: float, received: float) -> NodeFacts:
    first = sections.get("clock", "")
    bounds = clock_offset(sent, received, first, sections.get("clock_end", first))
    if bounds is None:
        return replace(facts, unknown={**facts.unknown, "clock_offset_s": f"date said {first!r}"})
    return replace(facts, clock_offset_s=bounds[0], clock_error_s=bounds[1])
