"""How far a node's clock is off: as precise as what is known, and no more."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.nouns import Node
from bascule.remote.clock import clock_offset, measure_clock
from bascule.remote.local import LocalRunner

NOW = 1796119527.0
short = st.floats(0, 30, allow_nan=False)


@given(offset=st.floats(-1e6, 1e6), there=short, works=short, back=short)
def test_the_true_offset_lies_within_the_error(offset: float, there: float, works: float, back: float) -> None:
    first = NOW + there + offset
    last = first + works
    found = clock_offset(NOW, NOW + there + works + back, f"{first:.9f}", f"{last:.9f}")
    assert found is not None
    assert abs(found[0] - offset) <= found[1] + 1e-5
    assert found[1] <= (there + back) / 2 + 1e-5, "the time that the node computed is no doubt"


@given(offset=st.integers(-1000, 1000), there=short, back=short)
def test_a_clock_of_whole_seconds_is_known_to_a_second(offset: int, there: float, back: float) -> None:
    told = int(NOW + there + offset)
    found = clock_offset(NOW, NOW + there + back, f"{told}.%N", str(told))
    assert found is not None
    assert abs(found[0] - offset) <= found[1] + 1e-5


@pytest.mark.parametrize("said", ["", "what time is it", "12", "-1796119527.0", "date: invalid option"])
def test_what_is_no_time_is_not_known(said: str) -> None:
    assert clock_offset(NOW, NOW + 1, said, said) is None


def test_the_clock_of_this_machine() -> None:
    node = Node("here", "local")
    clock = asyncio.run(measure_clock(LocalRunner(node)))
    assert clock is not None
    assert abs(clock.offset_s) <= clock.error_s + 0.005
    assert 0 < clock.round_trip_s < 10


def test_a_clock_that_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = next(path for folder in os.get_exec_path() if (path := Path(folder) / "date").exists())
    (tmp_path / "date").write_text(f'#!/bin/sh\nexec {real} -d "+90 seconds" "$@"\n')
    (tmp_path / "date").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    clock = asyncio.run(measure_clock(LocalRunner(Node("here", "local"))))
    assert clock is not None
    assert abs(clock.offset_s - 90) <= clock.error_s + 0.005
    (tmp_path / "date").write_text("#!/bin/sh\necho unknown option\n")
    assert asyncio.run(measure_clock(LocalRunner(Node("here", "local")))) is None
