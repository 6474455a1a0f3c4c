"""Nodes that are named by nothing but their SSH destination, without the whole of the schema."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bascule.core.nouns import Node

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"  # of a node


def name_of(destination: str) -> str:
    """`user@spark-1.lan:22` is called spark-1-lan."""
    return destination.rpartition("@")[2].partition(":")[0].replace(".", "-")


def plain_nodes(words: Sequence[str]) -> list[Node] | None:
    """The nodes, when every word is a destination that gives a name of its own; None: the schema must have a look."""
    names = [name_of(word) for word in words]
    named = all(re.fullmatch(NAME, name) for name in names) and len({*names}) == len(names)
    if not named or any("=" in word for word in words):
        return None
    return [Node(name, word) for name, word in zip(names, words, strict=True)]
