"""A notice: what a person should know of a node or of several, and that is no verdict about a candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bascule.core.nouns import Evidence

# unknown: it could not be checked; blocker: a start would fail of it.
Weight = Literal["note", "unknown", "warning", "blocker"]


@dataclass(frozen=True, slots=True)
class Notice:
    """An opinion about nodes that rests on evidence; only a blocker keeps anything from being tried."""

    node: str  # "" = it is about several together
    code: str  # searchable words, a page in docs/findings
    says: str  # one sentence
    evidence: tuple[Evidence, ...]
    weight: Weight = "warning"
    advice: str = ""  # what a person could do

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"notice {self.code} has no evidence")
