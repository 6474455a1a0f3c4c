"""Candidates of a run whose recipe names none: the nodes first, registries only where that isn't enough."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bascule.candidates.ask import Ask
from bascule.candidates.found import found_candidates
from bascule.core.machine import NodeFacts
from bascule.core.nouns import Fate, Model, Node
from bascule.discover.images import read_images
from bascule.errors import RecipeError
from bascule.recipe.words import from_words
from bascule.registry.doors import Daemon
from bascule.remote.local import LocalRunner
from candidates.hub_api import tag
from candidates.installed import install
from probe_views.views_cases import files_of, under
from registry.registry_parts import direct

ROOT = Path(__file__).parents[2]
BASCULE = Path(sys.executable).with_name("bascule")
MODEL = Model("Qwen3_5MoeForCausalLM", ("Qwen3_5MoeForCausalLM",), "qwen3_5_moe_text")
NODE = Node("a", "local", facts=NodeFacts(arch="aarch64"))
CATALOGUE = """
[engines.vllm]
words = ["vllm"]
[[publisher]]
id = "docker.io/vllm"
name = "vLLM project"
kind = "project"
[[image]]
name = "{name}"
engine = "vllm"
tags = ["1"]
"""


@pytest.fixture(scope="session")
def filled(real):
    new = under(files_of("vllm-0.32.0", "transformers-5.19.0"))
    old = under(files_of("vllm-0.14.0", "transformers-4.57.6"))
    images = {"vllm/new": new, "vllm/old": old, "me/vllm": new}
    return {name: real.image(name, "1", files) for name, files in images.items()}


@pytest.fixture
def asking(filled, real, hub, tmp_path):
    """The question; `name` is the one image of the catalogue."""

    def ask(name, **more):
        (tmp_path / "images.toml").write_text(CATALOGUE.format(name=name))
        hub.tags[name] = [tag("1")]
        recipe = from_words("Qwen3_5MoeForCausalLM", ["name=a,host=local"], None, None)
        plain = Ask(
            MODEL,
            [NODE],
            {"a": LocalRunner(NODE)},
            recipe,
            environments=(str(tmp_path / "engines"),),
            access=direct(daemon=Daemon((f"http://{real.host}",))),
            images=read_images(tmp_path / "images.toml"),
            hub=hub.url,
        )
        return replace(plain, **more)

    return ask


def found(ask):
    noted = {}
    made, foreseen = asyncio.run(found_candidates(ask, ask.recipe, lambda kind, **data: noted.update({kind: data})))
    assert set(foreseen) == set(made)
    return made, [foreseen[one].fate for one in made], noted["discovered"]


def test_what_is_on_the_nodes_is_enough(asking, hub, tmp_path):
    install(tmp_path / "engines/old", "vllm-0.14.0", "transformers-4.57.6")
    install(tmp_path / "engines/new", "vllm-0.32.0", "transformers-5.19.0")
    made, fates, noted = found(asking("vllm/new", words=("--reasoning-parser", "qwen3")))
    assert [one.name for one in made] == ["vllm-new", "vllm-old"] and fates == [Fate.OK, Fate.HOPELESS]
    assert [setting.value for setting in made[0].settings] == ["qwen3"] and made[0].nodes == ("a",)
    assert not noted["reached"] and hub.asked == []


def test_registries_are_asked_when_nothing_on_the_nodes_would_do(asking, hub, filled, tmp_path):
    install(tmp_path / "engines/old", "vllm-0.14.0", "transformers-4.57.6")
    made, fates, noted = found(asking("vllm/new"))
    assert [one.name for one in made] == ["vllm-new-1", "vllm-old"] and fates == [Fate.OK, Fate.HOPELESS]
    assert made[0].artefact.ref == f"vllm/new:{filled['vllm/new'].replace(':', '-')}"
    assert noted["reached"] and noted["bytes"] > 0 and hub.asked


def test_registries_are_asked_when_a_person_wants_it(asking, tmp_path):
    install(tmp_path / "engines/new", "vllm-0.32.0", "transformers-5.19.0")
    made, _, noted = found(asking("vllm/new", search=True))
    assert [one.name for one in made] == ["vllm-new", "vllm-new-1"] and noted["reached"]
    made, _, noted = found(asking("vllm/new", search=True, offline=True))
    assert [one.name for one in made] == ["vllm-new"] and not noted["reached"]


def test_images_of_people_who_are_not_known_need_a_word(asking):
    with pytest.raises(RecipeError) as caught:
        found(asking("me/vllm"))
    assert caught.value.code == "image-not-trusted" and "--trust me" in caught.value.advice
    assert "me/vllm:1: vLLM 0.32.0 knows" in caught.value.seen
    made, fates, _ = found(asking("me/vllm", trust=("me",)))
    assert [one.name for one in made] == ["vllm-vllm-1"] and fates == [Fate.OK]


def test_nothing_at_all_says_what_was_looked_at(asking):
    with pytest.raises(RecipeError) as caught:
        found(asking("127.0.0.1:1/vllm"))
    assert caught.value.code == "no-candidates"
    assert "127.0.0.1:1/vllm was not read: no answer: ConnectError" in caught.value.seen
    made, fates, _ = found(asking("vllm/old"))  # the story tells why it can't
    assert [one.name for one in made] == ["vllm-old-1"] and fates == [Fate.HOPELESS]


def test_plan_looks_no_further_than_it_may(tmp_path):
    env = {**os.environ, "BASCULE_OFFLINE": "1", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    words = [BASCULE, "plan", ROOT / "models/adder", "--node", "local", "--venv", tmp_path / "engines"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error[no-candidates]") and "bascule search" in done.stderr
    install(tmp_path / "engines/new", "vllm-0.32.0", "transformers-5.19.0")
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "vLLM 0.32.0 knows Qwen3_5MoeForCausalLM" in done.stdout, done.stderr
