"""Whether every node of a candidate has its artefact and the same model; copying is added beside this."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bascule.core.nouns import Candidate, Evidence, Fate, Finding, Node, Step
from bascule.remote.connect import Runners

WITHIN = 60  # seconds

# Prints `artefact yes|no`, then each file of the model with its size, links followed, and a checksum of config.json.
# Hidden files are left out: what a download left behind differs from node to node, and no engine reads it.
_SCRIPT = r"""
export LC_ALL=C
sizes() { awk '{ size = $5; for (field = 1; field <= 8; field++) sub(/^[^ ]+ +/, ""); print size, $0 }'; }
[ -e "$1" ] && echo "artefact yes" || echo "artefact no"
if [ -d "$2" ]; then
  cd "$2" && find -L . -name '.?*' -prune -o -type f -exec ls -Ln {} + | sizes | sort -k 2
  if [ -f config.json ]; then cksum config.json; fi
elif [ -f "$2" ]; then ls -Ln "$2" | sizes
fi
"""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one node has of a candidate."""

    node: str
    artefact: bool
    files: tuple[str, ...]  # "SIZE PATH" lines
    trouble: str = ""  # why it could not be read


async def check(candidate: Candidate, nodes: Sequence[Node], runners: Runners) -> Finding:
    """OK when all nodes hold the artefact and the same files of the model."""
    holdings = await asyncio.gather(*(holding(candidate, node, runners) for node in nodes))
    return compare(candidate, holdings, datetime.now(UTC))


def compare(candidate: Candidate, holdings: Sequence[Holding], at: datetime) -> Finding:
    """The first difference, or OK (pure)."""
    first = holdings[0]
    for holding in holdings:
        if holding.trouble:
            says = f"what {holding.node} holds could not be read: {holding.trouble}"
            return _finding(Fate.UNKNOWN, "weights-unread", says, holding, at)
        if not holding.artefact:
            says = f"{holding.node} has no {candidate.artefact.ref}"
            return _finding(Fate.HOPELESS, "artefact-missing", says, holding, at)
        if not holding.files:
            says = f"{holding.node} has no model at {candidate.model}"
            return _finding(Fate.HOPELESS, "weights-missing", says, holding, at)
        if differing := set(first.files) ^ set(holding.files):
            odd = min(differing)
            says = f"the model differs between {first.node} and {holding.node}: {odd}"
            return _finding(Fate.HOPELESS, "weights-differ", says, holding, at)
    return _finding(Fate.OK, "all-there", "every node has the engine and the same model", first, at)


async def holding(candidate: Candidate, node: Node, runners: Runners) -> Holding:
    """What one node has of a candidate."""
    path = candidate.artefact.ref if candidate.artefact.kind == "venv" else "/"  # images are looked at by image.py
    words = ("sh", "-s", "--", path, candidate.model)
    result = await runners[node.name].run(words, stdin=_SCRIPT, within=WITHIN)
    first, *rest = result.text.splitlines() or [""]
    trouble = "" if result.ok else (f"it took more than {WITHIN} s" if result.timed_out else result.complaint)
    return Holding(node.name, first == "artefact yes", tuple(rest), trouble)


def _finding(fate: Fate, code: str, says: str, holding: Holding, at: datetime) -> Finding:
    excerpt = "\n".join(holding.files[:20]) or "no files"
    return Finding(Step.DISTRIBUTE, fate, code, says, (Evidence(holding.node, "find, ls, cksum", at, excerpt),))
