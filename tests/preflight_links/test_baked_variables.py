"""Variables that an image bakes in: what ours replace, what is taken out, and that taking out is real."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.layout import Place
from bascule.core.machine import DockerFacts, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Endpoint, LaunchPlan, Node, RankPlan
from bascule.engines.baked import baked, baked_notice, without_baked
from bascule.engines.base import address_variables
from bascule.launch.baked import baked_notices
from bascule.launch.docker import DockerRuntime
from bascule.remote.runner import Result

IMAGE = {
    "PATH": "/usr/bin",
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_DISABLE": "0",
    "NCCL_NET": "",
    "NCCL_DEBUG": "WARN",
    "SGLANG_HOST_IP": "192.168.1.9",
}
OURS = {"NCCL_SOCKET_IFNAME": "=fab0", "GLOO_SOCKET_IFNAME": "fab0", "VLLM_HOST_IP": "10.0.0.1"}


def test_ours_replace_and_the_others_are_taken_out():
    assert [str(one) for one in baked(IMAGE, OURS)] == [
        "NCCL_SOCKET_IFNAME=eth0 gives way to =fab0",
        "NCCL_IB_GID_INDEX=3 is taken out",
        "SGLANG_HOST_IP=192.168.1.9 is taken out",
    ]


def test_what_the_recipe_sets_itself_stays():
    assert baked({"NCCL_IB_GID_INDEX": "3"}, {"NCCL_IB_GID_INDEX": "3"}) == ()
    assert [one.ours for one in baked({"NCCL_IB_GID_INDEX": "3"}, {"NCCL_IB_GID_INDEX": "5"})] == ["5"]


def test_an_image_without_such_variables_starts_as_before():
    plan = RankPlan(0, "a", ("python3", "-m", "engine"), OURS)
    assert without_baked(plan, {"PATH": "/usr/bin", "NCCL_IB_DISABLE": "0"}) == plan


def test_taken_out_is_unset_and_not_empty():
    plan = RankPlan(0, "a", ("sh", "-c", "echo ${NCCL_IB_GID_INDEX+set} ${NCCL_DEBUG+set}"), OURS)
    done = subprocess.run(without_baked(plan, IMAGE).argv, env=IMAGE, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set"]  # NCCL_DEBUG alone


@given(st.dictionaries(st.sampled_from([*IMAGE, *OURS, "UCX_TLS"]), st.sampled_from(["", "0", "eth0"])), st.booleans())
def test_nothing_that_decides_over_addresses_comes_through(image, ours):
    env = OURS if ours else {}
    out = {one.name for one in baked(image, env) if one.ours is None}
    assert not out & set(env)
    assert {name for name in image if name in ("PATH", "NCCL_DEBUG")} & out == set()
    for name in ("NCCL_IB_GID_INDEX", "SGLANG_HOST_IP", "UCX_TLS"):
        if image.get(name) == "eth0" and name not in env:
            assert name in out


class Docker:
    """Answers `docker image inspect`, and keeps the script of the start."""

    def __init__(self, env):
        self.env, self.scripts = env, []

    async def run(self, argv, *, stdin="", within=30):
        if "inspect" in argv:
            config = {"Env": [f"{name}={value}" for name, value in self.env.items()]}
            return Result(tuple(argv), 0, json.dumps([{"Id": "i", "Config": config}]).encode(), b"")
        self.scripts.append(stdin)
        return Result(tuple(argv), 0, b"", b"")


NODE = Node("a", "local", facts=NodeFacts(docker=DockerFacts(("docker",), "28", "overlay2", "/", "amd64")))
RANK = RankPlan(0, "a", ("python3", "-m", "engine"), OURS)


def test_the_docker_runtime_takes_them_out():
    docker = Docker(IMAGE)
    asyncio.run(DockerRuntime().start(docker, NODE, "s.1.1.r0", RANK, {"artefact": "img@sha256:1"}))
    assert "--entrypoint env" in docker.scripts[0]
    assert "-u NCCL_IB_GID_INDEX -u SGLANG_HOST_IP python3 -m engine" in docker.scripts[0]
    assert "--env NCCL_SOCKET_IFNAME==fab0" in docker.scripts[0]


@pytest.mark.parametrize(("kind", "env", "told"), [("image", IMAGE, 1), ("image", {}, 0), ("venv", IMAGE, 0)])
def test_it_is_told_before_the_start(kind, env, told):
    candidate = Candidate("c", "vllm", Artefact(kind, "img@sha256:1"), "/m")
    plan = LaunchPlan("s", candidate, (RANK,), Endpoint("http://x/v1", "m", "/health"))
    notices = asyncio.run(baked_notices(plan, {"a": NODE}, {"a": Docker(env)}))
    assert len(notices) == told
    if told:
        assert notices[0] == baked_notice("img@sha256:1", "a", baked(IMAGE, OURS), notices[0].evidence[0].seen_at)
        assert "NCCL_IB_GID_INDEX=3 is taken out (one GID index for every RDMA port" in notices[0].says


def test_the_variables_of_a_place():
    place = Place("a", "10.0.0.1", "fab0", hcas=("mlx5_0:1", "mlx5_1:1"))
    assert address_variables(place, "VLLM_HOST_IP") == {
        "VLLM_HOST_IP": "10.0.0.1",
        "GLOO_SOCKET_IFNAME": "fab0",
        "NCCL_SOCKET_IFNAME": "=fab0",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
    }
    assert address_variables(Place("a", "10.0.0.1", "fab0", hcas=()))["NCCL_IB_DISABLE"] == "1"
    for hcas in (None, (), ("mlx5_0:1",)):
        assert "NCCL_IB_GID_INDEX" not in address_variables(Place("a", "10.0.0.1", None, hcas=hcas))
