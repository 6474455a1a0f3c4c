"""What the nodes lack of a candidate, in bytes, and whether there is room for it: known before a byte moves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from bascule import settings
from bascule.core.cost import Cost, Lack
from bascule.core.machine import Disk
from bascule.core.nouns import Candidate, Fate, Finding, Node
from bascule.core.reading import Unreadable
from bascule.distribute import image, present
from bascule.distribute.images import inventory
from bascule.distribute.images.inventory import Inventory
from bascule.distribute.images.plan import shared_layers
from bascule.distribute.images.pull import described, is_pullable, too_small
from bascule.distribute.present import Holding
from bascule.errors import BasculeError
from bascule.preflight.node_checks import blocker, room
from bascule.registry.access import Access
from bascule.registry.oci import asked_for, reference_of
from bascule.remote.connect import Runners
from bascule.remote.docker import ImageFacts

# Prints what a half copy of the model takes up, then free bytes, mount point and source of the disk that it goes to.
_PLACE = r"""
export LC_ALL=C
near=${1%/*}
part="$near/.${1##*/}.bascule-part"
du -sk "$part" 2>/dev/null | awk '{ printf "%.0f\n", $1 * 1024 }' | grep . || echo 0
while [ -n "$near" ] && ! [ -d "$near" ]; do near=${near%/*}; done
df -Pk "${near:-/}" | tail -n 1 | awk '{ printf "%.0f %s %s\n", $4 * 1024, $6, $1 }'
"""

_PLACES = {"image": "docker", "model": "model"}  # where each lies: the word of node_checks


@dataclass
class Costs:
    """Asks the nodes; what it was told once it does not ask again."""

    nodes: Mapping[str, Node]  # all of the recipe: any of them may have it to give
    runners: Runners
    rate: float | None = None  # bytes/s
    access: Access = field(default_factory=lambda: Access(cache=settings.cache_dir() / "registry"))
    _asked: dict[tuple[str, ...], asyncio.Future[Any]] = field(default_factory=dict)

    async def of(self, candidate: Candidate, nodes: Sequence[Node]) -> Cost:
        """For these nodes, head first. Where it can't be told it says why; only exact figures refuse anything."""
        try:
            images, refused = await self._images(candidate, nodes)
            models, trouble = await self._models(candidate, nodes)
            lacks = (*images, *models)
            against = refused or trouble
            small = await self._too_small(candidate, nodes, lacks) if against is None else None
        except BasculeError as lost:
            return Cost(rate=self.rate, unknown=lost.says)
        if against and against.fate is Fate.UNKNOWN:
            return Cost(lacks, self.rate, unknown=against.says)
        full = small is not None or (refused is not None and refused.code == "image-no-room")
        return Cost(lacks, self.rate, small or against, full)

    async def _images(self, candidate: Candidate, nodes: Sequence[Node]) -> tuple[list[Lack], Finding | None]:
        """What has to be copied or pulled, in that order; and why that can't be."""
        if candidate.artefact.kind != "image":
            return [], None
        everywhere = [node for node in self.nodes.values() if node.facts.docker]
        held, trouble = await self._once(
            ("image", candidate.artefact.ref), image.holdings(candidate, everywhere, self.runners)
        )
        if unable := next((node for node in nodes if node.facts.docker is None), None):
            return [], (await image.holdings(candidate, [unable], self.runners))[1]
        source = next((node for node in (*nodes, *everywhere) if held.get(node.name)), None)
        if source is None:
            return await self._pulled(candidate, nodes)
        theirs = held[source.name]
        wrong = next((bad for node in nodes if (bad := image.for_another_processor(candidate, node, theirs))), None)
        lacking = [node for node in nodes if node is not source and image.differs(held.get(node.name), theirs)]
        return [await self._copied(candidate, node, source, theirs) for node in lacking], wrong or trouble

    async def _copied(self, candidate: Candidate, node: Node, source: Node, theirs: ImageFacts) -> Lack:
        """From another node; exact where no layer is there, and the source's store tells sizes as they are unpacked."""
        if theirs.size is None:
            return Lack(node.name, "image", source.name, None, unknown="its size was not told")
        taken = await self._inventory(candidate, node)
        giver = source.facts.docker
        exact = bool(taken.docker) and not shared_layers(theirs.layers, taken)
        sure = exact and giver is not None and giver.store == "overlay2"
        return Lack(node.name, "image", source.name, theirs.size, not exact, theirs.size if sure else 0)

    async def _pulled(self, candidate: Candidate, nodes: Sequence[Node]) -> tuple[list[Lack], Finding | None]:
        """The head asks the registry, and gives it to the others."""
        ref, head, others = candidate.artefact.ref, nodes[0], nodes[1:]
        if settings.offline() or not is_pullable(ref):
            return [], image.compare(candidate, nodes, {node.name: None for node in nodes})
        name = asked_for(ref)
        host = reference_of(name).host
        try:
            found = await self._once(("registry", name), described(name, head, self.access))
        except Unreadable as trouble:
            lack = Lack(head.name, "image", host, None, registry=True, unknown=trouble.why)
            return [lack, *(Lack(one.name, "image", head.name, None, unknown="its size") for one in others)], None
        taken = await self._inventory(candidate, head)
        size = sum(layer.size for layer in found.layers[shared_layers(found.facts.diff_ids, taken) :])
        sure = size if taken.docker else 0
        lacks = [Lack(head.name, "image", host, size, not taken.docker, sure, registry=True)]
        lacks += [Lack(one.name, "image", head.name, found.size, at_most=True) for one in others]
        return lacks, await too_small(name, head, self.runners[head.name], found.size)

    async def _inventory(self, candidate: Candidate, node: Node) -> Inventory:
        ref = candidate.artefact.ref
        found: Inventory = await self._once(("inventory", ref, node.name), inventory.take(self.runners[node.name], ref))
        return found

    async def _models(self, candidate: Candidate, nodes: Sequence[Node]) -> tuple[list[Lack], Finding | None]:
        """What `bring` would copy, and what would end it there: no engine, no model at all, or one that differs."""
        givers = list(self.nodes.values())
        rows = await asyncio.gather(*(self._holding(candidate, node) for node in givers))
        held = {row.node: row for row in rows}
        found = present.compare(candidate, [held[node.name] for node in nodes], datetime.now(UTC))
        source = next((row for row in rows if row.files), None)
        if source is None or found.code != "weights-missing":
            return [], None if found.fate is Fate.OK else found
        size = sum(_size(line) for line in source.files)
        lacking = [node.name for node in nodes if not held[node.name].files]
        return [Lack(name, "model", source.node, size, least=size) for name in lacking], None

    async def _holding(self, candidate: Candidate, node: Node) -> Holding:
        artefact = candidate.artefact.ref if candidate.artefact.kind == "venv" else "/"
        key = ("holding", artefact, candidate.model, node.name)
        found: Holding = await self._once(key, present.holding(candidate, node, self.runners))
        return found

    async def _too_small(self, candidate: Candidate, nodes: Sequence[Node], lacks: Sequence[Lack]) -> Finding | None:
        """The first node whose disks can't take in what is certain to come."""
        for node in nodes:
            sure = {_PLACES[one.what]: one.least for one in lacks if one.node == node.name and one.least}
            there = node
            if "model" in sure:
                there, half = await self._with_disk(node, candidate.model)
                sure["model"] -= half
            if found := blocker(list(room(there, sure, datetime.now(UTC)))):
                return replace(found, fate=Fate.HOPELESS, scope="candidate")
        return None

    async def _with_disk(self, node: Node, path: str) -> tuple[Node, int]:
        """The node with the disk that the model will lie on, and what a half copy has taken up there already."""
        told = await self._once(
            ("place", path, node.name),
            self.runners[node.name].run(("sh", "-s", "--", path), stdin=_PLACE, within=30),
        )
        lines = told.text.splitlines()
        words = lines[1].split(maxsplit=2) if len(lines) > 1 else []
        if len(words) != 3 or not words[0].isdecimal():
            return node, 0
        disk = Disk("model", path, words[1], int(words[0]), words[2])
        disks = (*(node.facts.disks or ()), disk)
        return replace(node, facts=replace(node.facts, disks=disks)), int(lines[0]) if lines[0].isdecimal() else 0

    async def _once(self, key: tuple[str, ...], work: Coroutine[Any, Any, Any]) -> Any:
        if key in self._asked:
            work.close()
        else:
            self._asked[key] = asyncio.ensure_future(work)
        return await self._asked[key]


def _size(line: str) -> int:
    """Of `SIZE PATH`; what is no such line (the checksum of config.json has three words) counts nothing."""
    size, _, path = line.partition(" ")
    return int(size) if size.isdecimal() and not path.partition(" ")[0].isdecimal() else 0
