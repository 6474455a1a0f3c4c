"""Costs as figures and as words; and of an image that only a registry has."""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bascule import settings
from bascule.core.addresses import Pair
from bascule.core.cost import Cost, Lack, slowest
from bascule.core.machine import DockerFacts, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Node
from bascule.costs import Costs
from bascule.remote.connect import connect
from bascule.remote.runner import Result
from bascule.show.plan import cost_lines, took_text
from probe_views.views_cases import files_of, under
from registry.registry_parts import direct

GB = 10**9
MODEL = Lack("b", "model", "a", 60 * GB, least=60 * GB)
IMAGE = Lack("b", "image", "a", 14 * GB, at_most=True)
PULLED = Lack("a", "image", "docker.io", 8 * GB, registry=True)
UNREAD = Lack("a", "image", "docker.io", None, registry=True, unknown="no route to host")


def pair(rate: float | None) -> Pair:
    return Pair("a", "b", "10.0.0.2", "reached", rate=rate)


def test_the_slowest_pair_counts_and_one_that_was_not_measured_leaves_it_open():
    assert slowest([pair(3e9), pair(1e9)]) == 1e9
    assert slowest([pair(3e9), pair(None)]) is None
    assert slowest([]) is None


@pytest.mark.parametrize(
    ("lacks", "size", "seconds"),
    [
        ((), 0, 0.0),
        ((MODEL,), 60 * GB, 60.0),
        ((MODEL, IMAGE), 74 * GB, 74.0),  # one node takes both
        ((MODEL, replace(MODEL, node="c")), 120 * GB, 60.0),  # two nodes take at once
        ((PULLED,), 8 * GB, None),
        ((PULLED, MODEL), 68 * GB, 60.0),
        ((UNREAD, MODEL), None, 60.0),
        ((replace(MODEL, bytes=None),), None, None),
    ],
)
def test_bytes_and_seconds(lacks, size, seconds):
    cost = Cost(lacks, 1e9)
    assert (cost.bytes, cost.seconds) == (size, seconds)
    assert replace(cost, rate=None).seconds == (0.0 if not lacks else None)


@pytest.mark.parametrize(
    ("cost", "lines"),
    [
        (Cost(), ["nothing has to be copied"]),
        (Cost(unknown="b does not answer"), ["unknown: b does not answer"]),
        (
            Cost((PULLED, IMAGE, MODEL), 2.5e9),
            [
                "a lacks the image, and gets it from docker.io: 8.0 GB, at an unknown rate",
                "b lacks the image, and gets it from a: at most 14.0 GB",
                "b lacks the model, and gets it from a: 60.0 GB",
                "between the nodes 29.6 s at 20 Gbit/s, one TCP stream",
            ],
        ),
        (
            Cost((MODEL,), 1e8),
            [
                "b lacks the model, and gets it from a: 60.0 GB",
                "between the nodes at least 10.0 min at 0.8 Gbit/s, one TCP stream",
            ],
        ),
        (
            Cost((MODEL,)),
            ["b lacks the model, and gets it from a: 60.0 GB", "between the nodes at an unknown rate"],
        ),
        (
            Cost((UNREAD,), 1e9),
            ["a lacks the image, and gets it from docker.io: its size is not known (no route to host)"],
        ),
    ],
)
def test_what_a_person_reads(cost, lines):
    assert cost_lines(cost) == lines


def test_a_start_that_nobody_has_seen_has_no_time():
    assert took_text(None) == "how long it takes here is not known yet"


LAYERS = under(files_of("vllm-0.32.0", "transformers-5.19.0"))


@pytest.fixture
def pulling(real, tmp_path):
    """A node without the image of a registry, whose container engine keeps images in `root`."""

    def ask(name: str, root=tmp_path):
        facts = NodeFacts(docker=DockerFacts(("false",), "28", "overlay2", str(root), "amd64"), arch="x86_64")
        node = Node("a", "local", facts=facts)
        nodes = {"a": node}
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model/config.json").write_text("{}")
        candidate = Candidate("c", "vllm", Artefact("image", f"{real.host}/{name}"), f"{tmp_path}/model", nodes=("a",))
        costs = Costs(nodes, connect([node]), None, direct())
        return asyncio.run(costs.of(candidate, [node]))

    return ask


def test_an_image_of_a_registry_costs_its_packed_layers(real, pulling):
    real.image("team/vllm", "1", {**LAYERS, "etc/pad": os.urandom(2_000_000)}, "amd64")
    cost = pulling("team/vllm:1")
    (lack,) = cost.lacks
    assert (lack.node, lack.what, lack.source, lack.registry) == ("a", "image", real.host, True)
    assert lack.bytes is not None and 2_000_000 < lack.bytes < 6_000_000
    assert cost.refused is None and cost.seconds is None


def test_a_registry_that_does_not_have_it_leaves_the_cost_unknown(pulling):
    cost = pulling("team/nothing:1")
    assert cost.lacks[0].bytes is None and cost.lacks[0].unknown and cost.refused is None and cost.bytes is None


def test_offline_no_registry_is_asked(real, pulling, monkeypatch):
    monkeypatch.setenv(settings.OFFLINE_VARIABLE, "1")
    cost = pulling("team/vllm:1")
    assert cost.lacks == () and cost.refused is not None and cost.refused.code == "image-missing"
    assert not cost.no_room


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small file system, which needs root")
def test_a_disk_too_small_for_the_pull_is_known_before_it(real, pulling, tmp_path):
    real.image("team/large", "1", {**LAYERS, "etc/pad": os.urandom(2_000_000)}, "amd64")
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", root], check=True)
    try:
        cost = pulling("team/large:1", root)
    finally:
        subprocess.run(["umount", root], check=True)
    assert cost.refused is not None and cost.refused.code == "image-no-room" and cost.no_room
    assert datetime.now(UTC) > cost.refused.evidence[0].seen_at


def test_a_node_whose_files_cannot_be_read_is_no_no(tmp_path):
    """Its shell answers nothing: what it has is not known, and that refuses nobody."""
    node = Node("a", "local")
    candidate = Candidate("c", "vllm", Artefact("venv", str(tmp_path)), f"{tmp_path}/model", nodes=("a",))
    runners = {"a": Mute()}
    cost = asyncio.run(Costs({"a": node}, runners, 1e9, direct()).of(candidate, [node]))
    assert cost.refused is None and cost.bytes is None and cost.seconds is None
    assert cost.unknown == "what a holds could not be read: no such shell"


class Mute:
    """A node that can run nothing."""

    async def run(self, argv, *, stdin="", within=30.0):
        return Result(tuple(argv), 127, b"", b"no such shell")
