"""An index of one's own for each test, and a cache that is empty at first."""

import pytest

from catalog.catalog_index import serving


@pytest.fixture
def index():
    with serving() as one:
        yield one


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/bascule/catalog"
