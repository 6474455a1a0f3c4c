"""The live view: a bar where the log tells how far a phase is, and what moves where it tells nothing."""

from __future__ import annotations

import io
import time
from dataclasses import replace

from rich.console import Console

from bascule.engines.base import read_lore
from bascule.show.screen import Screen
from bascule.watch.follow import Rank
from bascule.watch.phases import begin
from bascule.watch.standing import Standing, Verdict


def shown(rank: Rank) -> str:
    screen = Screen()
    screen.console = Console(file=io.StringIO(), force_terminal=True, width=160)
    screen.look([rank])
    screen.close()
    return screen.console.file.getvalue()


def rank(last_line_s_ago: float, fraction: float | None = None) -> Rank:
    now = time.monotonic()
    progress = begin(read_lore("vllm").phases, now - 200)
    told = replace(progress, last_line="Loading shard", last_line_at=now - last_line_s_ago, fraction=fraction)
    moving = Standing(1, Verdict.SLOW, told.phase, now, "compiling: 7 nvcc, cache +31 MB", told)
    return Rank(1, "spark-2", "s.1.1.r1", told, standing=moving)


def test_a_phase_with_a_fraction_has_a_bar():
    assert "━━━━━━━━━━──────  62%" in shown(rank(1, 0.62))


def test_a_phase_without_one_has_none():
    assert "━" not in shown(rank(1)) and "Loading shard" in shown(rank(1))


def test_what_moves_stands_in_the_place_of_an_old_line():
    text = shown(rank(94))
    assert "compiling: 7 nvcc, cache +31 MB" in text and "Loading shard" not in text
