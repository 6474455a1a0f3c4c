"""SGLang: the exact words and environment of every rank; its message queue's address is told from the start."""

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
candidates: [{engine: sglang, venv: /opt/sglang}]
"""

TWO = """
service: qwen
model: /models/q
nodes: [a, b]
context: 4096
candidates: [{engine: sglang, venv: /opt/sglang}]
"""

THREE = """
service: qwen
model: /models/q
port: 9000
rendezvous_port: 29600
nodes: [a, {name: b, address: 192.168.1.2}, c]
candidates:
  - engine: sglang
    venv: /opt/sglang
    pipeline_parallel: 3
    args: [--mem-fraction-static, "0.8"]
    env_on:
      c: {NCCL_DEBUG: INFO}
"""


def test_one_node_has_no_group(told: Told) -> None:
    assert told(ONE) == [
        "0 a: SGLANG_HOST_IP=10.0.0.1 HOST_IP=10.0.0.1 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1"
        " /opt/sglang/bin/python -m sglang.launch_server --model-path /models/tiny --served-model-name tiny"
        " --tp-size 1 --host 10.0.0.1 --port 8000"
    ]


def test_two_nodes_tell_each_their_own_address(told: Told) -> None:
    assert told(TWO) == [
        "0 a: SGLANG_HOST_IP=10.0.0.1 HOST_IP=10.0.0.1 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1"
        " /opt/sglang/bin/python -m sglang.launch_server --model-path /models/q --served-model-name qwen"
        " --tp-size 2 --context-length 4096 --host 10.0.0.1 --port 8000"
        " --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:29500",
        "1 b: SGLANG_HOST_IP=10.0.0.2 HOST_IP=10.0.0.2 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1"
        " /opt/sglang/bin/python -m sglang.launch_server --model-path /models/q --served-model-name qwen"
        " --tp-size 2 --context-length 4096 --host 10.0.0.2 --port 8000"
        " --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:29500",
    ]


def test_three_stages_on_three_nodes_with_a_node_that_differs(told: Told) -> None:
    assert told(THREE) == [
        "0 a: SGLANG_HOST_IP=10.0.0.1 HOST_IP=10.0.0.1 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1"
        " /opt/sglang/bin/python -m sglang.launch_server --model-path /models/q --served-model-name qwen"
        " --tp-size 1 --pp-size 3 --host 10.0.0.1 --port 9000"
        " --nnodes 3 --node-rank 0 --dist-init-addr 10.0.0.1:29600 --mem-fraction-static 0.8",
        "1 b: SGLANG_HOST_IP=192.168.1.2 HOST_IP=192.168.1.2 GLOO_SOCKET_IFNAME=wlP9s9 NCCL_SOCKET_IFNAME==wlP9s9"
        " HF_HUB_OFFLINE=1"
        " /opt/sglang/bin/python -m sglang.launch_server --model-path /models/q --served-model-name qwen"
        " --tp-size 1 --pp-size 3 --host 192.168.1.2 --port 9000"
        " --nnodes 3 --node-rank 1 --dist-init-addr 10.0.0.1:29600 --mem-fraction-static 0.8",
        "2 c: SGLANG_HOST_IP=10.0.0.3 HOST_IP=10.0.0.3 GLOO_SOCKET_IFNAME=enp1s0f0np0 NCCL_SOCKET_IFNAME==enp1s0f0np0"
        " HF_HUB_OFFLINE=1 NCCL_DEBUG=INFO"
        " /opt/sglang/bin/python -m sglang.launch_server --model-path /models/q --served-model-name qwen"
        " --tp-size 1 --pp-size 3 --host 10.0.0.3 --port 9000"
        " --nnodes 3 --node-rank 2 --dist-init-addr 10.0.0.1:29600 --mem-fraction-static 0.8",
    ]


def test_it_answers_on_the_head_under_the_served_name(planned: Planned) -> None:
    assert planned(THREE).endpoint == Endpoint("http://10.0.0.1:9000/v1", "qwen", "/health")


@pytest.mark.parametrize("typed", ["--tp 4", "--tp=4", "--tensor-parallel-size 4", "--tp-size=4"])
def test_every_spelling_of_a_flag_replaces_ours(planned: Planned, typed: str) -> None:
    for rank in planned(TWO, words=typed).ranks:
        words = list(rank.argv)
        assert words[words.index("--tp-size") + 1] == "4"
        assert words.count("--tp-size") == 1
        assert not {"--tp", "--tensor-parallel-size"} & set(words)


def test_the_word_for_context_that_vllm_uses_is_understood(planned: Planned) -> None:
    words = list(planned(TWO, words="--max-model-len 512").ranks[0].argv)
    assert words[words.index("--context-length") + 1] == "512"
    assert "--max-model-len" not in words


def test_a_repair_on_one_node_leaves_the_other_alone(planned: Planned) -> None:
    before, after = planned(TWO), planned(TWO, change=Setting("env", "SGLANG_HOST_IP", "192.168.1.2", "b"))
    assert after.ranks[0] == before.ranks[0]
    assert after.ranks[1].env == {**before.ranks[1].env, "SGLANG_HOST_IP": "192.168.1.2"}
