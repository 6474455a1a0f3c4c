"""One registry for all tests of this folder."""

import pytest

from registry.registry_parts import Front, fronting, registry


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    with registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def front(real):
    with fronting(Front(real.host)) as server:
        yield server
