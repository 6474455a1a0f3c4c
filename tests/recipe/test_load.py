"""A mistake in a recipe is told with its line, its column and, where it can be guessed, what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.errors import RecipeError
from bascule.recipe.load import example, load, parse
from bascule.recipe.schema import CandidateSpec, NodeSpec, Recipe

TOP = "service: s\nmodel: /m\nnodes: [a, b]\n"
NODE = "service: s\nmodel: /m\nnodes:\n  - name: a\n"
CANDIDATE = TOP + "candidates:\n  - engine: vllm\n    venv: /v\n"
TOP_KEYS = "there are service, model, nodes, port, rendezvous_port, context, served_name, budget, candidates"
A_NAME = "a name has letters, digits, - and _"
UNKNOWN_KEYS = {
    TOP + "prot: 3\n": "r.yaml:4:1  unknown key `prot`; did you mean `port`?",
    TOP + "max_model_length: 3\n": "r.yaml:4:1  unknown key `max_model_length`; did you mean `context`?",
    TOP + "zzz: 1\n": f"r.yaml:4:1  unknown key `zzz`; {TOP_KEYS}",
    NODE + "    adress: 10.0.0.1\n": "r.yaml:5:5  unknown key `adress`; did you mean `address`?",
    NODE + "    port: 22\n": "r.yaml:5:5  unknown key `port`; `port` stands at the top of a recipe",
    CANDIDATE + "    tp: 2\n": "r.yaml:7:5  unknown key `tp`; did you mean `tensor_parallel`?",
    CANDIDATE
    + "    Max-Model-Len: 2\n": "r.yaml:7:5  unknown key `Max-Model-Len`; `context` stands at the top of a recipe",
    CANDIDATE + "    flags: --x\n": "r.yaml:7:5  unknown key `flags`; did you mean `args`?",
}
WRONG_VALUES = {
    TOP + "port: x\n": "r.yaml:4:7  `port` should be a valid integer, not 'x'",
    TOP + "port: 70000\n": "r.yaml:4:7  `port` should be less than or equal to 65535, not 70000",
    TOP + "budget: 0\n": "r.yaml:4:9  `budget` should be greater than or equal to 1, not 0",
    TOP + "candidates: vllm\n": "r.yaml:4:13  `candidates` should be a valid list, not 'vllm'",
    TOP + "port: 29500\n": "r.yaml:4:7  port and rendezvous_port are both 29500",
    "service: s s\nmodel: /m\nnodes: [a]\n": f"r.yaml:1:10  `service` can't be 's s': {A_NAME}",
    "service: s\nmodel: ''\nnodes: [a]\n": "r.yaml:2:8  `model` is empty",
    "service: s\nmodel: /m\nnodes: []\n": "r.yaml:3:8  `nodes` is empty",
    "service: s\nmodel: /m\nnodes: [a b]\n": f"r.yaml:3:9  `name` can't be 'a b': {A_NAME}",
    "service: s\nmodel: /m\nnodes: [a, b, a]\n": "r.yaml:3:15  two nodes have the same name: a",
    NODE + "    address: 10.0.0\n": "r.yaml:5:14  '10.0.0' is no IPv4 address",
    NODE + "    address: 10.0.0.300\n": "r.yaml:5:14  '10.0.0.300' is no IPv4 address",
    CANDIDATE
    + "    tensor_parallel: 0\n": "r.yaml:7:22  `tensor_parallel` should be greater than or equal to 1, not 0",
    CANDIDATE + "    nodes: [c]\n": "r.yaml:7:12  there is no node c; there are a, b",
    CANDIDATE + "    env_on: {c: {X: 1}}\n": "r.yaml:7:13  there is no node c; there are a, b",
    CANDIDATE + "    env: {X: true}\n": "r.yaml:7:14  `X` should be a valid string, not True",
    CANDIDATE + "    args: --a 'b\n": "r.yaml:7:11  No closing quotation",
    CANDIDATE.replace(
        "vllm", "vlm"
    ): "r.yaml:5:13  engine `vlm` is not known; there are vllm, sglang, llamacpp, transformers",
}
MISSING = {
    "model: /m\nnodes: [a]\n": "r.yaml:1:1  `service` is missing",
    TOP + "candidates:\n  - venv: /v\n": "r.yaml:5:5  `engine` is missing",
    "service: s\nmodel: /m\nnodes:\n  - host: x\n": "r.yaml:4:5  `name` is missing",
}
NO_RECIPE = {
    "": "r.yaml:1:1  a recipe is keys and values, this is empty",
    "# only a comment\n": "r.yaml:1:1  a recipe is keys and values, this is empty",
    "- a\n": "r.yaml:1:1  a recipe is keys and values, this is a list",
    "some words\n": "r.yaml:1:1  a recipe is keys and values, this is a text",
    "service: s\n  model: x\n": "r.yaml:2:8  no YAML: mapping values are not allowed here",
    "port: 1\nport: 2\n": 'r.yaml:2:1  no YAML: found duplicate key "port" with value "2" (original value: "1")',
    "service: s\n\tmodel: 1\n": "r.yaml:2:1  no YAML: found character '\\t' that cannot start any token",
    TOP + "---\nport: 1\n": "r.yaml:4:1  no YAML: but found another document",
}


@pytest.mark.parametrize(("text", "says"), {**UNKNOWN_KEYS, **WRONG_VALUES, **MISSING, **NO_RECIPE}.items())
def test_a_mistake_is_told_with_its_place(text: str, says: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(text, "r.yaml")
    assert caught.value.says == says
    assert (caught.value.code, caught.value.exit_status) == ("recipe", 2)


@pytest.mark.parametrize("text", [TOP, NODE, CANDIDATE, CANDIDATE + "    env_on: {b: {X: 1}}\n    nodes: [b]\n"])
def test_what_these_mistakes_were_made_in_is_right(text: str) -> None:
    assert parse(text, "r.yaml").service == "s"


def test_every_mistake_of_a_file_is_told_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        parse(TOP + "prot: 1\ncontxt: 2\n", "r.yaml")
    assert caught.value.says == "r.yaml:4:1  unknown key `prot`; did you mean `port`?"
    assert caught.value.seen == "r.yaml:5:1  unknown key `contxt`; did you mean `context`?"


def test_the_file_is_named_as_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "my recipe.yaml"
    path.write_text(TOP + "prot: 3\n")
    with pytest.raises(RecipeError, match=r"my recipe\.yaml:4:1  unknown key"):
        load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"service: \xff\n", "can't decode byte 0xff"), ("folder", "directory")],
)
def test_a_file_that_can_not_be_read_is_told(tmp_path: Path, content: bytes | str | None, words: str) -> None:
    path = tmp_path / "r.yaml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        path.mkdir()
    with pytest.raises(RecipeError, match=rf"r\.yaml can't be read: .*{words}") as caught:
        load(path)
    assert caught.value.advice == "`bascule init` writes one"


def test_nodes_are_plain_words_or_keys_and_values() -> None:
    recipe = parse("service: s\nmodel: /m\nnodes: [a, u@b.lan:2222, 10.0.0.3, {name: d, host: local}]\n", "r.yaml")
    assert [(node.name, node.host) for node in recipe.nodes] == [
        ("a", "a"),
        ("b-lan", "u@b.lan:2222"),
        ("10-0-0-3", "10.0.0.3"),
        ("d", "local"),
    ]


def test_flags_are_a_text_or_a_list_and_numbers_are_fine_as_variables() -> None:
    text = parse(CANDIDATE + "    args: --a 'b c' --d\n    env: {N: 4, F: 0.5}\n", "r.yaml").candidates[0]
    words = parse(CANDIDATE + "    args: [--a, b c, --d]\n", "r.yaml").candidates[0]
    assert text.args == words.args == ["--a", "b c", "--d"]
    assert text.env == {"N": "4", "F": "0.5"}


def test_the_example_says_everything_that_can_be_said() -> None:
    recipe = parse(example(), "example.yaml")
    assert recipe.model_fields_set == set(Recipe.model_fields)
    assert recipe.nodes[1].model_fields_set == set(NodeSpec.model_fields)
    assert {key for one in recipe.candidates for key in one.model_fields_set} == set(CandidateSpec.model_fields)
