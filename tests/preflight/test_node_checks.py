"""What a person is told of the nodes: each fault by its own notice, and nothing of a node that is well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bascule.core.machine import Disk, DockerFacts, Gpu, GpuProcess, NodeFacts, RdmaPort
from bascule.core.notices import Notice
from bascule.core.nouns import Evidence, Fate, Node
from bascule.preflight.node_checks import blocker, node_checks
from bascule.remote.facts import parse_facts

NOW = datetime(2026, 12, 1, tzinfo=UTC)
GB, GIB = 10**9, 2**30
DOCKER = DockerFacts(("docker",), "28.5.1", "overlay2", "/var/lib/docker", "arm64", nvidia=True)
DISKS = (
    Disk("run", "/home/a/ranks", "/", 119 * GB, "/dev/nvme0n1p2"),
    Disk("cache", "/home/a/.cache/huggingface/hub", "/", 119 * GB, "/dev/nvme0n1p2"),
    Disk("docker", "/var/lib/docker", "/", 119 * GB, "/dev/nvme0n1p2"),
)
WELL = NodeFacts(
    hostname="spark-1",
    disks=DISKS,
    own_name_ip="10.0.0.1",
    gpus=(Gpu(0, "NVIDIA GB10", "sm_121"),),
    driver="580.95",
    cuda="13.0",
    gpu_processes=(GpuProcess("GPU-a", 7, "python3", 40 * GIB, rank="svc.1.1.r0"),),
    rdma=(RdmaPort("rocep1s0f0", 1, True, "Ethernet", 200.0, "enp1s0f0np0"),),
    docker=DOCKER,
    memlock=True,
    user_memlock_bytes=-1,
    python3="3.12.3",
    clock_offset_s=0.3,
    clock_error_s=0.1,
)
ROOT = Path(__file__).parents[1] / "facts"


def node(name: str = "spark-1", **changes: Any) -> Node:
    return Node(name, name, facts=replace(WELL, **changes))


def told(*nodes: Node, needs: Mapping[str, Mapping[str, int]] | None = None) -> list[Notice]:
    return node_checks(nodes, needs or {}, NOW)


def only(*nodes: Node, needs: Mapping[str, Mapping[str, int]] | None = None) -> Notice:
    (one,) = told(*nodes, needs=needs)
    assert one.evidence and all(seen.seen_at == NOW for seen in one.evidence)
    return one


def test_of_nodes_that_are_well_nothing_is_told() -> None:
    assert told(node(), node("spark-2")) == []


@pytest.mark.parametrize(
    ("offset", "error", "off"), [(2.2, 0.1, True), (2.2, 0.3, False), (-90.0, 0.01, True), (1.9, 0.0, False)]
)
def test_a_clock_is_off_when_it_is_so_for_certain(offset: float, error: float, off: bool) -> None:
    assert bool(told(node(clock_offset_s=offset, clock_error_s=error))) == off


def test_a_clock_that_is_off() -> None:
    one = only(node(clock_offset_s=-400.0, clock_error_s=0.02))
    assert (one.code, one.weight, one.node) == ("clock-off", "warning", "spark-1")
    assert one.says == "the clock of spark-1 is 7 min behind this machine's"
    assert one.evidence[0] == Evidence("spark-1", "date", NOW, "-400.000 s, give or take 0.020 s")
    assert "timedatectl set-ntp true" in one.advice
    assert "5.0 s ahead of" in only(node(clock_offset_s=5.0)).says


def test_an_image_and_weights_that_do_not_fit_together_on_one_disk() -> None:
    one = only(node(), needs={"spark-1": {"docker": 14 * GB, "cache": 127 * GB}})
    assert (one.code, one.weight) == ("disk-too-small", "blocker")
    places = "/home/a/.cache/huggingface/hub, /var/lib/docker on spark-1"
    assert one.says == f"141 GB are still to come to {places}, and 119 GB are free there"
    assert one.advice == "free 22 GB there"
    assert [seen.source for seen in one.evidence] == ["df /home/a/.cache/huggingface/hub", "df /var/lib/docker"]
    assert told(node(), needs={"spark-1": {"docker": 14 * GB, "cache": 105 * GB}}) == []
    assert told(node(), needs={"spark-2": {"cache": 500 * GB}}) == [], "another node's needs"


def test_disks_of_their_own_are_each_looked_at() -> None:
    apart = (DISKS[0], replace(DISKS[1], mount="/data", source="/dev/sdb"), DISKS[2])
    assert told(node(disks=apart), needs={"spark-1": {"docker": 100 * GB, "cache": 100 * GB}}) == []
    one = only(node(disks=apart), needs={"spark-1": {"docker": 14 * GB, "cache": 127 * GB}})
    assert "/var/lib/docker" not in one.says


def test_the_first_blocker_becomes_a_finding_that_no_candidate_survives() -> None:
    notices = told(node(clock_offset_s=9.0), needs={"spark-1": {"cache": 500 * GB}})
    finding = blocker(notices)
    assert finding is not None
    assert (finding.fate, finding.code, finding.advice) == (Fate.CLUSTER, "disk-too-small", "free 381 GB there")
    assert blocker(told(node(clock_offset_s=9.0))) is None, "a clock keeps nobody from serving"


def test_an_own_name_that_leads_to_loopback_matters_to_several_nodes() -> None:
    one = only(node(own_name_ip="127.0.1.1"), node("spark-2"))
    assert (one.code, one.node) == ("own-name-loopback", "spark-1")
    assert one.says.startswith("spark-1 resolves its own name to 127.0.1.1")
    assert told(node(own_name_ip="127.0.1.1")) == []
    assert told(node(own_name_ip=""), node("spark-2")) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"user_memlock_bytes": 8 * 2**20}, "ulimit -l is 8192 KiB"),
        ({"user_memlock_bytes": 0}, "ulimit -l is 0 KiB"),
        ({"memlock": False}, "containers can't lift it"),
    ],
)
def test_memory_that_can_not_be_locked_matters_to_rdma(changes: dict[str, Any], says: str) -> None:
    one = only(node(**changes))
    assert (one.code, one.weight) == ("memlock-low", "warning")
    assert one.says == f"spark-1 has RDMA ports, and memory that may be locked is limited: {says}"
    assert told(node(**changes, rdma=())) == []
    assert told(node(user_memlock_bytes=2**30)) == []
    assert told(node(**changes, rdma=(replace(WELL.rdma[0], active=False),))) == []  # type: ignore[index]


@pytest.mark.parametrize(
    ("why", "code", "weight"),
    [
        ("docker: permission denied while trying; sudo -n docker: not installed", "docker-denied", "warning"),
        ("docker: not installed; sudo -n docker: not installed; podman: not installed", "docker-missing", "note"),
        ("docker: Cannot connect to the Docker daemon; podman: not installed", "docker-silent", "warning"),
    ],
)  # fmt: skip
def test_docker_that_can_not_be_used(why: str, code: str, weight: str) -> None:
    one = only(node(docker=None, unknown={"docker": why}))
    assert (one.code, one.weight, one.evidence[0].excerpt) == (code, weight, why)


def test_docker_that_is_denied_where_podman_works() -> None:
    podman = replace(DOCKER, command=("podman",))
    one = only(node(docker=podman, unknown={"docker.denied": "docker: permission denied"}))
    assert one.says == "the SSH user may not use docker on spark-1; podman is used in its place"


def test_docker_that_can_not_give_gpus() -> None:
    one = only(node(docker=replace(DOCKER, nvidia=False)))
    assert (one.code, one.weight) == ("no-nvidia-runtime", "warning")
    assert told(node(docker=replace(DOCKER, nvidia=False), gpus=(), gpu_processes=())) == []
    assert told(node(docker=replace(DOCKER, nvidia=None))) == [], "not told is no no"


def test_a_gpu_that_is_cut() -> None:
    gpus = tuple(Gpu(index, "NVIDIA H200", "sm_90", GIB, GIB, mig=index in (3, 7)) for index in range(8))
    one = only(node(gpus=gpus))
    assert (one.code, one.weight, one.says) == ("mig-on", "note", "GPU 3, 7 of spark-1 is cut into instances (MIG)")
    assert "nvidia-smi -i 3,7 -mig 0" in one.advice


@pytest.mark.parametrize(
    ("memory", "rank", "weight", "says"),
    [
        (70 * GIB, "", "warning", "python3 (pid 8, 70.0 GiB)"),
        (18 * 2**20, "", "note", "python3 (pid 8, 18 MiB)"),
        (None, "", "warning", "python3 (pid 8)"),
        (2 * GIB, None, "warning", "python3 (pid 8, 2.0 GiB) (whose they are can't be told for all)"),
    ],
)  # fmt: skip
def test_processes_of_others_that_hold_gpu_memory(memory: int | None, rank: str | None, weight: str, says: str) -> None:
    processes = (*(WELL.gpu_processes or ()), GpuProcess("GPU-a", 8, "python3", memory, rank))
    one = only(node(gpu_processes=processes))
    assert (one.code, one.weight, one.says) == ("gpu-in-use", weight, f"GPU memory of spark-1 is held by {says}")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gpus": None, "unknown": {"gpus": "no driver"}}, "the GPUs of spark-1 could not be read: no driver"),
        ({"cuda": None, "unknown": {"cuda": "no"}}, "the CUDA version of spark-1 could not be read: no"),
        ({"unknown": {"gpus.sm": "not told"}}, "the compute capability of spark-1 could not be read: not told"),
    ],
)  # fmt: skip
def test_gpus_that_could_not_be_read_are_unknown(changes: dict[str, Any], says: str) -> None:
    one = only(node(**changes))
    assert (one.code, one.weight, one.says) == ("gpu-unread", "unknown", says)


def test_other_facts_that_matter_and_could_not_be_read() -> None:
    one = only(
        node(
            disks=None, clock_offset_s=None, unknown={"disks": "df hangs", "clock_offset_s": "date said ''", "os": "?"}
        )
    )
    assert (one.code, one.weight) == ("facts-unread", "unknown")
    assert one.says == "disks, clock_offset_s could not be read on spark-1"
    assert one.evidence[0].excerpt == "disks: df hangs; clock_offset_s: date said ''"


@pytest.mark.parametrize(
    ("version", "missing"), [("", True), ("3.8.10", True), ("2.7.18", True), ("3.9.2", False), (None, False)]
)
def test_python3_that_is_missing_or_old(version: str | None, missing: bool) -> None:
    notices = told(node(python3=version))
    assert [(one.code, one.weight) for one in notices] == ([("python3-missing", "note")] if missing else [])


def test_stores_that_differ_are_told_once() -> None:
    one = only(node(), node("spark-2", docker=replace(DOCKER, store="containerd")), node("spark-3"))
    assert (one.code, one.weight, one.node) == ("stores-differ", "note", "")
    assert (
        one.says
        == "docker keeps images differently: overlay2 on spark-1, spark-3; containerd on spark-2; ids will differ"
    )
    assert told(node(), node("spark-2", docker=None, unknown={})) == []


@pytest.mark.parametrize(
    ("machines", "codes"),
    [
        (["dgx-spark", "dgx-spark-2"], {"own-name-loopback", "gpu-in-use", "stores-differ"}),
        (["h200-infiniband"], {"gpu-in-use", "mig-on", "no-nvidia-runtime"}),
        (["h200-without-iproute2"], {"docker-missing", "gpu-unread"}),
        (["docker-denied-podman-rootless"], {"docker-denied"}),
        (["busybox"], {"docker-missing", "facts-unread", "python3-missing"}),
        (["broken"], {"docker-silent", "gpu-unread", "facts-unread"}),
        (["debian12-vm-without-gpu"], set()),
    ],
)
def test_recorded_machines(machines: list[str], codes: set[str]) -> None:
    nodes = [Node(name, name, facts=parse_facts((ROOT / f"{name}.txt").read_text())) for name in machines]
    assert {one.code for one in node_checks(nodes, {}, NOW)} == codes


def test_a_notice_can_not_be_built_without_evidence() -> None:
    with pytest.raises(ValueError, match="notice x has no evidence"):
        Notice("a", "x", "says", ())
