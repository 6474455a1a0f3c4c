"""The images that nodes have: by docker's and podman's own words, from real ones, and from answers that are none."""

import asyncio
import json
import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.candidates.ask import Ask
from bascule.candidates.choose import discover_candidates
from bascule.core.machine import DockerFacts, NodeFacts
from bascule.core.nouns import Model, Node
from bascule.discover.images import read_images
from bascule.discover.node_images import find_images, offers_of
from bascule.discover.offers import OWN
from bascule.remote.local import LocalRunner
from probe_views.views_cases import files_of, layer, under

IMAGES = read_images()
NEW = under(files_of("vllm-0.32.0", "transformers-5.19.0"))
OLD = under(files_of("vllm-0.14.0", "transformers-4.57.6"))
MODEL = Model("Qwen3_5MoeForCausalLM", ("Qwen3_5MoeForCausalLM",), "qwen3_5_moe_text")
HEX, CONFIG = "a" * 64, "c" * 64


def row(**more):
    """As `docker image inspect` prints it, with overlay2."""
    plain = {
        "Id": f"sha256:{CONFIG}",
        "RepoTags": ["vllm/vllm-openai:v0.17.1"],
        "RepoDigests": [f"vllm/vllm-openai@sha256:{HEX}"],
        "Created": "2026-03-01T10:00:00.5Z",
        "Config": {"Env": ["PATH=/bin", "VLLM_USAGE_SOURCE=x"], "Entrypoint": ["vllm", "serve"], "Labels": None},
        "Architecture": "arm64",
        "Os": "linux",
        "Size": 14_200_000_000,
        "RootFS": {"Type": "layers", "Layers": [f"sha256:{HEX}"]},
    }
    return plain | more


def offers(*rows, node="a"):
    return list(offers_of("\n".join(json.dumps([one]) for one in rows), node, IMAGES))


def test_docker_s_words():
    (one,) = offers(row())
    assert (one.name, one.engine, one.platforms, one.nodes) == (
        "vllm/vllm-openai:v0.17.1",
        "vllm",
        ("linux/arm64",),
        ("a",),
    )
    assert {f"sha256:{HEX}", f"sha256:{CONFIG}"} <= one.identities and len(one.identities) == 3
    assert (one.publisher.name, one.created.year, one.size) == ("vLLM project", 2026, 14_200_000_000)
    assert one.also == ("entrypoint: vllm serve",)


def test_podman_s_words_and_what_was_built_here():
    built = row(Id=CONFIG, RepoTags=["localhost/vllm-node:1"], RepoDigests=[f"localhost/vllm-node@sha256:{HEX}"])
    (one,) = offers(built)
    assert (one.name, one.publisher) == ("vllm-node:1", OWN) and f"sha256:{CONFIG}" in one.identities
    (named,) = offers(row(RepoTags=["vllm-node:1"], RepoDigests=[f"vllm-node@sha256:{HEX}"]))  # docker over containerd
    assert named.publisher == OWN
    (pulled,) = offers(row(RepoDigests=[f"hellohal2064/vllm@sha256:{HEX}"]))
    assert pulled.publisher.kind == "community"


def test_an_image_without_a_name_is_named_by_its_id():
    (one,) = offers(row(RepoTags=[], RepoDigests=[]))
    assert one.name == f"sha256:{CONFIG}" and one.publisher == OWN


@pytest.mark.parametrize(
    "line", ["", "[]", "null", "[5]", '[{"Id": 5}]', "[" * 9000, '{"Id": "x"}', "Error: no such image"]
)
def test_lines_that_are_no_images(line):
    assert list(offers_of(line, "a", IMAGES)) == []


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*row()]), ANY))
def test_fields_of_any_shape_are_survived(fields):
    found = offers(row() | fields)
    assert len(found) == (1 if isinstance((row() | fields)["Id"], str) else 0)


def test_the_same_layers_are_one_image_whatever_the_stores_call_it():
    other = row(Id=f"sha256:{'d' * 64}", RepoTags=["vllm-copy:1"], RepoDigests=[])
    (_, one), (_, two) = ((node, offers(made, node=node)[0]) for node, made in (("a", row()), ("b", other)))
    assert one.identities & two.identities == {name for name in one.identities if name.startswith("layers:")}


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    """Podman with a store of its own, as the words that reach it."""
    if not shutil.which("podman") or os.getuid():
        if "CI" in os.environ:
            pytest.fail("CI needs podman, as root")
        pytest.skip("no podman for root")
    folder = tmp_path_factory.mktemp("podman")
    words = ("podman", "--storage-driver", "vfs", "--root", str(folder / "root"), "--runroot", str(folder / "run"))
    for tag, files in {"vllm-node:1": NEW, "vllm-old:1": OLD, "other:1": {"etc/x": b"x"}}.items():
        (folder / "root.tar").write_bytes(layer(files))
        label = ("--change", "LABEL note=a\\\\nb")  # a backslash that no shell may take for its own
        subprocess.run([*words, "import", "--quiet", *label, folder / "root.tar", tag], check=True, capture_output=True)
    return words


def node_with(command):
    docker = DockerFacts(command, "4", "vfs", "", "amd64")
    return Node("a", "local", facts=NodeFacts(docker=docker, arch="x86_64"))


def test_real_podman_s_images_are_found_and_looked_into(podman):
    node = node_with(podman)
    ask = Ask(MODEL, [node], {"a": LocalRunner(node)}, offline=True, environments=("/nowhere",))
    found = asyncio.run(discover_candidates(ask))
    assert [(row.offer.name, row.verdict.word) for row in found.ranking.candidates] == [("vllm-node:1", "YES")]
    assert [(row.offer.name, row.verdict.word) for row in found.ranking.refused] == [("vllm-old:1", "NO")]
    because = "vLLM 0.32.0 knows Qwen3_5MoeForCausalLM; on every node; built here"
    assert found.ranking.candidates[0].because.startswith(because)
    assert not found.reached and found.unread == ()


def test_a_node_whose_docker_fails_is_told(podman):
    node = node_with(("podman", "--no-such-option"))
    found = asyncio.run(find_images([node], {"a": LocalRunner(node)}, IMAGES))
    assert found.offers == () and "podman" in found.unread["a"]
    without = Node("b", "local", facts=NodeFacts(unknown={"docker": "docker: not installed"}))
    found = asyncio.run(find_images([without], {"b": LocalRunner(without)}, IMAGES))
    assert found.unread == {"b": "docker: not installed"}
