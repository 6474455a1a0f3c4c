"""The page of `bascule plan`: what is known, as shell comments, and the commands: all of it can be pasted (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bascule.core.cost import Cost, Lack
from bascule.core.plain import to_plain
from bascule.core.units import rate
from bascule.show.prologue import fit_text
from bascule.show.say import Plain
from bascule.show.story import Narrator

if TYPE_CHECKING:
    from bascule.operate.memory import Took
    from bascule.plan import Plan, Planned


def plan_lines(plan: Plan) -> list[str]:
    """Nodes, addresses, model and verdicts, what is held back, then each candidate with its fit, cost and commands."""
    narrator = Narrator()
    lines = [_comment(say.label, say.text) for event in plan.events for say in narrator.tell(event)]
    lines += [_comment("asks", _held(row)) for row in plan.held]
    for number, one in enumerate(plan.candidates, 1):
        lines += ["", *(_comment(label, text) for label, text in _about(number, one)), *one.commands]
    return lines


def _held(row: Plain) -> str:
    """An image of somebody who is not known here."""
    return f"{row['names'][0]}: {row['because']}; --trust {row['publisher'].removeprefix('docker.io/')} takes it"


def _about(number: int, one: Planned) -> Iterator[tuple[str, str]]:
    seen = one.finding.evidence[0]
    yield str(number), f"{one.candidate.name}   {'would be tried' if one.tried else 'NOT tried'}: {one.because}"
    yield "  seen", f"{seen.node}  {seen.source}"
    if not one.tried and one.finding.advice:
        yield "  try", one.finding.advice
    if one.fitness and (one.tried or one.cost):
        yield "  fits", fit_text(to_plain(one.fitness)) or f"unknown: {one.fitness.unknown}"
    if one.cost:
        yield from (("  cost", text) for text in cost_lines(one.cost))
    if one.tried:
        yield "  start", took_text(one.took)
    for change in one.changes:
        yield "  change", f"{change.change}   ({change.code}: {change.says})"
    yield from (("  asks", text) for text in one.asks)


def cost_lines(cost: Cost) -> list[str]:
    """What each node lacks, then all of it with the time."""
    if cost.unknown:
        return [f"unknown: {cost.unknown}"]
    if not cost.lacks:
        return ["nothing has to be copied"]
    return [*(_lack(one) for one in cost.lacks), *_together(cost)]


def took_text(took: Took | None) -> str:
    """How long the same start took, where it came up before."""
    return f"took {_time(took.seconds)} in run {took.run}" if took else "how long it takes here is not known yet"


def traffic(count: int) -> str:
    """Bytes that travel, in decimal units."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def _lack(one: Lack) -> str:
    way = f"{one.node} lacks the {one.what}, and gets it from {one.source}"
    if one.bytes is None:
        return f"{way}: its size is not known ({one.unknown})"
    return f"{way}: {'at most ' if one.at_most else ''}{traffic(one.bytes)}{', at an unknown rate' * one.registry}"


def _together(cost: Cost) -> Iterator[str]:
    """Time is told for what nodes give each other: targets take at once."""
    if cost.seconds is not None and cost.rate:
        least = "" if cost.at_most else "at least "
        yield f"between the nodes {least}{_time(cost.seconds)} at {rate(cost.rate)}, one TCP stream"
    elif any(not one.registry for one in cost.lacks):
        yield "between the nodes at an unknown rate"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def _comment(label: str, text: str) -> str:
    """One line that a shell leaves alone, whatever the text holds."""
    return f"# {label:<10} {' '.join(text.split(chr(10)))}".replace("\r", " ").rstrip()
