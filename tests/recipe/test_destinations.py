"""A node named by its destination alone is the same, with and without the schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.errors import RecipeError
from bascule.recipe.destinations import plain_nodes
from bascule.recipe.words import nodes_from_words

WORDS = st.lists(st.text("ab1.-_@:=/ ,ä", min_size=1, max_size=12), min_size=1, max_size=3)


@pytest.mark.parametrize("words", [["local"], ["spark-1", "root@spark-2"], ["u@spark-1.lan:22", "10.0.0.2"]])
def test_plain_destinations(words: list[str]) -> None:
    assert plain_nodes(words) == nodes_from_words(words)


@pytest.mark.parametrize("words", [["name=b,host=local"], ["a", "root@a"], ["-x"], ["a b"], ["::1"], [""]])
def test_anything_else_is_left_to_the_schema(words: list[str]) -> None:
    assert plain_nodes(words) is None


@given(WORDS)
def test_what_is_plain_the_schema_takes_as_well(words: list[str]) -> None:
    plain = plain_nodes(words)
    try:
        whole = nodes_from_words(words)
    except RecipeError:
        assert plain is None
    else:
        assert plain in (None, whole)
