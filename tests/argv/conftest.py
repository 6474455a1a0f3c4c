"""From a recipe's text to the words of every rank, the way `bascule up` goes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from bascule.core.machine import Address, NodeFacts
from bascule.core.nouns import LaunchPlan, Node, Setting
from bascule.discover.candidates import from_recipe
from bascule.launch.plan import Wanted, plan_launch
from bascule.recipe.load import parse
from bascule.up import wanted_of

SPARKS = [("lo", "127.0.0.1"), ("enp1s0f0np0", "10.0.0.{}"), ("wlP9s9", "192.168.1.{}")]


def node(name: str, number: int, told: str | None) -> Node:
    """A machine with a fast and a slow interface, like a DGX Spark."""
    addresses = tuple(Address(interface, ip.format(number), 24) for interface, ip in SPARKS)
    return Node(name, name, told, facts=NodeFacts(addresses=addresses))


@pytest.fixture
def planned() -> Callable[..., LaunchPlan]:
    """The plan of a recipe's first candidate; `change` is a repair, `words` are flags from the command line."""

    def plan(text: str, *, change: Setting | None = None, words: str = "") -> LaunchPlan:
        recipe = parse(text, "r.yaml")
        candidate = from_recipe(recipe, Path("/base"), shlex.split(words))[0]
        if change:
            candidate = candidate.changed(change)
        nodes = [node(spec.name, number, spec.address) for number, spec in enumerate(recipe.nodes, 1)]
        wanted: Wanted = wanted_of(recipe)
        return plan_launch(candidate, nodes, wanted)

    return plan


@pytest.fixture
def told(planned: Callable[..., LaunchPlan]) -> Callable[..., list[str]]:
    """Each rank as one line: where, its environment, its words."""

    def lines(text: str, **more: object) -> list[str]:
        return [
            " ".join(
                [
                    f"{rank.rank} {rank.node}:",
                    *(f"{name}={value}" for name, value in rank.env.items()),
                    shlex.join(rank.argv),
                ]
            )
            for rank in planned(text, **more).ranks
        ]

    return lines
