"""What reading somebody else's files gives: a place with what stands there, or that nothing could be read."""

from __future__ import annotations

from dataclasses import dataclass

EXCERPT = 200  # characters of a line that are kept


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file, and what stands there."""

    path: str  # relative to the root of the view
    line: int | None
    text: str = ""

    @property
    def source(self) -> str:
        """As evidence names it."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


class Unreadable(Exception):
    """Something is there and can't be read, or nothing came back: no answer, which is neither yes nor no."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.spot = Spot(path, None, why[:EXCERPT])
        self.why = why
