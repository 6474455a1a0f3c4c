"""What a candidate costs before it runs: bytes that nodes lack, and the time that their way takes; frozen data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bascule.core.addresses import Pair
    from bascule.core.nouns import Finding


@dataclass(frozen=True, slots=True)
class Lack:
    """What one node has to take in before a start."""

    node: str
    what: Literal["image", "model"]
    source: str  # the node that gives it, or the host of a registry
    bytes: int | None  # that travel; None: not known, `unknown` says why
    at_most: bool = False  # fewer where the node has some of the layers
    least: int = 0  # bytes that its disk will take up for certain
    registry: bool = False  # it comes from outside, at a rate that nobody has measured
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What is lacking for a candidate; nothing of it was moved."""

    lacks: tuple[Lack, ...] = ()
    rate: float | None = None  # bytes/s between the slowest two nodes, one TCP stream; None: not measured
    refused: Finding | None = None  # why it can't be brought to the nodes, or has no room there
    no_room: bool = False  # refused for a disk that is too small
    unknown: str = ""  # why nothing is known

    @property
    def bytes(self) -> int | None:
        """All that travels; None where one part is not known."""
        sizes = [one.bytes for one in self.lacks]
        return None if self.unknown or None in sizes else sum(size or 0 for size in sizes)

    @property
    def at_most(self) -> bool:
        """True when less may have to travel."""
        return any(one.at_most for one in self.lacks)

    @property
    def seconds(self) -> float | None:
        """The least time for what nodes give each other; targets take at once. None: it can't be told."""
        inside = [one for one in self.lacks if not one.registry]
        if not inside:
            return None if self.lacks or self.unknown else 0.0
        if self.rate is None or any(one.bytes is None for one in inside):
            return None
        loads = [sum(one.bytes or 0 for one in inside if one.node == node) for node in {one.node for one in inside}]
        return max(loads) / self.rate


def slowest(pairs: Sequence[Pair]) -> float | None:
    """The rate of the slowest two nodes, in bytes/s; None where any was not measured."""
    rates = [pair.rate for pair in pairs]
    return None if not rates or None in rates else min(rate for rate in rates if rate is not None)
