"""Which node gets which rank, and which address it tells its peers."""

from __future__ import annotations

import pytest

from bascule.core.layout import nodes_of, own_address
from bascule.core.machine import Address, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Node


def node(*addresses: tuple[str, str], told: str | None = None) -> Node:
    facts = NodeFacts(addresses=tuple(Address(interface, ip, 24) for interface, ip in addresses))
    return Node("a", "local", told, facts=facts)


LOOPBACK, LINK_LOCAL, DOCKER = ("lo", "127.0.0.1"), ("usb0", "169.254.3.3"), ("docker0", "172.17.0.1")
FABRIC, LAN = ("enp1s0f0np0", "10.0.0.1"), ("wlP9s9", "192.168.1.20")


def test_the_address_in_the_recipe_wins() -> None:
    assert own_address(node(FABRIC, LAN, told="192.168.1.20")) == "192.168.1.20"
    assert own_address(node(told="10.0.0.9")) == "10.0.0.9"


def test_the_first_real_address_is_taken() -> None:
    assert own_address(node(LOOPBACK, FABRIC, LAN)) == "10.0.0.1"


@pytest.mark.parametrize(
    "useless", [LOOPBACK, LINK_LOCAL, DOCKER, ("br-1f3a", "172.18.0.1"), ("veth12", "10.1.1.1"), ("virbr0", "10.2.2.2")]
)
def test_addresses_that_peers_can_not_reach_are_passed_over(useless: tuple[str, str]) -> None:
    assert own_address(node(useless, LAN)) == "192.168.1.20"
    assert own_address(node(useless)) is None


def test_a_candidate_says_the_order_of_its_ranks() -> None:
    a, b = Node("a", "local"), Node("b", "local")
    candidate = Candidate("c", "vllm", Artefact("venv", "/v"), "/m", nodes=("b", "a"))
    assert nodes_of(candidate, [a, b]) == (b, a)
    assert nodes_of(Candidate("c", "vllm", Artefact("venv", "/v"), "/m"), [a, b]) == (a, b)
