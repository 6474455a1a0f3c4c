"""The terminal while a run goes on: lines as they happen, and what each rank does now."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bascule.journal import Event
from bascule.show.say import Say
from bascule.show.story import Narrator
from bascule.watch.follow import Rank

SILENT = 10.0  # seconds without a new line after which it is shown what moves instead
HEARTBEAT = 30.0  # seconds between signs of life where there is no terminal
TONES = {"good": "green", "bad": "red", "dim": "dim", "strong": "bold", "": ""}


class Screen:
    """Writes to standard error; a live view only on a terminal."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._narrator = Narrator()
        self._live: Live | None = None
        self._spoke = time.monotonic()

    def event(self, event: Event) -> None:
        """Tell an event."""
        if event.kind in ("finding", "interrupted", "error"):
            self.close()
        for say in self._narrator.tell(event):
            self._spoke = time.monotonic()
            show(self.console, say)

    def look(self, ranks: Sequence[Rank]) -> None:
        """Show what the ranks do now."""
        if self.console.is_terminal:
            self._show_live(ranks)
        elif time.monotonic() - self._spoke > HEARTBEAT:
            self._spoke = time.monotonic()
            for rank in ranks:
                show(self.console, Say("  still", _doing(rank)))

    def close(self) -> None:
        """End the live view."""
        if self._live:
            self._live.stop()
            self._live = None

    def _show_live(self, ranks: Sequence[Rank]) -> None:
        if self._live is None:
            self._live = Live(console=self.console, transient=True, refresh_per_second=4)
            self._live.start()
        self._live.update(_table(ranks))


def show(console: Console, say: Say) -> None:
    """One line of a story."""
    style = TONES[say.tone]
    line = Text(f"{say.label:<10} ", style="bold" if say.tone == "strong" else "")
    line.append(say.text, style=style)
    console.print(line)


def _table(ranks: Sequence[Rank]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for rank in ranks:
        progress, now = rank.progress, time.monotonic()
        silent = now - progress.last_line_at > SILENT
        text = rank.standing.says if silent and rank.standing else progress.last_line.strip()[-100:]
        for_s = f"{now - progress.since:.0f} s"
        table.add_row("  now", rank.node, progress.phase, _bar(progress.fraction), for_s, Text(text, style="dim"))
    return table


def _bar(fraction: float | None, width: int = 16) -> str:
    """How far the phase is, where its log tells; else nothing."""
    if fraction is None:
        return ""
    full = round(max(0.0, min(1.0, fraction)) * width)
    return f"{'━' * full}{'─' * (width - full)} {fraction:4.0%}"


def _doing(rank: Rank) -> str:
    now, progress = time.monotonic(), rank.progress
    done = f" {progress.fraction:.0%}" if progress.fraction is not None else ""
    moves = f"; {rank.standing.says}" if rank.standing else ""
    return (
        f"{rank.node}  rank {rank.number}  {progress.phase}{done} for {now - progress.since:.0f} s, "
        f"last line {now - progress.last_line_at:.0f} s ago{moves}"
    )
