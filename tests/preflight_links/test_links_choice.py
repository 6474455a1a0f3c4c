"""Which addresses are chosen from facts: the fastest link that all share, and never one that only looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.addresses import ROUTED, AddressPlan
from bascule.core.machine import NodeFacts
from bascule.core.nouns import Fate, Node
from bascule.launch.plan import place_of
from bascule.preflight.choose import choose_links, next_plan, with_addresses, without_rail
from bascule.preflight.offers import offers_of
from preflight_links.clusters import AT, codes, finding_of, h200, node, plan_of, port, spark, told


def test_two_sparks_meet_on_the_cable_and_use_both_of_its_ports():
    plan = plan_of([spark(1), spark(2)])
    assert told(plan) == [("spark-1", "10.0.0.1", "enp1s0f0np0"), ("spark-2", "10.0.0.2", "enp1s0f0np0")]
    assert plan.rows[1].rendezvous == "10.0.0.1"
    assert [row.hcas for row in plan.rows] == [("rocep1s0f0:1", "roceP2p1s0f0:1")] * 2
    assert [rail.network for rail in plan.rails] == ["10.0.1.0/24"]
    assert [link.network for link in plan.others] == ["10.0.1.0/24", "192.168.1.0/24", "192.168.2.0/24"]
    assert plan.because == "10.0.0.0/24 (RDMA, 200 Gbit/s) is the best network that all 2 nodes share"
    assert plan.notices == ()
    assert {(one.interface, one.why) for one in plan.passed_over} == {
        ("lo", "loopback"),
        ("docker0", "a network of containers inside this machine"),
    }


def test_the_next_plans_are_the_other_cable_port_then_the_lan_then_wifi_then_nothing():
    nodes = [spark(1), spark(2)]
    plan, networks = plan_of(nodes), []
    while plan:
        networks.append((plan.link.network, plan.rows[0].hcas))
        plan = next_plan(plan, nodes, AT)
    assert networks == [
        ("10.0.0.0/24", ("rocep1s0f0:1", "roceP2p1s0f0:1")),
        ("10.0.1.0/24", ("roceP2p1s0f0:1",)),
        ("192.168.1.0/24", ()),  # the cable failed: NCCL must not find its ports by itself
        ("192.168.2.0/24", ()),
    ]


def test_what_the_plan_says_reaches_the_environment_of_the_ranks():
    nodes = with_addresses([spark(1), spark(2)], plan_of([spark(1), spark(2)]))
    place = place_of(nodes[1])
    assert (place.address, place.interface) == ("10.0.0.2", "enp1s0f0np0")
    assert place.hcas == ("rocep1s0f0:1", "roceP2p1s0f0:1")


def test_a_rail_that_failed_takes_its_ports_along():
    nodes = [spark(1), spark(2)]
    plan = plan_of(nodes)
    left = without_rail(plan, plan.rails[0], nodes)
    assert [row.hcas for row in left.rows] == [("rocep1s0f0:1",)] * 2 and left.rails == ()


def test_twins_on_one_subnet_are_told_and_only_one_is_used():
    nodes = [spark(1, twin="10.0.0.{}1/24"), spark(2, twin="10.0.0.{}1/24")]
    plan = plan_of(nodes)
    assert told(plan) == [("spark-1", "10.0.0.1", "enp1s0f0np0"), ("spark-2", "10.0.0.2", "enp1s0f0np0")]
    assert [row.hcas for row in plan.rows] == [("rocep1s0f0:1",)] * 2
    assert codes(plan) == ["twins-one-subnet"] * 2 + ["rdma-port-unused"] * 2
    assert plan.notices[0].says == (
        "10.0.0.1 (enp1s0f0np0) and 10.0.0.11 (enP2p1s0f0np0) of spark-1 are in one network, 10.0.0.0/24:"
        " packets to the one may go by the other"
    )
    assert "10.0.0.0/24 is reached by another address of this node" in plan.notices[2].says


def test_a_twin_without_an_address_is_told():
    plan = plan_of([spark(1, twin=""), spark(2, twin="")])
    assert [row.hcas for row in plan.rows] == [("rocep1s0f0:1",)] * 2
    assert plan.notices[0].says == (
        "active RDMA ports of spark-1 are not in the plan: roceP2p1s0f0:1 (enP2p1s0f0np0): no address"
    )


def test_one_node_without_the_fabric_sends_all_to_the_lan_and_it_is_told():
    plan = plan_of([spark(1), spark(2), spark(3, fabric=False, twin="")])
    assert plan.link.network == "192.168.1.0/24"
    assert [row.hcas for row in plan.rows] == [None] * 3  # RoCE may be routed: left to NCCL
    assert codes(plan) == ["rdma-port-unused"] * 3
    assert "rocep1s0f0:1 (enp1s0f0np0): not a network of spark-3" in plan.notices[0].says
    assert "rocep1s0f0:1 (enp1s0f0np0): no address" in plan.notices[2].says


def test_where_a_node_has_no_port_at_all_every_node_takes_sockets():
    plan = plan_of([spark(1), spark(2), spark(3, fabric=False, twin="", rdma=())])
    assert [row.hcas for row in plan.rows] == [()] * 3
    assert "are not in the plan: rocep1s0f0:1 (enp1s0f0np0): not a network of spark-3" in plan.notices[0].says


def test_a_link_local_fabric_is_not_taken_and_it_is_told_why():
    local = [
        node(f"s{n}", f"lan0 10.1.0.{n}/24 ethernet 1", f"f0 169.254.7.{n}/16 ethernet 200", rdma=[port("r0", "f0")])
        for n in (1, 2)
    ]
    plan = plan_of(local)
    assert plan.link.network == "10.1.0.0/24"
    assert "r0:1 (f0): 169.254.7.1 is a link-local address" in plan.notices[0].says
    named = plan_of([replace(one, address=f"169.254.7.{n}") for n, one in enumerate(local, 1)])
    assert named.link.network == "169.254.0.0/16" and named.link.rdma and named.rows[0].hcas == ("r0:1",)


def test_eight_servers_with_infiniband_use_its_ports_and_not_that_of_the_storage():
    plan = plan_of([h200(n) for n in range(1, 9)])
    assert plan.link.network == "10.20.0.0/24" and plan.rails == ()
    assert {row.hcas for row in plan.rows} == {tuple(f"mlx5_{at}:1" for at in range(8))}
    assert plan.notices == ()


def test_infiniband_without_addresses_carries_the_data_while_sockets_go_over_ethernet():
    servers = [replace(one, facts=replace(one.facts, rdma=one.facts.rdma[:8])) for one in map(_no_ipoib, range(1, 9))]
    plan = plan_of(servers)
    assert plan.link.network == "10.9.0.0/24"  # the faster Ethernet
    assert {row.hcas for row in plan.rows} == {tuple(f"mlx5_{at}:1" for at in range(8))}


def _no_ipoib(number):
    return h200(number, ipoib=False)


def test_where_rdma_could_not_be_read_it_is_left_to_nccl():
    blind = spark(2)
    plan = plan_of([spark(1), replace(blind, facts=replace(blind.facts, rdma=None))])
    assert [row.hcas for row in plan.rows] == [None, None]


def test_a_port_that_is_not_active_is_none():
    dead = (port("rocep1s0f0", "enp1s0f0np0", active=False), port("roceP2p1s0f0", "enP2p1s0f0np0"))
    plan = plan_of([spark(1, rdma=dead), spark(2)])
    assert plan.link.network == "10.0.1.0/24" and plan.rows[0].hcas == ("roceP2p1s0f0:1",)


def test_a_vlan_has_the_port_whose_gid_is_its_address():
    nodes = [node(f"n{n}", f"f0.100 10.5.0.{n}/24 virtual", rdma=[port("r0", "f0", ip=f"10.5.0.{n}")]) for n in (1, 2)]
    assert plan_of(nodes).rows[0].hcas == ("r0:1",)


def test_interface_names_may_differ_per_node():
    plan = plan_of([node("a", "eth5 10.0.0.1/24"), node("b", "enp3s0 10.0.0.2/24")])
    assert told(plan) == [("a", "10.0.0.1", "eth5"), ("b", "10.0.0.2", "enp3s0")]


NEVER = [
    ("docker0", "172.17.0.{}/16 bridge"),
    ("br-0123456789ab", "172.18.0.{}/16 bridge"),
    ("veth12ab", "10.3.0.{}/24 virtual"),
    ("virbr0", "192.168.122.{}/24 bridge"),
    ("tailscale0", "100.64.0.{}/10 tunnel"),
    ("wg0", "10.8.0.{}/24 other"),
    ("ztabcdef12", "10.147.17.{}/24 virtual"),
    ("flannel.1", "10.42.0.{}/16 virtual"),
    ("f9", "169.254.3.{}/16 ethernet 400"),
    ("lo", "10.6.0.{}/24 loopback"),
    ("mytun", "10.7.0.{}/24 tunnel"),
    ("eth9", "10.4.0.{}/24 ethernet 400 down"),
]


@pytest.mark.parametrize(("interface", "row"), NEVER)
def test_what_is_no_way_to_a_peer_is_never_taken_however_fast(interface, row):
    nodes = [node(f"n{n}", f"{interface} {row.format(n)}", f"eth0 10.0.0.{n}/24 ethernet 0.1") for n in (1, 2)]
    plan = plan_of(nodes)
    assert plan.link.network == "10.0.0.0/24" and plan.others == ()
    assert {one.interface for one in plan.passed_over} == {interface}
    alone = finding_of([replace(one, facts=replace(one.facts, addresses=one.facts.addresses[:1])) for one in nodes])
    assert (alone.code, alone.fate) == ("no-address", Fate.CLUSTER)
    assert plan.passed_over[0].why in alone.evidence[0].excerpt


def test_unless_the_recipe_names_it():
    nodes = [node(f"n{n}", f"wg0 10.8.0.{n}/24 tunnel", f"eth0 10.0.0.{n}/24", told=f"10.8.0.{n}") for n in (1, 2)]
    plan = plan_of(nodes)
    assert plan.link.network == "10.8.0.0/24" and plan.because == "the recipe names these addresses"
    assert next_plan(plan, nodes, AT) is None


def test_wifi_is_taken_only_where_there_is_nothing_else_and_told():
    nodes = [node(f"n{n}", f"wlp3s0 10.0.5.{n}/24", f"eth0 10.0.0.{n}/24", default="wlp3s0") for n in (1, 2)]
    assert plan_of(nodes).link.network == "10.0.0.0/24"
    only = [replace(one, facts=replace(one.facts, addresses=one.facts.addresses[:1])) for one in nodes]
    plan = plan_of(only)
    assert plan.link.network == "10.0.5.0/24" and codes(plan) == ["weak-link"]
    assert plan.notices[0].says == "the nodes have nothing better in common than Wi-Fi"


def test_equal_private_networks_with_the_same_address_are_not_shared():
    nodes = [node(f"n{n}", "br9 10.200.0.1/24 bridge 100", f"eth0 10.0.0.{n}/24") for n in (1, 2)]
    plan = plan_of(nodes)
    assert plan.link.network == "10.0.0.0/24"
    assert plan.passed_over[0].why == "n1 and n2 have the same address 10.200.0.1"


def test_of_equal_links_the_one_beside_the_default_route_is_taken():
    nodes = [node(f"n{n}", f"e0 10.0.0.{n}/24", f"e1 10.9.0.{n}/24", default="e0") for n in (1, 2)]
    assert plan_of(nodes).link.network == "10.9.0.0/24"


def test_rdma_goes_before_speed_and_speed_before_kind():
    nodes = [
        node(f"n{n}", f"a 10.1.0.{n}/24 ethernet 400", f"b 10.2.0.{n}/24 ethernet 25", rdma=[port("r", "b", rate=25)])
        for n in (1, 2)
    ]
    assert plan_of(nodes).link.network == "10.2.0.0/24"
    nodes = [node(f"n{n}", f"a 10.1.0.{n}/24 ethernet 1", f"b 10.2.0.{n}/24 bridge 10") for n in (1, 2)]
    assert plan_of(nodes).link.network == "10.2.0.0/24"
    nodes = [node(f"n{n}", f"a 10.1.0.{n}/24 bridge 10", f"b 10.2.0.{n}/24 ethernet 10") for n in (1, 2)]
    assert plan_of(nodes).link.network == "10.2.0.0/24"


def test_several_subnets_and_none_in_common_falls_back_to_the_default_routes():
    nodes = [
        node("a", "e0 10.1.0.1/24 ethernet 100", "e1 192.168.1.5/24", default="e1"),
        node("b", "e0 10.2.0.1/24", default="e0"),
    ]
    plan = plan_of(nodes)
    assert plan.link.network == ROUTED and told(plan) == [("a", "192.168.1.5", "e1"), ("b", "10.2.0.1", "e0")]
    assert next_plan(plan, nodes, AT) is None


def test_prefixes_that_differ_are_one_network_if_each_is_in_the_others():
    nodes = [node("a", "e0 10.0.0.1/24"), node("b", "e0 10.0.0.2/16")]
    assert plan_of(nodes).link.network == "10.0.0.0/16"
    apart = plan_of([node("a", "e0 10.0.0.1/24"), node("b", "e0 10.0.9.2/16")])
    assert apart.link.network == ROUTED
    assert "are not in each other's network" in apart.passed_over[0].why


def test_some_nodes_named_by_the_recipe_lead_the_others_to_their_network():
    plan = plan_of([spark(1), spark(2, told="192.168.1.2")])
    assert told(plan) == [("spark-1", "192.168.1.1", "enP7s7"), ("spark-2", "192.168.1.2", "enP7s7")]
    assert [row.hcas for row in plan.rows] == [("rocep1s0f0:1", "roceP2p1s0f0:1")] * 2  # data still takes the cable


def test_an_address_that_the_node_does_not_have_is_named_with_what_it_has():
    finding = finding_of([spark(1), spark(2, told="10.0.0.99")])
    assert (finding.code, finding.fate) == ("address-missing", Fate.CLUSTER)
    assert finding.says == "spark-2 does not have the address 10.0.0.99 that the recipe names"
    assert "enp1s0f0np0 10.0.0.2/24" in finding.evidence[0].excerpt
    assert finding.evidence[0].node == "spark-2"


def test_an_address_is_taken_at_its_word_where_none_could_be_read():
    blind = Node("b", "b", "10.0.0.2", facts=NodeFacts(unknown={"addresses": "no ip there"}))
    plan = plan_of([node("a", "e0 10.0.0.1/24"), blind])
    assert told(plan)[1] == ("b", "10.0.0.2", None)
    assert (plan.notices[0].code, plan.notices[0].evidence[0].excerpt) == ("interface-unknown", "no ip there")
    unread = finding_of([node("a", "e0 10.0.0.1/24"), replace(blind, address=None)])
    assert (unread.code, unread.evidence[0].excerpt) == ("no-address", "no ip there")


def test_one_node_tells_the_address_by_which_others_come_to_it():
    plan = plan_of([spark(1)])
    assert told(plan) == [("spark-1", "192.168.1.1", "enP7s7")]
    assert plan.rows[0].hcas is None and plan.notices == ()


def test_two_nodes_of_one_machine_meet_at_its_own_address():
    nodes = [replace(node("x", "lo 127.0.0.1/8 loopback", "e0 10.0.0.7/24", machine="m"), name=name) for name in "ab"]
    plan = plan_of(nodes)
    assert told(plan) == [("a", "10.0.0.7", "e0"), ("b", "10.0.0.7", "e0")]
    assert plan.because == "the nodes are one machine: they meet at its own address"


def test_mtus_that_differ_are_told():
    plan = plan_of([node("a", "e0 10.0.0.1/24 mtu=9000"), node("b", "e0 10.0.0.2/24 mtu=1500")])
    assert plan.notices[0].says == "the MTU of 10.0.0.0/24 is not the same on all nodes: a 9000, b 1500"


def test_a_faster_network_that_not_all_have_is_told():
    plan = plan_of(
        [node("a", "e0 10.0.0.1/24 ethernet 1", "e1 10.9.0.1/24 ethernet 100"), node("b", "e0 10.0.0.2/24 ethernet 1")]
    )
    assert codes(plan) == ["faster-link-unused"]
    assert plan.notices[0].says == "10.9.0.1 (e1) of a is faster than what was chosen, 100 Gbit/s: not a network of b"


INTERFACES = ["lo", "eth0", "eth1", "docker0", "wlan0", "wg0", "bond0"]
ROW = st.builds(
    lambda interface, a, b, n, prefix, kind, speed: f"{interface} 10.{a}.{b}.{n}/{prefix} {kind} {speed}",
    st.sampled_from(INTERFACES),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(1, 4),
    st.sampled_from([16, 24, 30, 32]),
    st.sampled_from(["ethernet", "wifi", "bridge", "virtual", "tunnel", "loopback", "other"]),
    st.sampled_from(["", "1", "100"]),
)
CLUSTERS = st.lists(st.lists(ROW, max_size=5), min_size=1, max_size=4).map(
    lambda all_rows: [node(f"n{at}", *rows, rdma=[port("r", "eth1")]) for at, rows in enumerate(all_rows)]
)


@given(CLUSTERS)
def test_every_chosen_address_is_one_that_the_node_could_tell(nodes):
    plan = choose_links(nodes, AT)
    assert plan == choose_links(nodes, AT)
    if not isinstance(plan, AddressPlan):
        assert plan.code == "no-address" and any(not offers_of(one)[0] for one in nodes)
        return
    for one, row in zip(nodes, plan.rows, strict=True):
        assert row.zmq.ip in [offer.ip for offer in offers_of(one)[0]]
        assert row.node == one.name and row.rendezvous == plan.rows[0].zmq.ip
    if plan.link.network != ROUTED:
        assert len({one.ip for one in plan.link.told}) == len(nodes)


@given(CLUSTERS)
def test_the_plans_end_and_none_is_tried_twice(nodes):
    plan, tried = choose_links(nodes, AT), []
    while isinstance(plan, AddressPlan):
        assert plan.link not in tried
        tried.append(plan.link)
        plan = next_plan(plan, nodes, AT)
