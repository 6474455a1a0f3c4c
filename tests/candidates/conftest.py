"""A registry with images of engines, and Docker Hub's API, for all tests of this folder."""

import pytest

from candidates.hub_api import HubApi, speaking
from registry.registry_parts import registry


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    with registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def hub():
    with speaking(HubApi()) as server:
        yield server
