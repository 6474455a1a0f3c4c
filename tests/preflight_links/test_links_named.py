"""Interfaces, addresses and ports that a recipe's variables name, against what each node has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Artefact, Candidate, Fate, Setting
from bascule.preflight.choose import with_addresses
from bascule.preflight.named import matches, names_are_there
from bascule.preflight.retold import retold
from preflight_links.clusters import AT, node, plan_of, spark

NODES = with_addresses([spark(1), spark(2)], plan_of([spark(1), spark(2)]))


def found(name, value, on=None, nodes=NODES):
    candidate = Candidate("c", "vllm", Artefact("venv", "/v"), "/m", (Setting("env", name, value, on),))
    return names_are_there(candidate, nodes, AT)


@pytest.mark.parametrize(
    ("name", "value", "code", "right"),
    [
        ("GLOO_SOCKET_IFNAME", "eth9", "interface-missing", "enp1s0f0np0"),
        ("GLOO_SOCKET_IFNAME", "enp1s0f0np0,eth9", "interface-missing", "enp1s0f0np0"),
        ("GLOO_SOCKET_IFNAME", "^docker", "interface-missing", "enp1s0f0np0"),  # Gloo knows no such lists
        ("NCCL_SOCKET_IFNAME", "eth9", "interface-missing", "=enp1s0f0np0"),
        ("NCCL_SOCKET_IFNAME", "=enp1s0f0", "interface-missing", "=enp1s0f0np0"),
        ("VLLM_HOST_IP", "10.0.0.77", "address-missing", "10.0.0.2"),
        ("SGLANG_HOST_IP", "10.0.0.1", "address-missing", "10.0.0.2"),  # the head's, told to all nodes
        ("NCCL_IB_HCA", "=mlx5_0", "rdma-port-missing", "=rocep1s0f0:1,roceP2p1s0f0:1"),
        ("NCCL_IB_HCA", "rocep1s0f0:2", "rdma-port-missing", "=rocep1s0f0:1,roceP2p1s0f0:1"),
    ],
)
def test_what_a_node_does_not_have_is_named_with_the_one_change_that_cures_it(name, value, code, right):
    finding = found(name, value, on="spark-2")
    assert (finding.code, finding.fate) == (code, Fate.ADJUST)
    assert finding.change == Setting("env", name, right, "spark-2")
    assert finding.says.startswith("spark-2 ") and name in finding.says
    assert finding.evidence[0].node == "spark-2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GLOO_SOCKET_IFNAME", "enP7s7"),
        ("GLOO_SOCKET_IFNAME", "enP7s7,lo"),
        ("NCCL_SOCKET_IFNAME", "enp1s0f0"),
        ("NCCL_SOCKET_IFNAME", "^docker,lo"),
        ("NCCL_SOCKET_IFNAME", "=enp1s0f0np0"),
        ("NCCL_IB_HCA", "roce"),
        ("NCCL_IB_HCA", "=rocep1s0f0:1"),
        ("NCCL_IB_HCA", "^roceP2p1s0f0"),
        ("NCCL_DEBUG", "INFO"),
    ],
)
def test_what_every_node_has_is_left_alone(name, value):
    assert found(name, value) is None


def test_a_name_of_one_node_is_not_that_of_another():
    nodes = [node("a", "eth5 10.0.0.1/24"), node("b", "enp3s0 10.0.0.2/24")]
    finding = found("GLOO_SOCKET_IFNAME", "eth5", nodes=nodes)
    assert finding.says == "b has no interface eth5 with an address, which GLOO_SOCKET_IFNAME names"
    assert finding.change == Setting("env", "GLOO_SOCKET_IFNAME", "enp3s0", "b")
    assert finding.evidence[0].excerpt == "it has enp3s0 10.0.0.2"


@pytest.mark.parametrize("name", ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "VLLM_HOST_IP", "NCCL_IB_HCA"])
def test_of_a_node_that_could_not_be_read_nothing_is_said(name):
    blind = [replace(one, facts=NodeFacts()) for one in NODES]
    assert found(name, "nothing-like-it", nodes=blind) is None


NAMES = st.lists(st.sampled_from(["eth0", "eth1", "eth10", "lo", "ib0"]), unique=True)


@given(NAMES, NAMES)
def test_a_list_and_its_exclusion_share_all_names_between_them(there, wanted):
    taken, left = matches("=" + ",".join(wanted), there), matches("^=" + ",".join(wanted), there)
    if wanted:
        assert sorted(taken + left) == sorted(there) and set(taken) <= set(wanted)


def test_a_prefix_takes_more_than_a_name():
    assert matches("eth1", ["eth1", "eth10", "lo"]) == ["eth1", "eth10"]
    assert matches("=eth1", ["eth1", "eth10", "lo"]) == ["eth1"]


def test_what_variables_change_is_what_is_proven():
    plan = plan_of([spark(1), spark(2)])
    env = {"GLOO_SOCKET_IFNAME": "enP7s7", "NCCL_SOCKET_IFNAME": "^enp1s0f0,lo,docker", "VLLM_HOST_IP": "192.168.2.2"}
    rows = retold(plan, [spark(1), spark(2)], {"spark-2": env}).rows
    assert rows[0] == plan.rows[0]
    assert (rows[1].gloo.ip, rows[1].nccl.ip, rows[1].zmq.ip) == ("192.168.1.2", "192.168.1.2", "192.168.2.2")
    assert [told.interface for told in rows[1].told] == ["enP7s7", "wlP9s9"]


def test_a_variable_that_names_nothing_changes_nothing():
    plan = plan_of([spark(1), spark(2)])
    envs = {"spark-1": {"GLOO_SOCKET_IFNAME": "eth9", "VLLM_HOST_IP": "10.9.9.9", "NCCL_SOCKET_IFNAME": "=eth9"}}
    assert retold(plan, [spark(1), spark(2)], envs) == plan
