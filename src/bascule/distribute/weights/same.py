"""Whether nodes hold the same model at a path, by sizes and checksums of what an engine would read."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bascule.core.nouns import Finding, Node
from bascule.distribute.weights.findings import Complaint, finding, same
from bascule.distribute.weights.station import Refused, open_station
from bascule.remote.connect import Runners

Files = Mapping[str, tuple[int, str]]  # path -> size and checksum


async def same_weights(path: str, nodes: Sequence[Node], runners: Runners) -> Finding:
    """OK when all nodes hold the same content at the path: small files whole, large ones by sampled blocks."""
    seed = secrets.randbelow(1 << 32)
    found = await asyncio.gather(*(_survey(path, node, seed) for node in nodes))
    if trouble := next((each for each in found if isinstance(each, Complaint)), None):
        return finding(trouble)
    files = {node.name: each for node, each in zip(nodes, found, strict=True) if not isinstance(each, Complaint)}
    return compare(path, files, seed, datetime.now(UTC))


def compare(path: str, files: Mapping[str, Files], seed: int, at: datetime) -> Finding:
    """The first difference, or OK (pure)."""
    first, *_ = files
    for name, held in files.items():
        if not held:
            return finding(Complaint("missing", f"there is no model at {path}", "no files", name, path, at))
        if odd := sorted(key for key in files[first].keys() | held.keys() if files[first].get(key) != held.get(key)):
            seen = "\n".join(
                f"{key}: {first} {_words(files[first].get(key))}, {name} {_words(held.get(key))}" for key in odd[:20]
            )
            says = f"the model differs from the one of {first} in {len(odd)} files: {odd[0]}"
            return finding(Complaint("differ", says, seen, name, path, at))
    total = sum(size for size, _ in files[first].values())
    says = f"{len(files[first])} files, {total} bytes; large ones by sampled blocks, seed {seed}"
    return same(", ".join(files), Complaint("same", says, says, first, path, at))


async def _survey(path: str, node: Node, seed: int) -> Files | Complaint:
    try:
        async with open_station(node, path) as station:
            rows = (await station.ask("survey", path=path, seed=seed))["files"]
    except Refused as refused:
        return refused.complaint
    return {name: (size, digest) for name, size, digest in rows}


def _words(held: tuple[int, str] | None) -> str:
    return f"has {held[0]} bytes, {held[1][:20]}" if held else "has none"
