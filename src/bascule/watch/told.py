"""What the log of one rank tells: how far it came, what went wrong, and its last words (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bascule.watch.catalogue import Failure
from bascule.watch.phases import Progress
from bascule.watch.records import Line


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that one rank said of what went wrong."""

    line: Line
    at: float | None  # seconds, see prefixes.py
    step: int  # the phase it was in, counted from 0
    process: str
    raised: bool
    quiet: bool  # logged as a warning or less
    failure: Failure | None = None
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_strong(self) -> bool:
        """True when it can have ended a start by itself; else it counts only where nothing strong was said."""
        if self.failure is None:
            return self.raised
        return not (self.quiet or self.failure.weak or self.failure.kind in ("degraded", "evidence"))


@dataclass(frozen=True, slots=True)
class Step:
    """The rank came into a phase."""

    index: int
    line: int
    at: float | None
    process: str


@dataclass(frozen=True, slots=True)
class Told:
    """What the log of one rank tells."""

    name: str
    engine: str | None
    progress: Progress | None
    steps: tuple[Step, ...] = ()
    is_worker: bool = False
    troubles: tuple[Trouble, ...] = ()  # neither consequences nor harmless, in the order of their lines
    cascades: int = 0
    consequences: tuple[Trouble, ...] = ()
    stop: Trouble | None = None  # the first word of an ordered end
    degraded: tuple[Trouble, ...] = ()
    newest: Line | None = None
    newest_at: float | None = None
    notice: Trouble | None = None  # the last of those that repeat themselves after the newest line
    notices: int = 0
    began: float | None = None
    said: Mapping[str, int] = field(default_factory=dict)  # pattern of a `when` -> the last line that has it

    @property
    def step(self) -> int:
        """The phase it is in at the end, counted from 0."""
        return self.progress.index if self.progress else 0

    @property
    def ready(self) -> Step | None:
        """When the engine said that it serves."""
        if self.progress is None or not self.progress.is_ready:
            return None
        return self.steps[-1]

    def phase_of(self, step: int) -> str:
        """The name of a phase; "" where the engine's phases are not known."""
        return self.progress.phases[step].name if self.progress else ""
