"""A layout and its nodes as a finding: yes, no and not known are three things."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bascule.core.fit import Room, Wish
from bascule.core.nouns import Fate, Finding
from bascule.core.parallel import Layout
from bascule.core.shape import Shape, Unshaped
from bascule.preflight.fits import layout_fits
from fit.fit_cases import GIB, QWEN_122B, QWEN_122B_REFUSED, engine, machines, shape

AT = datetime(2026, 12, 1, tzinfo=UTC)
TWO = Layout(2, 1, 2)
UNSHAPED = Unshaped("audio_config", "what audio_config describes is not counted")
UNREAD = Room("b", 1, None, unknown="no rights")


def asked(of: Shape | Unshaped | None, rooms: list[Room], layout: Layout = TWO) -> Finding:
    return layout_fits(of, layout, rooms, engine(), Wish(), AT)


def test_two_sparks_hold_it() -> None:
    found = asked(shape(QWEN_122B), machines("GB10", 2))
    assert (found.fate, found.code) == (Fate.OK, "fits")
    assert [one.node for one in found.evidence] == ["n0", "n1"]
    assert found.evidence[0].excerpt == "57.7 weights + 3.7 overhead + 3.2 cache of 95.7 GiB"


def test_one_spark_does_not() -> None:
    small = [replace(machines("GB10", 1)[0], total=100 * GIB)]
    found = asked(shape(QWEN_122B), small, Layout())
    assert (found.fate, found.code, found.scope) == (Fate.HOPELESS, "memory-too-small", "candidate")
    assert "n0" in found.says
    assert found.advice


def test_a_little_too_large_is_not_a_no() -> None:
    """118 of 108 GiB: the estimate may be wrong by a tenth of the memory."""
    found = asked(shape(QWEN_122B), machines("GB10", 1), Layout())
    assert (found.fate, found.code) == (Fate.UNKNOWN, "memory-tight")


def test_a_layout_that_the_engine_would_refuse() -> None:
    found = asked(shape(QWEN_122B_REFUSED), machines("H200", 2))
    assert (found.fate, found.code, found.scope) == (Fate.HOPELESS, "fp8-block-indivisible", "candidate")
    assert "576" in found.says
    assert "--mm-encoder-tp-mode" in found.advice
    assert len(found.evidence) == 2  # every reason


@pytest.mark.parametrize(
    ("of", "rooms", "code", "says"),
    [
        (None, machines("GB10", 2), "shape-unknown", "its config.json was not read"),
        (UNSHAPED, machines("GB10", 2), "shape-unknown", "audio_config"),
        (shape(QWEN_122B), [machines("GB10", 1)[0], UNREAD], "memory-unread", "no rights"),
    ],
    ids=["no configuration", "no shape", "no memory"],
)
def test_what_could_not_be_checked_is_neither_a_yes_nor_a_no(of, rooms: list[Room], code: str, says: str) -> None:
    found = asked(of, rooms)
    assert (found.fate, found.code) == (Fate.UNKNOWN, code)
    assert says in found.says
