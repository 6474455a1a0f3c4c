"""A real dockerd on a host behind ssh: its images are found and looked into, and what it lacks is pulled by it."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from bascule.candidates.ask import Ask
from bascule.candidates.choose import discover_candidates
from bascule.core.nouns import Model, Node
from bascule.distribute.images.pull import pull
from bascule.lab import hosts
from bascule.registry.doors import Daemon
from bascule.registry.oci import pinned_tag
from bascule.remote.connect import connect
from bascule.remote.facts import read_facts
from lab_parts import lab_of
from probe_views.views_cases import digest, files_of, layer, saved, under
from registry.registry_parts import direct, registry

pytestmark = pytest.mark.lab

NAME, NET = "disco", 87
NEW = under(files_of("vllm-0.32.0", "transformers-5.19.0"))
OLD = under(files_of("vllm-0.14.0", "transformers-4.57.6"))
MODEL = Model("Qwen3_5MoeForCausalLM", ("Qwen3_5MoeForCausalLM",), "qwen3_5_moe_text")
REGISTRY = """
version: 0.1
storage: {filesystem: {rootdirectory: /run/host/registry}}
http: {addr: "127.0.0.1:5000"}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with lab_of(tmp_path_factory, NAME, 1, NET) as made:
        for tag, files in {"vllm-node:1": NEW, "vllm-old:1": OLD, "plain:1": {"etc/x": b"x"}}.items():
            load(made, tag, layer(files))
        yield made


def load(lab, tag, whole):
    root = {"type": "layers", "diff_ids": [digest(whole)]}
    config = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sh"]}, "rootfs": root}
    archive = saved([whole], newer=False, config=json.dumps(config).encode())
    inside(lab, "docker", "load", data=archive)
    inside(lab, "docker", "tag", "engine:1", tag)
    inside(lab, "docker", "rmi", "engine:1")


def inside(lab, *words, data=b""):
    done = subprocess.run(hosts.inside(lab.hosts[0], words), input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


def reached(user):
    node = Node("h1", f"{user}@h1")
    runners = connect([node])
    return asyncio.run(read_facts(runners["h1"], node)), runners


@pytest.mark.parametrize("user", ["root", "op"])
def test_images_of_a_host_are_found_and_looked_into(lab, user):
    node, runners = reached(user)
    found = asyncio.run(discover_candidates(Ask(MODEL, [node], runners, offline=True)))
    assert [(row.offer.name, row.verdict.word) for row in found.ranking.candidates] == [("vllm-node:1", "YES")]
    assert [(row.offer.name, row.verdict.word) for row in found.ranking.refused] == [("vllm-old:1", "NO")]
    assert found.ranking.candidates[0].offer.platforms == ("linux/amd64",)


def test_the_image_of_a_registry_that_a_host_has_already_is_told_once(lab, tmp_path_factory):
    node, runners = reached("root")
    with registry(tmp_path_factory.mktemp("registry")) as real:
        real.image("vllm/vllm-openai", "1", NEW, "amd64")  # the same layers
        ask = Ask(
            MODEL,
            [node],
            runners,
            search=True,
            references=("vllm/vllm-openai:1",),
            limit=0,
            access=direct(daemon=Daemon((f"http://{real.host}",))),
            hub="http://127.0.0.1:1",
        )
        found = asyncio.run(discover_candidates(ask))
    (row,) = found.ranking.candidates
    assert row.offer.names == ("vllm-node:1", "vllm/vllm-openai:1") and row.offer.nodes == ("h1",)
    assert row.offer.publisher.name == "vLLM project" and row.because.startswith("vLLM 0.32.0 knows")


def test_a_host_pulls_what_it_lacks_by_its_digest(lab):
    node, runners = reached("op")
    folder = lab.host_folder(lab.hosts[0])
    (folder / "registry.yml").write_text(REGISTRY)
    words = hosts.inside(lab.hosts[0], ("docker-registry", "serve", "/run/host/registry.yml"))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            name = "127.0.0.1:5000/team/vllm:1"
            inside(lab, "docker", "tag", "vllm-node:1", name)
            inside(lab, "sh", "-c", f"until docker push -q {name}; do sleep 0.2; done")
            known = json.loads(inside(lab, "docker", "image", "inspect", name))[0]["RepoDigests"]
            digest_there = next(one for one in known if "/team/vllm@" in one).partition("@")[2]
            inside(lab, "docker", "rmi", name, "vllm-node:1")
            told = []
            ref = pinned_tag(name, digest_there)
            assert asyncio.run(pull(ref, node, runners["h1"], told.append, direct())) is None
            assert inside(lab, "docker", "image", "inspect", "--format", "{{.RepoTags}}", ref) == f"[{ref}]"
            lost = asyncio.run(pull("127.0.0.1:5000/team/none:1", node, runners["h1"], told.append, direct()))
            assert lost.code == "registry-missing" and "none:1" in lost.says
            away = asyncio.run(pull("127.0.0.1:1/team/none:1", node, runners["h1"], told.append, direct()))
            assert away.code == "registry-unreachable", away.evidence
        finally:
            inside(lab, "docker", "tag", ref, "vllm-node:1")
            subprocess.run(hosts.inside(lab.hosts[0], ("pkill", "docker-registry")), check=False)
            server.wait(10)
