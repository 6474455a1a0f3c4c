"""The start that vLLM refused on one H200: fit says so before it, from the recipe and the model as they are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bascule.core.machine import Gpu, NodeFacts
from bascule.core.nouns import Node
from bascule.discover.candidates import from_recipe
from bascule.discover.model import read_model
from bascule.fits import Fitness, fitness
from bascule.recipe.load import load
from bascule.remote.local import LocalRunner

ROOT = Path(__file__).parents[2]
H200 = Gpu(0, "NVIDIA H200", "sm_90", 143771 * 2**20, 143000 * 2**20)


def judged(folder: Path, candidate: str, *words: str) -> Fitness:
    path = ROOT / "examples" / "gpu" / "two-nodes-one-h200.yaml"
    subprocess.run([sys.executable, ROOT / "models" / "make_dummy.py", folder, "35b", *words], check=True)
    here = Node("a", "local")
    model = asyncio.run(read_model(str(folder), LocalRunner(here), here))
    recipe = load(path)
    facts = NodeFacts(gpus=(H200,), memory_bytes=126 << 30, machine_id="one")
    nodes = [Node(one.name, "local", facts=facts) for one in recipe.nodes]
    asked = next(one for one in from_recipe(recipe, path.parent) if one.name == candidate)
    asked = replace(asked, nodes=tuple(node.name for node in nodes))
    return fitness(asked, model, nodes, recipe.context, None)


def test_an_fp8_tower_is_refused_before_the_start_although_the_cache_has_a_size_of_its_own(tmp_path: Path) -> None:
    refused = judged(tmp_path / "tower", "tower-in-fp8", "--vision", "released").refused
    assert refused is not None
    assert (refused.code, refused.scope) == ("fp8-block-indivisible", "candidate")
    assert "576" in refused.says + "".join(one.excerpt for one in refused.evidence)


@pytest.mark.parametrize("candidate", ["triton"])
def test_the_candidate_that_served_is_not_refused(tmp_path: Path, candidate: str) -> None:
    found = judged(tmp_path / "plain", candidate)
    assert found.refused is None
    assert found.fit is not None and found.unknown == ""
