"""The table of `bascule doctor`, from recorded machines: columns for a few, lines for many, and what is told below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bascule.core.machine import NodeFacts
from bascule.core.notices import Notice
from bascule.core.nouns import Evidence, Fate, Finding, Node, Step
from bascule.errors import NodeUnreachable
from bascule.operate.doctor import Examination
from bascule.preflight.addresses import Proven
from bascule.preflight.node_checks import node_checks
from bascule.remote.facts import parse_facts
from bascule.show.doctor import doctor_lines, notice_lines

FACTS = Path(__file__).parents[1] / "facts"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
GB = 10**9


def examined(
    machines: Mapping[str, str], *lost: str, needs: Mapping[str, Mapping[str, int]] | None = None
) -> Examination:
    nodes = [Node(name, name, facts=facts_of(file)) for name, file in machines.items()]
    errors = {name: NodeUnreachable("node-unreachable", f"{name} does not answer over ssh") for name in lost}
    return Examination((*machines, *lost), tuple(nodes), errors, tuple(node_checks(nodes, needs or {}, NOW)))


def facts_of(file: str) -> NodeFacts:
    facts = parse_facts((FACTS / f"{file}.txt").read_text())
    return replace(facts, clock_offset_s=-0.0123, clock_error_s=0.01, round_trip_s=0.012)


def test_two_dgx_sparks_and_one_that_is_down() -> None:
    found = examined(
        {"spark-1": "dgx-spark", "spark-2": "dgx-spark-2"}, "spark-3", needs={"spark-2": {"cache": 127 * GB}}
    )
    assert (
        "\n".join(doctor_lines(found))
        == """\
            spark-1               spark-2               spark-3
ssh         12 ms                 12 ms                 ✗ no answer   for a short command
machine     aarch64 · 20 cores    aarch64 · 20 cores
docker      28.5 overlay2         29.2 containerd                     stores differ
gpu         GB10 sm_121           GB10 sm_121                         driver 580.142 = CUDA 13.0
gpu memory  unified               unified
memory      112 of 122 GiB        118 of 122 GiB                      free
disk        420 GB                22 GB                               free
rdma        2 × 200 Gbit/s RoCE   2 × 200 Gbit/s RoCE
clock       −0.01 s               −0.01 s                             against this machine
✗           127 GB are still to come to /home/aurora/.cache/huggingface/hub on spark-2, and 22 GB are free there
            try: free 105 GB there
warning     spark-1 resolves its own name to 127.0.1.1 (Gloo would use it; bascule sets GLOO_SOCKET_IFNAME)
            the same: spark-2
            try: for other programs: take its name from the line of 127.0.1.1 in /etc/hosts of spark-1
note        GPU memory of spark-1 is held by /usr/lib/xorg/Xorg (pid 2558, 18 MiB)
            the same: spark-2
            try: end them, or give the engine less of the GPU on spark-1
note        docker keeps images differently: overlay2 on spark-1; containerd on spark-2; ids will differ"""
    )


def test_many_nodes_have_a_line_each() -> None:
    machines = {"a": "dgx-spark", "gpu-17": "h200-infiniband", "old": "h200-without-iproute2", "bb": "busybox"}
    found = examined({**machines, "guest": "docker-denied-podman-rootless", "x": "broken"}, "lost")
    lines = doctor_lines(found)
    assert lines[0].split() == [
        "ssh",
        "machine",
        "docker",
        "gpu",
        "gpu",
        "memory",
        "memory",
        "disk",
        "rdma",
        "clock",
        "runs",
    ]
    rows = {line.split()[0]: " ".join(line.split()) for line in lines[1:8]}
    assert rows["gpu-17"] == (
        "gpu-17 12 ms x86_64 · 192 cores 27.3 overlay2 8 × H200 sm_90 911 of 1123 GiB 1965 of 2016 GiB "
        "run 108 GB · cache+docker 18432 GB 7 × 400 Gbit/s IB, 1 × 25 Gbit/s RoCE −0.01 s glm.41.2.r0, glm.41.2.r1"
    )
    assert rows["old"].startswith("old 12 ms x86_64 · 128 cores none 2 × H200 ? 280 of 281 GiB")
    assert rows["x"] == "x 12 ms ? · ? cores ? ? ? of ? GiB ? ? −0.01 s ?", "what is not known is no zero"
    assert rows["guest"].startswith("guest 12 ms x86_64 · 2 cores podman 4.3 vfs none")
    assert rows["lost"] == "lost ✗ no answer"
    assert lines[8] == "docker      stores differ"


@pytest.mark.parametrize(("error", "told"), [(0.001, "−0.012 s"), (0.01, "−0.01 s"), (0.3, "−0.0 s")])
def test_a_clock_is_told_with_as_many_digits_as_are_known(error: float, told: str) -> None:
    node = Node("a", "a", facts=NodeFacts(clock_offset_s=-0.0123, clock_error_s=error))
    lines = doctor_lines(Examination(("a",), (node,), {}))
    line = next(line for line in lines if line.startswith("clock"))
    assert line.removeprefix("clock").removesuffix("against this machine").strip() == told


def test_a_notice_about_many_nodes_is_told_once_and_the_heaviest_first() -> None:
    seen = (Evidence("x", "y", NOW, "z"),)
    notices = [Notice(f"n{at}", "python3-missing", f"n{at} has no python3", seen, "note") for at in range(32)]
    lines = list(notice_lines([*notices, Notice("n3", "disk-too-small", "full", seen, "blocker", "free some")]))
    assert lines[:3] == ["✗           full", "            try: free some", "note        n0 has no python3"]
    assert lines[3] == f"            the same: {', '.join(f'n{at}' for at in range(1, 32))}"
    assert len(lines) == 4


def test_a_name_that_is_part_of_a_word_is_no_name() -> None:
    seen = (Evidence("x", "y", NOW, "z"),)
    lines = list(
        notice_lines([Notice("b", "c", "b can't be above", seen), Notice("local", "c", "local can't be above", seen)])
    )
    assert lines == ["warning     b can't be above", "            the same: local"]


def test_only_what_stops_a_start_blocks() -> None:
    well = examined({"spark-1": "dgx-spark", "spark-2": "dgx-spark-2"})
    assert well.notices and not well.blocked
    assert examined({"spark-2": "dgx-spark-2"}, needs={"spark-2": {"docker": 30 * GB}}).blocked
    unreached = Finding(Step.PREFLIGHT, Fate.CLUSTER, "peer-unreachable", "says", (Evidence("x", "y", NOW, "z"),))
    cut = replace(well, proven=Proven(None, (), (unreached,)))
    assert cut.blocked
    assert "✗           says" in doctor_lines(cut)
