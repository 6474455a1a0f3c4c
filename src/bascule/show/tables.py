"""Answers of the reading commands as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from bascule.show.story import Narrator

if TYPE_CHECKING:
    from bascule.journal import Event
    from bascule.operate.services import ServiceStatus


def status_lines(services: Sequence[ServiceStatus]) -> list[str]:
    """A block a service: its state, where it answers, its ranks."""
    lines: list[str] = []
    for one in services:
        where = f"   {one.url}   model {one.model}" if one.url and one.state != "stopped" else ""
        lines.append(f"{one.service}   {one.state}   run {one.run}{where}")
        if one.state == "stopped" and not one.unreachable:
            continue
        if one.candidate:
            lines.append(f"  candidate  {one.candidate}   {one.artefact}")
        for rank in one.ranks:
            began = f" since {datetime.fromtimestamp(rank.started_at).astimezone():%H:%M:%S}" if rank.started_at else ""
            life = f"alive, pid {rank.pid}{began}" if rank.alive else _ended(rank.exit_code)
            lines.append(f"  rank {rank.rank}     {rank.node}   {life}")
        lines += [f"  UNKNOWN    {says}" for says in one.unreachable]
    return lines or ["no service yet; `bascule init` writes an example recipe"]


def story_lines(events: Sequence[Event]) -> list[str]:
    """A whole run, told."""
    narrator = Narrator(whole=True)
    return [f"{say.label:<20} {say.text}".rstrip() for event in events for say in narrator.tell(event)]


def _ended(code: int | None) -> str:
    return f"ended with status {code}" if code is not None else "ended without leaving a status (killed)"
