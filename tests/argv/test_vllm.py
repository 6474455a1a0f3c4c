"""vLLM: the exact words and environment of every rank; a wrong one is a start that hangs, or serves wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bascule.core.nouns import Endpoint, LaunchPlan, Setting

Told = Callable[..., list[str]]
Planned = Callable[..., LaunchPlan]

ONE = """
service: tiny
model: /models/tiny
nodes: [a]
candidates: [{engine: vllm, venv: /opt/vllm}]
"""

TWO = """
service: qwen
model: /models/q
nodes: [a, b]
context: 4096
candidates: [{engine: vllm, venv: /opt/vllm}]
"""

THREE = """
service: qwen
model: models/q
served_name: qwen3.5
port: 9000
rendezvous_port: 29600
nodes: [a, {name: b, address: 192.168.1.2}, c]
candidates:
  - engine: vllm
    venv: ../vllm
    pipeline_parallel: 3
    args: --enforce-eager
    env: {NCCL_DEBUG: INFO}
    env_on:
      b: {NCCL_IB_HCA: rocep1s0f0, GLOO_SOCKET_IFNAME: eth9}
"""


def test_one_node_has_no_group(told: Told) -> None:
    assert told(ONE) == [
        "0 a: VLLM_HOST_IP=10.0.0.1 HOST_IP=10.0.0.1 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1"
        " /opt/vllm/bin/python -m vllm.entrypoints.cli.main serve /models/tiny --served-model-name tiny"
        " --tensor-parallel-size 1 --host 10.0.0.1 --port 8000"
    ]


def test_two_nodes_tell_each_their_own_address_and_only_the_head_answers(told: Told) -> None:
    assert told(TWO) == [
        "0 a: VLLM_HOST_IP=10.0.0.1 HOST_IP=10.0.0.1 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1"
        " /opt/vllm/bin/python -m vllm.entrypoints.cli.main serve /models/q --served-model-name qwen"
        " --tensor-parallel-size 2 --max-model-len 4096"
        " --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 --host 10.0.0.1 --port 8000",
        "1 b: VLLM_HOST_IP=10.0.0.2 HOST_IP=10.0.0.2 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1"
        " /opt/vllm/bin/python -m vllm.entrypoints.cli.main serve /models/q --served-model-name qwen"
        " --tensor-parallel-size 2 --max-model-len 4096"
        " --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 --headless",
    ]


def test_three_stages_on_three_nodes_with_a_node_that_differs(told: Told) -> None:
    assert told(THREE) == [
        "0 a: VLLM_HOST_IP=10.0.0.1 HOST_IP=10.0.0.1 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 NCCL_DEBUG=INFO"
        " /vllm/bin/python -m vllm.entrypoints.cli.main serve /base/models/q --served-model-name qwen3.5"
        " --tensor-parallel-size 1 --pipeline-parallel-size 3"
        " --nnodes 3 --node-rank 0 --master-addr 10.0.0.1 --master-port 29600 --host 10.0.0.1 --port 9000"
        " --enforce-eager",
        "1 b: VLLM_HOST_IP=192.168.1.2 HOST_IP=192.168.1.2 GLOO_SOCKET_IFNAME=eth9 NCCL_SOCKET_IFNAME==wlP9s9"
        " HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 NCCL_DEBUG=INFO NCCL_IB_HCA=rocep1s0f0"
        " /vllm/bin/python -m vllm.entrypoints.cli.main serve /base/models/q --served-model-name qwen3.5"
        " --tensor-parallel-size 1 --pipeline-parallel-size 3"
        " --nnodes 3 --node-rank 1 --master-addr 10.0.0.1 --master-port 29600 --headless --enforce-eager",
        "2 c: VLLM_HOST_IP=10.0.0.3 HOST_IP=10.0.0.3 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 NCCL_DEBUG=INFO"
        " /vllm/bin/python -m vllm.entrypoints.cli.main serve /base/models/q --served-model-name qwen3.5"
        " --tensor-parallel-size 1 --pipeline-parallel-size 3"
        " --nnodes 3 --node-rank 2 --master-addr 10.0.0.1 --master-port 29600 --headless --enforce-eager",
    ]


def test_it_answers_on_the_head_under_the_served_name(planned: Planned) -> None:
    assert planned(TWO).endpoint == Endpoint("http://10.0.0.1:8000/v1", "qwen", "/health")
    assert planned(THREE).endpoint == Endpoint("http://10.0.0.1:9000/v1", "qwen3.5", "/health")


@pytest.mark.parametrize(
    "typed", ["--tp 4", "--tp=4", "-tp 4", "-tp=4", "--tensor-parallel-size 4", "--tensor-parallel-size=4"]
)
def test_every_spelling_of_a_flag_replaces_ours(planned: Planned, typed: str) -> None:
    for rank in planned(TWO, words=typed).ranks:
        words = list(rank.argv)
        assert words[words.index("--tensor-parallel-size") + 1] == "4"
        assert words.count("--tensor-parallel-size") == 1
        assert not {"--tp", "-tp"} & set(words)


def test_a_value_may_be_json_or_a_negative_number(planned: Planned) -> None:
    words = planned(ONE, words="--seed -1 --override-generation-config '{\"top_k\": 1}' --enforce-eager").ranks[0].argv
    assert words[-5:] == ("--seed", "-1", "--override-generation-config", '{"top_k": 1}', "--enforce-eager")


def test_a_repair_may_take_a_flag_of_ours_away(planned: Planned) -> None:
    plan = planned(TWO, change=Setting("flag", "--max-model-len", None))
    assert all("--max-model-len" not in rank.argv and "4096" not in rank.argv for rank in plan.ranks)


def test_a_repair_on_one_node_leaves_the_other_alone(planned: Planned) -> None:
    before, after = planned(TWO), planned(TWO, change=Setting("env", "GLOO_SOCKET_IFNAME", "wlP9s9", "b"))
    assert after.ranks[0] == before.ranks[0]
    assert after.ranks[1].env == {**before.ranks[1].env, "GLOO_SOCKET_IFNAME": "wlP9s9"}
    unset = planned(TWO, change=Setting("env", "NCCL_SOCKET_IFNAME", None, "b"))
    assert "NCCL_SOCKET_IFNAME" in unset.ranks[0].env
    assert "NCCL_SOCKET_IFNAME" not in unset.ranks[1].env


def test_one_node_of_several_can_be_chosen(planned: Planned) -> None:
    plan = planned(TWO.replace("venv: /opt/vllm", "venv: /opt/vllm, nodes: [b]"))
    assert [rank.node for rank in plan.ranks] == ["b"]
    assert plan.endpoint.url == "http://10.0.0.2:8000/v1"
    assert "--nnodes" not in plan.ranks[0].argv
