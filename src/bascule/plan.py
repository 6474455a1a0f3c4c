"""What `bascule up` would do, told before anything is done: the same stages over Runners that only tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bascule.core.decide import decide
from bascule.core.nouns import Attempt, Candidate, Finding, Try
from bascule.core.plain import MASK, is_secret
from bascule.journal import Journal
from bascule.launch import start as ranks
from bascule.remote.connect import tellers
from bascule.request import Request
from bascule.stages import Bound
from bascule.up import bind, look_around


@dataclass(frozen=True, slots=True)
class Planned:
    """A candidate as it would be tried: what is known of it, and the commands of its start."""

    candidate: Candidate
    finding: Finding
    tried: bool  # False: refused before any start
    because: str
    commands: tuple[str, ...]


async def plan(request: Request, journal: Journal, note: Callable[..., None]) -> list[Planned]:
    """Read everything, start nothing: candidates in the order in which they would be tried."""
    known = await look_around(request, journal, note)
    stages = bind(known, request, journal, 0, lambda _: None, note)
    attempts = await stages.assess()
    return [await _planned(stages, attempt) for attempt in attempts]


async def _planned(stages: Bound, attempt: Attempt) -> Planned:
    verdict = decide([attempt.candidate], [attempt], budget=stages.budget)
    if not isinstance(verdict, Try):
        return Planned(attempt.candidate, attempt.finding, False, attempt.finding.says, ())
    told: list[str] = []
    telling = tellers(stages.nodes.values(), told.append)
    await ranks.start(stages.plan_of(attempt.candidate), "plan", stages.nodes, telling)
    return Planned(
        attempt.candidate,
        attempt.finding,
        True,
        verdict.because,
        tuple(_masked(text, attempt.candidate) for text in told),
    )


def _masked(command: str, candidate: Candidate) -> str:
    """The command without the values of secret settings."""
    for setting in candidate.in_force:
        if setting.value and is_secret(setting.name):
            command = command.replace(setting.value, MASK)
    return command
