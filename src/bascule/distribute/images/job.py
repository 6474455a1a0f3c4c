"""A copy while it is under way: what is asked, and how it ended for each target so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bascule.core.nouns import Finding, Node
from bascule.distribute.images import troubles
from bascule.distribute.images.content import Receipt
from bascule.distribute.images.progress import CopyProgress
from bascule.remote.connect import Runners


@dataclass
class Job:
    """What all parts of a copy share."""

    image: str
    source: Node
    runners: Runners
    tell: Callable[[CopyProgress], None]
    distrust: bool = False  # the source's folders gave wrong bytes
    hollow: set[str] = field(default_factory=set)  # targets whose store has shared layers without their bytes
    outcomes: dict[str, Receipt | Finding] = field(default_factory=dict)

    def conclude(self, name: str, outcome: Receipt | Finding) -> None:
        """Note how it ended for a target; the last word counts."""
        self.outcomes[name] = outcome

    def fail(self, name: str, code: str, seen: str) -> None:
        """Note a helper's code as the outcome."""
        self.conclude(name, troubles.of_helper(code, seen, name, self.source.name, datetime.now(UTC)))
