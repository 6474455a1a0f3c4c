"""The tables of GPUs, links and engines: they can be read, and each name leads to its own row."""

from __future__ import annotations

import tomllib
from datetime import date
from importlib import resources

import pytest

from bascule.core.machine import Gpu, NodeFacts
from bascule.core.nouns import Node
from bascule.discover.hardware import (
    engine_memory,
    engines_with_memory,
    gpu_model,
    gpu_names,
    link,
    link_kinds,
    reserved,
)
from bascule.discover.rooms import imagined, room_of, rooms_of

GIB = 1 << 30


def table(name: str) -> dict:
    return tomllib.loads(resources.files("bascule.discover").joinpath(f"data/{name}.toml").read_text())


def test_every_gpu_is_found_by_its_own_name() -> None:
    names = gpu_names()
    assert len(set(names)) == len(names)
    for name in names:
        assert gpu_model(name).name == name
        assert gpu_model(f"NVIDIA {name}").name == name


@pytest.mark.parametrize(
    ("told", "name", "gigabytes_a_second"),
    [
        ("NVIDIA GB10", "GB10", 273),
        ("NVIDIA H100 80GB HBM3", "H100", 3352),
        ("NVIDIA H100 PCIe", "H100 PCIe", 2039),
        ("NVIDIA H200", "H200", 4800),
        ("NVIDIA H20", "H20", 4000),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB", 2039),
        ("NVIDIA A100-SXM4-40GB", "A100", 1555),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe", 1935),
        ("NVIDIA A10", "A10", 600),
        ("NVIDIA L40S", "L40S", 864),
        ("NVIDIA L40", "L40", 864),
        ("NVIDIA L4", "L4", 300),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", 1008),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 960),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000", 1792),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Server", 1597),
        ("NVIDIA B300 SXM6 AC", "B300", 8000),
        ("NVIDIA GB200", "GB200", 8000),
        ("Tesla T4", "T4", 320),
    ],
)
def test_names_as_nvidia_smi_prints_them(told: str, name: str, gigabytes_a_second: float) -> None:
    found = gpu_model(told)
    assert (found.name, found.bandwidth / 1e9) == (name, gigabytes_a_second)


def test_what_is_in_no_table_is_none() -> None:
    assert gpu_model("Radeon") is None
    assert link("pigeon") is None
    assert engine_memory("nobody") is None


def test_every_row_is_whole() -> None:
    for row in table("gpus")["gpu"]:
        assert row["link"] in link_kinds()
        assert row["sm"].startswith("sm_")
        assert 10 < row["memory_mib"] / 1024 < 400
        assert 100 < row["bandwidth_gb_s"] < 10_000
    for kind in link_kinds():
        assert table("links")[kind]["source"]
        assert 0 < link(kind).latency_s < 1e-3
    for name in ("gpus", "links", "engine_memory"):
        assert isinstance(table(name)["checked"], date)
    for name in engines_with_memory():
        rules = engine_memory(name)
        assert rules.steps[-1].memory == 0  # there is a step for every GPU
        for kind in ("vram", "unified", "ram"):
            assert 0 < rules.usual[kind] <= rules.most[kind] < 1
            assert rules.context[kind] > 0


def test_a_release_has_its_own_rules() -> None:
    assert engine_memory("vllm", "0.24.0").cache.states == 1
    assert engine_memory("vllm", "0.32.0").cache.states == 2
    assert engine_memory("vllm").cache.states == 2


SPARK = NodeFacts(memory_bytes=128 * 10**9, memory_free_bytes=100 * 10**9, gpus=(Gpu(0, "NVIDIA GB10"),))


def test_the_memory_of_a_spark_is_the_machines() -> None:
    room = room_of(Node("a", "a", facts=SPARK))
    assert (room.kind, room.total, room.free, room.bandwidth) == ("unified", 128 * 10**9, 100 * 10**9, 273e9)


def test_the_memory_of_a_server_is_what_cuda_gives() -> None:
    gpus = tuple(
        Gpu(at, "NVIDIA H200", memory_bytes=143771 << 20, memory_free_bytes=(143000 - at) << 20) for at in range(8)
    )
    room = room_of(Node("a", "a", facts=NodeFacts(gpus=gpus)))
    assert (room.kind, room.gpus) == ("vram", 8)
    assert room.total / GIB == pytest.approx(139.80, abs=0.01)  # as CUDA tells it there
    assert room.free == 142993 << 20
    some = room_of(Node("a", "a", gpus=(1, 2), facts=NodeFacts(gpus=gpus)))
    assert (some.gpus, some.free) == (2, 142998 << 20)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (NodeFacts(unknown={"gpus": "nvidia-smi timed out"}), "nvidia-smi timed out"),
        (NodeFacts(gpus=(Gpu(0, "NVIDIA H200"),)), "was not told"),
        (NodeFacts(gpus=(Gpu(0, "NVIDIA GB10"),), unknown={"memory_bytes": "no /proc"}), "no /proc"),
        (NodeFacts(gpus=()), "was not read"),
    ],
    ids=["gpus", "discrete", "unified", "machine"],
)
def test_memory_that_could_not_be_read_is_none_with_the_reason(facts: NodeFacts, why: str) -> None:
    room = room_of(Node("a", "a", facts=facts))
    assert room.total is None
    assert why in room.unknown


def test_a_gpu_that_no_table_has_is_measured_by_its_facts_but_has_no_speed() -> None:
    room = room_of(Node("a", "a", facts=NodeFacts(gpus=(Gpu(0, "NVIDIA Z1", memory_bytes=100 * GIB),))))
    assert room.total == 100 * GIB - reserved()
    assert room.bandwidth is None


def test_a_gpu_that_the_recipe_names_and_nobody_has_is_unknown() -> None:
    room = room_of(Node("a", "a", gpus=(7,), facts=SPARK))
    assert room.total is None
    assert room.unknown


def test_nodes_of_one_machine_are_told_apart_by_their_gpus() -> None:
    gpus = tuple(Gpu(at, "NVIDIA H200", memory_bytes=140 * GIB) for at in range(2))
    facts = NodeFacts(gpus=gpus, machine_id="x")
    apart = rooms_of([Node("a", "l", gpus=(0,), facts=facts), Node("b", "l", gpus=(1,), facts=facts)])
    assert [room.sharers for room in apart] == [1, 1]
    same = rooms_of([Node("a", "l", gpus=(0,), facts=facts), Node("b", "l", gpus=(0,), facts=facts)])
    assert [room.sharers for room in same] == [2, 2]
    other = rooms_of([Node("a", "l", facts=facts), Node("b", "l", facts=NodeFacts(gpus=gpus, machine_id="y"))])
    assert [room.sharers for room in other] == [1, 1]


def test_an_imagined_spark_is_as_large_as_a_real_one() -> None:
    room = imagined("a", gpu_model("GB10"), "GB10", 1)
    assert room.total / GIB == pytest.approx(119.6, abs=0.1)
    assert room.kind == "unified"
