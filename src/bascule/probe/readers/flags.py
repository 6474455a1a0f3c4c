"""Flags: which ones a start has, which ones a release knows, and whether a value is among those it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bascule.core.layout import API_PORT, RENDEZVOUS_PORT, Place, Start
from bascule.core.nouns import Candidate
from bascule.core.reading import Spot
from bascule.engines.base import settings_from_words
from bascule.engines.catalogue import ENGINES
from bascule.probe.values import Answer, Table, ask


def asked(candidate: Candidate) -> dict[str, str]:
    """Each flag of a start and its value ("" for none): the candidate's own, and bascule's for several nodes."""
    found = {s.name: s.value for s in candidate.in_force if s.kind == "flag"}
    engine = ENGINES.get(candidate.engine)
    if engine and len(candidate.nodes) > 1:
        # The addresses and ports are only there to have the words written; flags don't depend on them.
        places = tuple(Place(node, "192.0.2.1", None) for node in candidate.nodes)
        for rank in engine.ranks(Start("", candidate, places, API_PORT, RENDEZVOUS_PORT, "model", None)):
            first = next(place for place, word in enumerate(rank.argv) if word.startswith("--"))
            found |= {s.name: s.value for s in settings_from_words(rank.argv[first:], engine.lore)}
    return {name: value for name, value in found.items() if value is not None}


def answers(
    wanted: Mapping[str, str], known: Table, values: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Answer]:
    """For each flag whether the release has it, and where its values are known, whether it has that one.

    `known` maps each flag to whether it has a --no- form (None: can't be told); `values` maps a flag to a table of what
    it takes; `facts` is the table [flags] of data/engines.
    """
    found: dict[str, Answer] = {}
    for flag, value in wanted.items():
        found[flag] = _has(flag, known, facts)
        if found[flag].yes and value and flag in values:
            found[f"{flag} {value}"] = _takes(flag, value, values[flag], [p for p in facts["plugins"] if p in wanted])
    return found


def _has(flag: str, known: Table, facts: Mapping[str, Any]) -> Answer:
    name = _spelled(flag) if facts["underscores"] else flag
    answer = ask(known, name, "the list of its flags")
    if answer.yes:
        return answer
    plain = f"--{name.removeprefix('--no-')}"
    if name.startswith("--no-") and known.entries.get(plain, False) is not False:
        spot = known.spots[plain]
        return Answer(True, (spot,)) if known.entries[plain] else Answer(None, (spot,), f"{plain} may be no boolean")
    longer = [other for other in known.entries if other.startswith(name)] if name.startswith("--") else []
    if len(longer) == 1:  # argparse takes the beginning of a name that fits one
        return Answer(True, (known.spots[longer[0]],), f"it is taken as {longer[0]}")
    if answer.yes is None:
        return answer
    return Answer(False, (Spot(known.where.path, None, f"no {name} among {len(known.entries)} flags"),))


def _spelled(flag: str) -> str:
    """As vLLM reads a flag: dashes for underscores up to the first dot; what follows that is a key of its JSON."""
    if flag.startswith("-O") and flag != "-O":
        return "--optimization-level" if flag[2:].lstrip("=").isalnum() else "-O"
    head = flag.partition(".")[0]
    return f"--{head[2:].replace('_', '-')}" if head.startswith("--") else head


def _takes(flag: str, value: str, table: Any, plugins: Sequence[str]) -> Answer:
    answer = ask(table, value, f"the values of {flag}")
    if answer.yes is False and plugins:
        return Answer(None, answer.seen, f"{', '.join(plugins)} may bring {value}")
    if answer.yes is False and isinstance(table, Table):
        return Answer(
            False, (Spot(table.where.path, table.where.line, f"no {value} among {len(table.entries)} values"),)
        )
    return answer
