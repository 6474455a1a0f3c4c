"""The memory that ranks get on nodes: by their facts, or of machines that nobody has yet (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bascule.core.fit import Kind, Room
from bascule.core.machine import Gpu, NodeFacts
from bascule.core.nouns import Node
from bascule.discover.hardware import GpuModel, gpu_model, link, reserved


def rooms_of(nodes: Sequence[Node]) -> list[Room]:
    """The memory of each of these nodes, and how many of them share it: nodes of one machine with the same GPUs."""
    return [replace(room_of(node), sharers=sum(_share(node, other) for other in nodes)) for node in nodes]


def room_of(node: Node) -> Room:
    """The memory of one rank on this node, by its facts."""
    facts = node.facts
    if facts.gpus is None:
        return Room(node.name, 1, None, unknown=_why(facts, "gpus", "its GPUs were not read"))
    if not facts.gpus:
        return _of_machine(node.name, 1, facts, "ram", "CPU")
    mine = [gpu for gpu in facts.gpus if node.gpus is None or gpu.index in node.gpus]
    if not mine:
        return Room(node.name, 1, None, unknown="it has none of the GPUs that the recipe gives it")
    model = gpu_model(mine[0].name)
    if model.unified if model else facts.unified:
        return _with_speed(_of_machine(node.name, len(mine), facts, "unified", mine[0].name), model)
    return _with_speed(_of_gpus(node.name, mine, facts), model)


def imagined(node: str, model: GpuModel, name: str, gpus: int) -> Room:
    """The memory of a machine with such GPUs, where nothing else runs."""
    total = model.memory_bytes - (0 if model.unified else reserved())
    return _with_speed(Room(node, gpus, total, None, "unified" if model.unified else "vram", name), model)


def _share(one: Node, other: Node) -> bool:
    if one is other:
        return True
    if not one.facts.machine_id or one.facts.machine_id != other.facts.machine_id:
        return False
    if one.facts.unified or not one.facts.gpus or one.gpus is None or other.gpus is None:
        return True
    return bool(set(one.gpus) & set(other.gpus))


def _of_machine(name: str, gpus: int, facts: NodeFacts, kind: Kind, device: str) -> Room:
    if facts.memory_bytes is None:
        return Room(name, gpus, None, None, kind, device, _why(facts, "memory_bytes", "its memory was not read"))
    return Room(name, gpus, facts.memory_bytes, facts.memory_free_bytes, kind, device)


def _of_gpus(name: str, gpus: Sequence[Gpu], facts: NodeFacts) -> Room:
    """The smallest and the fullest of them decide."""
    sizes = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes is not None]
    if len(sizes) < len(gpus):
        says = _why(facts, "gpus", "the memory of its GPUs was not told")
        return Room(name, len(gpus), None, None, "vram", gpus[0].name, says)
    free = [gpu.memory_free_bytes for gpu in gpus if gpu.memory_free_bytes is not None]
    known = min(free) if len(free) == len(gpus) else None
    total = min(sizes) - reserved()
    return Room(name, len(gpus), total, None if known is None else min(known, total), "vram", gpus[0].name)


def _with_speed(room: Room, model: GpuModel | None) -> Room:
    """With what the table of GPUs says of its speed."""
    return replace(room, bandwidth=model.bandwidth, inside=link(model.link)) if model else room


def _why(facts: NodeFacts, field: str, otherwise: str) -> str:
    return facts.unknown.get(field, otherwise)
