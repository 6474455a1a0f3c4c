"""Ranks of real processes for the tests of the capture."""

from __future__ import annotations

import pytest

from watch_sampler.sampler_parts import Ranks


@pytest.fixture
def ranks(tmp_path):
    made = Ranks(tmp_path / "ranks")
    yield made
    made.stop()
