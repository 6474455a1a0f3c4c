"""Two lab hosts with the model on both, and a service on them."""

from __future__ import annotations

import pytest

from bascule.lab import hosts
from bascule.lab.spec import Lab
from drills.rig import Drill, install
from lifecycle.desk import ROOT


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    made = Lab("drill", tmp_path_factory.mktemp("drill-lab") / "drill", 2, 86)
    hosts.up(made, docker=False)
    install(made, ROOT / "models/adder")
    yield made
    hosts.down("drill")


@pytest.fixture
def drill(lab, tmp_path):
    hosts.heal(lab)
    made = Drill(lab, tmp_path)
    yield made
    made.run("down")
    hosts.heal(lab)
