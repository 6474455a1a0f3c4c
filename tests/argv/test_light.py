"""The engines for one node, llama.cpp and transformers; and what no engine's plan may get wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bascule.core.machine import Address, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Endpoint, LaunchPlan, Node
from bascule.discover.candidates import from_recipe
from bascule.errors import NodeTrouble, RecipeError
from bascule.launch.plan import Wanted, digest, plan_launch
from bascule.recipe.load import parse

Told = Callable[..., list[str]]
Planned = Callable[..., LaunchPlan]

LLAMACPP = """
service: tiny
model: /models/tiny
nodes: [a, b]
context: 2048
candidates: [{engine: llamacpp, venv: /opt/llamacpp, model: /models/tiny.gguf, args: --threads 4}]
"""

TRANSFORMERS = """
service: tiny
model: /models/tiny
nodes: [a, b]
candidates: [{engine: transformers, venv: /opt/tf, env: {OMP_NUM_THREADS: 2}}]
"""


def test_llamacpp_runs_on_the_head_by_our_own_script(told: Told, planned: Planned) -> None:
    assert told(LLAMACPP) == [
        "0 a: /opt/llamacpp/bin/python llamacpp_serve.py --model /models/tiny.gguf --host 10.0.0.1 --port 8000"
        " --alias tiny --ctx 2048 --threads 4"
    ]
    assert "xllamacpp.Server" in planned(LLAMACPP).ranks[0].files["llamacpp_serve.py"]
    assert planned(LLAMACPP).endpoint == Endpoint("http://10.0.0.1:8000/v1", "tiny", "/health")


def test_transformers_runs_on_the_head_and_is_named_by_its_path(told: Told, planned: Planned) -> None:
    assert told(TRANSFORMERS) == [
        "0 a: HF_HUB_OFFLINE=1 OMP_NUM_THREADS=2"
        " /opt/tf/bin/python -m transformers.cli.transformers serve /models/tiny --host 10.0.0.1 --port 8000"
    ]
    assert planned(TRANSFORMERS).endpoint == Endpoint("http://10.0.0.1:8000/v1", "/models/tiny", "/health")


@pytest.mark.parametrize("text", [LLAMACPP, TRANSFORMERS])
def test_an_engine_for_one_node_is_not_spread_over_two(planned: Planned, text: str) -> None:
    assert len(planned(text).ranks) == 1
    with pytest.raises(RecipeError, match=r"candidate .*: \w+ runs on one node, not on 2"):
        planned(text.replace("venv:", "nodes: [a, b], venv:"))


def test_words_that_belong_to_no_flag_are_refused(planned: Planned) -> None:
    with pytest.raises(RecipeError, match="candidate llamacpp-llamacpp: `four` in args belongs to no flag"):
        planned(LLAMACPP.replace("--threads 4", "four"))


def test_candidates_get_names_of_their_own() -> None:
    three = "candidates: [{engine: vllm, venv: /x/v}, {engine: vllm, venv: /y/v}, {engine: vllm, venv: /z/v, name: b}]"
    recipe = parse(f"service: s\nmodel: /m\nnodes: [a]\n{three}\n", "r.yaml")
    assert [candidate.name for candidate in from_recipe(recipe, Path("/"))] == ["vllm-v", "vllm-v#2", "b"]


WANTED = Wanted("s", 8000, 29500, "s", None)
CANDIDATE = Candidate("c", "vllm", Artefact("venv", "/v"), "/m")


def test_a_node_without_an_address_is_told_before_the_start() -> None:
    node = Node("a", "local", facts=NodeFacts(addresses=(Address("lo", "127.0.0.1", 8),)))
    with pytest.raises(NodeTrouble) as caught:
        plan_launch(CANDIDATE, [node], WANTED)
    assert (caught.value.code, caught.value.seen) == ("no-address", "lo 127.0.0.1")
    assert caught.value.advice == "say `address:` for a in the recipe"


def test_only_equal_command_lines_have_equal_digests() -> None:
    def digest_of(candidate: Candidate, port: int = 8000) -> str:
        return digest(plan_launch(candidate, [Node("a", "local", "10.0.0.1")], Wanted("s", port, 29500, "s", None)))

    assert digest_of(CANDIDATE) == digest_of(CANDIDATE)
    assert digest_of(CANDIDATE) != digest_of(CANDIDATE, port=8001)
    assert digest_of(CANDIDATE) != digest_of(Candidate("c", "vllm", Artefact("venv", "/w"), "/m"))


def test_an_interface_that_is_not_known_is_not_made_up() -> None:
    rank = plan_launch(CANDIDATE, [Node("a", "local", "10.0.0.1")], WANTED).ranks[0]
    assert "GLOO_SOCKET_IFNAME" not in rank.env
    assert rank.env["VLLM_HOST_IP"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("typed", "url", "model"),
    [
        ("", "http://10.0.0.1:8000/v1", "s"),
        ("--port 9999", "http://10.0.0.1:9999/v1", "s"),
        ("--host 0.0.0.0", "http://10.0.0.1:8000/v1", "s"),
        ("--host 10.9.9.9", "http://10.9.9.9:8000/v1", "s"),
        ("--served-model-name other", "http://10.0.0.1:8000/v1", "other"),
    ],
)
def test_flags_that_move_the_engine_move_the_endpoint(planned: Planned, typed: str, url: str, model: str) -> None:
    text = "service: s\nmodel: /m\nnodes: [{name: a, address: 10.0.0.1}]\ncandidates: [{engine: vllm, venv: /v}]\n"
    plan = planned(text, words=typed)
    assert (plan.endpoint.url, plan.endpoint.model) == (url, model)
