"""Ranks of real processes for the tests of the capture."""

from watch_sampler.conftest import ranks  # noqa: F401 - a fixture
