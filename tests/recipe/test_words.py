"""A recipe from the command line, for those who have no file yet; and the command line's word over a file's."""

from __future__ import annotations

import pytest

from bascule.errors import RecipeError
from bascule.recipe.load import parse
from bascule.recipe.words import from_words, override


def test_a_model_and_nodes_are_enough() -> None:
    recipe = from_words("/models/Qwen 3.5", ["spark-1", "u@spark-2.lan"], None, None)
    assert (recipe.service, recipe.model, recipe.port) == ("Qwen-3-5", "/models/Qwen 3.5", 8000)
    assert [(node.name, node.host) for node in recipe.nodes] == [
        ("spark-1", "spark-1"),
        ("spark-2-lan", "u@spark-2.lan"),
    ]


@pytest.mark.parametrize(
    ("model", "service"), [("/", "service"), ("/m/..", "service"), ("/m/ümlaut", "mlaut"), ("m/", "m")]
)
def test_the_service_is_named_after_the_folder(model: str, service: str) -> None:
    assert from_words(model, ["a"], None, None).service == service


def test_a_node_can_be_told_in_full() -> None:
    node = from_words("/m", ["name=b, host=local, address=127.0.0.2, run_dir=/r"], "s", 9000).nodes[0]
    assert (node.name, node.host, node.address, node.run_dir) == ("b", "local", "127.0.0.2", "/r")
    assert from_words("/m", ["local"], "s", None).nodes[0].host == "local"


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([], "no node to serve /m on"),
        (["name=b,adress=1.2.3.4"], "unknown key `adress`; did you mean `address`?"),
        (["name=b,address=1.2.3"], "'1.2.3' is no IPv4 address"),
        (["a", "a"], "two nodes have the same name: a"),
        (["host=a"], "`name` is missing"),
    ],
)
def test_a_mistake_on_the_command_line_is_told(nodes: list[str], says: str) -> None:
    with pytest.raises(RecipeError) as caught:
        from_words("/m", nodes, None, None)
    assert (caught.value.says, caught.value.code, caught.value.exit_status) == (says, "usage", 2)


def test_the_command_line_wins_over_the_file() -> None:
    recipe = parse("service: s\nmodel: /m\nnodes: [a]\nport: 8001\n", "r.yaml")
    assert override(recipe, None, None) is recipe
    assert (override(recipe, "t", 9000).service, override(recipe, "t", 9000).port) == ("t", 9000)
    with pytest.raises(RecipeError, match="port and rendezvous_port are both 29500"):
        override(recipe, None, 29500)
