"""A run told from its events, line by line: brief while it happens, whole for `bascule why` (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bascule.journal import Event
from bascule.show import prologue
from bascule.show.say import Plain, Say, evidence


@dataclass
class Narrator:
    """Turns events into lines; remembers what it needs from earlier ones."""

    whole: bool = False  # evidence, command lines and times as well
    numbers: dict[str, int] = field(default_factory=dict)
    current: str = ""
    budget: int = 0
    phases: dict[str, str] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)  # what was told of the memory last
    began: datetime | None = None
    start_began: datetime | None = None
    starts: int = 0

    def tell(self, event: Event) -> list[Say]:
        """The lines for one event; kinds that nobody needs to see give none."""
        self.began = self.began or event.at
        teller = _TELLERS.get(event.kind)
        lines = list(teller(self, event)) if teller else []
        if not self.whole:
            return lines
        after = f"+{(event.at - self.began).total_seconds():7.1f}"
        return [Say(f"{after if at == 0 else '':>8}  {say.label}", say.text, say.tone) for at, say in enumerate(lines)]

    def number_of(self, candidate: Plain) -> int:
        """The place of a candidate in the list, from 1."""
        return self.numbers.setdefault(candidate["name"], len(self.numbers) + 1)


def _try(story: Narrator, event: Event) -> Iterator[Say]:
    candidate = event.data["candidate"]
    story.starts += 1
    story.start_began = event.at
    story.phases.clear()
    because = event.data["because"]
    of = f" of {story.budget}" if story.budget else ""
    if because.startswith("one change: "):
        yield Say("  change", f"{because.removeprefix('one change: ')}   (start {story.starts}{of})", "strong")
        return
    yield Say(f"{story.number_of(candidate)}", f"{candidate['name']}   {candidate['artefact']['ref']}", "strong")
    if story.whole:
        yield Say("  because", because)


def _copying(story: Narrator, event: Event) -> Iterator[Say]:
    data = event.data
    share = f"{100 * data['done'] / data['total']:.0f} %" if data["total"] else ""
    rate = f"{data['rate'] / 1e6:,.0f} MB/s" if data["rate"] else ""
    yield Say("  copy", f"{data['what']} → {data['target']}  {data['phase']}  {share}  {rate}".rstrip(), "dim")


def _copied(story: Narrator, event: Event) -> Iterator[Say]:
    for target, one in event.data["outcomes"].items():
        told = one.get("failed") or f"{one['sent'] / 1e6:,.1f} MB in {one['seconds']:.1f} s, verified"
        yield Say("  copied", f"{event.data['what']}  {event.data['source']} → {target}  {told}")


def _launch(story: Narrator, event: Event) -> Iterator[Say]:
    if not story.whole:
        return
    for rank in event.data["ranks"]:
        env = " ".join(f"{name}={shlex.quote(value)}" for name, value in rank["env"].items())
        yield Say("  rank", f"{rank['rank']} on {rank['node']}: {env} {shlex.join(rank['argv'])}", "dim")


def _phase(story: Narrator, event: Event) -> Iterator[Say]:
    rank, node, phase = event.data["rank"], event.data["node"], event.data["phase"]
    story.phases[f"{rank}"] = phase
    yield Say("  start", f"{node}  rank {rank}  {phase}", "dim")


def _rank_ended(story: Narrator, event: Event) -> Iterator[Say]:
    yield Say("  ended", f"{event.data['node']}  rank {event.data['rank']}  {event.data['how']}", "bad")


def _finding(story: Narrator, event: Event) -> Iterator[Say]:
    finding = event.data["finding"]
    step, fate = finding["step"], finding["fate"]
    if fate == "ok":
        if step == "watch":
            yield Say("  ready", f"{_since(story, event)}", "good")
        elif step == "verify":
            yield Say("  verify", finding["says"], "bad" if finding["code"] == "not-verified" else "good")
        elif story.whole:
            yield Say(f"  {step}", finding["says"])
    else:
        word = {"verify": "WRONG", "watch": "FAILED"}.get(step, "no")
        yield Say(f"  {step}", f"{word}  {finding['code']}: {finding['says']}", "bad")
        if finding["advice"]:
            yield Say("     try", finding["advice"])
    if story.whole or fate != "ok":
        yield from evidence(finding)


def _stopped(story: Narrator, event: Event) -> Iterator[Say]:
    ranks = ", ".join(f"rank {rank['rank']} on {rank['node']}" for rank in event.data["ranks"])
    if ranks:
        yield Say("  stopped", f"{ranks}   ({event.data['because']})", "dim")
    for left in event.data.get("left", []):
        yield Say("  LEFT", f"{left}; `bascule down` tries again", "bad")


def _adopted(story: Narrator, event: Event) -> Iterator[Say]:
    candidate = event.data["candidate"]
    story.start_began = event.at
    ranks = ", ".join(f"rank {rank['rank']} on {rank['node']}" for rank in event.data["ranks"])
    yield Say("adopted", f"{candidate['name']}: {ranks}, started by run {event.data['generation']}", "strong")


def _served(story: Narrator, event: Event) -> Iterator[Say]:
    endpoint = event.data["endpoint"]
    verified = event.data.get("verified", True)
    told = "" if verified else "   (dummy weights: not verified)"
    yield Say("serving", f"{endpoint['url']}   model {endpoint['model']}{told}", "good" if verified else "bad")


def _speed(story: Narrator, event: Event) -> Iterator[Say]:
    speed, bound = event.data["speed"], event.data.get("bound") or {}
    if not speed:
        return
    rate = speed["tokens_per_s"]
    least = "at least " if speed.get("cut") else ""  # a chunk may have several tokens
    words = [f"{least}{rate:.1f} tok/s at batch 1"]
    if most := bound.get("tok_s"):
        words.append(
            f"{100 * rate / most:.0f} % of the bound ({most:.0f} tok/s, {bound['exchanges']} exchanges a token)"
        )
    yield Say("speed", " · ".join([*words, f"first token after {speed['ttft_s']:.2f} s", *_why_least(speed)]))


def _why_least(speed: Mapping[str, Any]) -> list[str]:
    return [f"measured on {speed['tokens']} pieces of an answer that was not over in time"] if speed.get("cut") else []


def _gave_up(story: Narrator, event: Event) -> Iterator[Say]:
    yield Say("gave up", event.data["because"], "bad")


def _interrupted(story: Narrator, event: Event) -> Iterator[Say]:
    yield Say("interrupted", "", "bad")
    yield from _stopped(story, event)
    if not event.data["ranks"] and not event.data["left"]:
        yield Say("", "nothing was running", "dim")


def _error(story: Narrator, event: Event) -> Iterator[Say]:
    if story.whole:
        yield Say("error", f"{event.data['code']}: {event.data['says']}", "bad")
        yield from (Say("   seen", line) for line in event.data["seen"].splitlines())


def _down(story: Narrator, event: Event) -> Iterator[Say]:
    ranks = ", ".join(f"rank {rank['rank']} on {rank['node']}" for rank in event.data["ranks"])
    yield Say("down", f"stopped {ranks}" if ranks else "nothing was running")


def _ended(story: Narrator, event: Event) -> Iterator[Say]:
    if story.whole and story.began:
        yield Say("ended", f"exit {event.data['status']} after {(event.at - story.began).total_seconds():.1f} s")


def _notice(story: Narrator, event: Event) -> Iterator[Say]:
    notice = event.data["notice"]
    if story.whole or notice["weight"] != "note":
        yield Say("  notice" if story.starts else "notice", f"{notice['code']}: {notice['says']}", "dim")


def _standing(story: Narrator, event: Event) -> Iterator[Say]:
    """What a start does that prints nothing: still well when it is slow, not any more when it stands still."""
    verdict, says = event.data["verdict"], event.data["says"]
    yield Say("  slow", f"{says}   (fine)", "dim") if verdict == "SLOW" else Say(f"  {verdict.lower()}", says, "bad")


def _broke(story: Narrator, event: Event) -> Iterator[Say]:
    """What `bascule watch` saw of a service that had been serving."""
    finding = event.data["finding"]
    yield Say("BROKE", f"{finding['code']}: {finding['says']}", "bad")
    if finding["advice"]:
        yield Say("  try", finding["advice"])
    yield from evidence(finding)


def _degraded(story: Narrator, event: Event) -> Iterator[Say]:
    """It serves, and could serve better."""
    yield Say("  degraded", f"{event.data['id']}: {event.data['cause'].partition('. ')[0].rstrip('.')}", "bad")
    yield from (Say("    try", text, "dim") for text in event.data["remedies"][:2])


def _since(story: Narrator, event: Event) -> str:
    seconds = (event.at - story.start_began).total_seconds() if story.start_began else 0.0
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


_TELLERS: Mapping[str, Callable[[Narrator, Event], Iterator[Say]]] = {
    **prologue.TELLERS,
    "try": _try,
    "copying": _copying,
    "copied": _copied,
    "launch": _launch,
    "notice": _notice,
    "phase": _phase,
    "standing": _standing,
    "degraded": _degraded,
    "broke": _broke,
    "rank-ended": _rank_ended,
    "finding": _finding,
    "stopped": _stopped,
    "adopted": _adopted,
    "served": _served,
    "speed": _speed,
    "gave-up": _gave_up,
    "interrupted": _interrupted,
    "error": _error,
    "down": _down,
    "run-ended": _ended,
}
