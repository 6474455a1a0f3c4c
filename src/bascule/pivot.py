"""The main loop, read this first: decide, try, learn, until a candidate answers correctly or none is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from bascule.core.decide import decide
from bascule.core.nouns import Attempt, Candidate, Fate, Finding, Try, Verdict

Stage = Callable[[Candidate], Awaitable[Finding]]


class Stages(Protocol):
    """What the loop can have done; stages.py does it for real."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """In the order of preference."""
        ...

    @property
    def budget(self) -> int:
        """How many starts this run may spend."""
        ...

    @property
    def note(self) -> Callable[..., None]:
        """Writes an event into the journal."""
        ...

    async def assess(self) -> list[Attempt]:
        """What the probe finds about every candidate, before anything is started."""
        ...

    async def adopt(self) -> Candidate | None:
        """The candidate whose ranks an earlier bascule left running, taken over."""
        ...

    @property
    def way(self) -> Sequence[Stage]:
        """The stages of one attempt, in order: preflight, distribute, launch, watch, verify."""
        ...

    async def clear_away(self, candidate: Candidate) -> None:
        """Keep the evidence and stop whatever this attempt started."""
        ...


async def pivot(stages: Stages) -> tuple[Verdict, list[Attempt]]:
    """Try candidates until one serves: Serve means that it runs and has answered correctly."""
    attempts = await stages.assess()
    if adopted := await stages.adopt():
        attempts.append(await attempt(stages, adopted, stages.way[-2:]))
    while True:
        verdict = decide(stages.candidates, attempts, budget=stages.budget)
        if not isinstance(verdict, Try):
            return verdict, attempts
        stages.note("try", candidate=verdict.candidate, because=verdict.because)
        attempts.append(await attempt(stages, verdict.candidate, stages.way))


async def attempt(stages: Stages, candidate: Candidate, way: Sequence[Stage]) -> Attempt:
    """Take a candidate through the stages; the first finding that isn't OK ends it, and nothing is left running."""
    for stage in way:
        finding = await stage(candidate)
        stages.note("finding", candidate=candidate, finding=finding)
        if finding.fate is not Fate.OK:
            await stages.clear_away(candidate)
            break
    return Attempt(candidate, finding)
