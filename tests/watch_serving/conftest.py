"""A service of scripts for the tests of `bascule watch`."""

from __future__ import annotations

import pytest

from watch_sampler.conftest import ranks  # noqa: F401 - a fixture
from watch_serving.serving_parts import Stand


@pytest.fixture
def stand(state, tmp_path):
    made = Stand(tmp_path)
    made.node("a")
    made.node("b", address="127.0.0.2")
    yield made
    made.end()
