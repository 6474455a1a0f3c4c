"""Interfaces, default routes and RDMA ports: of recorded machines, and through the real shell on a made-up sysfs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bascule.core.machine import Gid, Interface, NodeFacts, RdmaPort
from bascule.remote.facts import parse_facts, script

FACTS = Path(__file__).parents[1] / "facts"


def facts_of(name: str) -> NodeFacts:
    return parse_facts((FACTS / f"{name}.txt").read_text())


def kinds_of(name: str) -> dict[str, str]:
    return {one.name: one.kind for one in facts_of(name).interfaces or ()}


def test_the_twin_ports_of_a_dgx_spark() -> None:
    facts = facts_of("dgx-spark")
    ports = {port.device: port for port in facts.rdma or ()}
    assert {name: (port.active, port.interface, port.rate_gbit) for name, port in ports.items()} == {
        "roceP2p1s0f0": (True, "enP2p1s0f0np0", 200.0),
        "roceP2p1s0f1": (False, "enP2p1s0f1np1", 40.0),
        "rocep1s0f0": (True, "enp1s0f0np0", 200.0),
        "rocep1s0f1": (False, "enp1s0f1np1", 40.0),
    }
    assert ports["rocep1s0f0"].layer == "Ethernet"
    assert ports["rocep1s0f0"].gids == (
        Gid(0, "IB/RoCE v1", "fe80::4ebb:47ff:fe00:101"),
        Gid(1, "RoCE v2", "fe80::4ebb:47ff:fe00:101"),
        Gid(2, "IB/RoCE v1", "10.0.0.1"),
        Gid(3, "RoCE v2", "10.0.0.1"),
    )
    there = {one.name: one for one in facts.interfaces or ()}
    assert there["enp1s0f0np0"] == Interface("enp1s0f0np0", "ethernet", True, 9000, 200000)
    assert there["enP7s7"] == Interface("enP7s7", "ethernet", False, 1500, None)
    assert (there["wlP9s9"].kind, there["docker0"].kind, there["docker0"].up) == ("wifi", "bridge", False)
    assert facts.default_interface == "wlP9s9"


def test_infiniband_ports_bonds_and_tunnels() -> None:
    facts = facts_of("h200-infiniband")
    assert kinds_of("h200-infiniband") == {
        "lo": "loopback",
        "eno1": "ethernet",
        **{f"ibp{number}": "infiniband" for number in range(8)},
        "bond0": "ethernet",
        "tailscale0": "tunnel",
        "veth0a1b2c3": "virtual",
    }
    ports = facts.rdma or ()
    assert [port.device for port in ports if not port.active] == ["mlx5_3"], "2: INIT is not active"
    assert ports[0] == RdmaPort(
        "mlx5_0", 1, True, "InfiniBand", 400.0, "ibp0", (Gid(0, "IB/RoCE v1", "fe80::a088:c203:ab:0"),)
    )
    assert facts.default_interface == "bond0"


def test_without_iproute2_sysfs_tells_the_kinds() -> None:
    assert kinds_of("h200-without-iproute2") == {
        "lo": "loopback",
        "eth0": "ethernet",
        "eth0.7": "ethernet",
        "br0": "bridge",
        "wg0": "tunnel",
        "cali0": "virtual",
    }
    speeds = {one.name: one.speed_mbit for one in facts_of("h200-without-iproute2").interfaces or ()}
    assert (speeds["eth0"], speeds["wg0"]) == (100000, None)


def test_busybox_tells_no_details_and_sysfs_does() -> None:
    assert kinds_of("busybox") == {"lo": "loopback", "ifb0": "virtual", "ifb1": "virtual", "eth0": "ethernet"}


def test_sysfs_of_another_network_is_not_believed() -> None:
    recorded = (FACTS / "docker-overlay2.txt").read_text()
    assert "doctest-lan/speed:10000" in recorded, "sysfs shows interfaces that ip does not"
    assert kinds_of("docker-overlay2") == {"lo": "loopback", "fab0": "virtual", "lan0": "virtual"}
    stranger = recorded.replace("doctest-lan/", "lan0/")
    assert [one.speed_mbit for one in parse_facts(stranger).interfaces or ()] == [None] * 3
    same = re.sub(r"^lan0/ifindex:\d+$", "lan0/ifindex:3", stranger, flags=re.MULTILINE)
    speeds = {one.name: one.speed_mbit for one in parse_facts(same).interfaces or ()}
    assert speeds["lan0"] == 10000, "the same name and the same index: the same interface"


@pytest.mark.parametrize(
    ("rows", "interface"),
    [
        (["eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000"], "eth0"),
        (["wlan0\t00000000\t01\t0003\t0\t0\t600\t00000000", "eth0\t00000000\t01\t0003\t0\t0\t100\t00000000"], "eth0"),
        (["eth0\t00000000\t0100000A\t0002\t0\t0\t100\t00000000"], ""),  # not up
        (["eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000080"], ""),  # half of the internet
        ([], ""),
    ],
)
def test_the_default_route(rows: list[str], interface: str) -> None:
    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU"
    text = "\n".join(["=== routes", head, *rows])
    assert parse_facts(text).default_interface == interface


def test_an_rdma_port_whose_gid_table_names_no_interface() -> None:
    state = "ports\nmlx5_0/ports/1/state:4: ACTIVE\nmlx5_0/ports/1/link_layer:InfiniBand"
    one = parse_facts(f"=== rdma\n{state}\nmlx5_0/device/net/ib0:\n").rdma
    two = parse_facts(f"=== rdma\n{state}\nmlx5_0/device/net/ib0:\nmlx5_0/device/net/ib1:\n").rdma
    assert [port.interface for port in (*(one or ()), *(two or ()))] == ["ib0", None], "of two, which?"
    assert (one or ())[0].rate_gbit is None


def test_no_rdma_device_is_not_the_same_as_not_read() -> None:
    assert parse_facts("=== rdma\nports\n").rdma == ()
    assert parse_facts("=== rdma\n").unknown["rdma"] == "nothing was printed"
    wrong = parse_facts("=== rdma\nports\nmlx5_0/ports/1/state:4: ACTIVE\nmlx5_0/ports/1/gids/0:garbage\n")
    assert wrong.rdma is None and "garbage" in wrong.unknown["rdma"]


@pytest.mark.lab
@pytest.mark.skipif(
    not os.environ.get("CI") and (os.getuid() != 0 or not shutil.which("unshare")), reason="needs root and unshare"
)
def test_the_real_commands_on_a_made_up_sysfs(tmp_path: Path) -> None:
    """The tree of a DGX Spark, as its recording tells it, where the shell looks for it."""
    tree = tmp_path / "class"
    for section, below in (("rdma", "infiniband"), ("interfaces", "net")):
        text = (FACTS / "dgx-spark.txt").read_text().partition(f"=== {section}\n")[2].partition("\n=== ")[0]
        for line in text.splitlines():
            path, colon, value = line.partition(":")
            if colon and "/" in path and " " not in path:
                place = tree / below / path
                place.parent.mkdir(parents=True, exist_ok=True)
                if value:
                    place.write_text(f"{value}\n")
                else:
                    place.mkdir(exist_ok=True)
    empty = "0000:0000:0000:0000:0000:0000:0000:0000\n"
    for number in range(4, 256):
        (tree / f"infiniband/rocep1s0f0/ports/1/gids/{number}").write_text(empty)
    (tmp_path / "script").write_text(script())
    (tmp_path / "docker").write_text('#!/bin/sh\necho \'{"ContainersRunning":0,"ContainersPaused":0}\'\n')
    (tmp_path / "docker").chmod(0o755)
    command = f"mount --bind {tree} /sys/class && PATH={tmp_path}:/usr/bin:/bin exec sh {tmp_path}/script"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=True)
    found = parse_facts(done.stdout)
    assert found.rdma == facts_of("dgx-spark").rdma
    by_sysfs = parse_facts("\n".join(line for line in done.stdout.splitlines() if "link/" not in line)).interfaces or ()
    wanted = {one.name: one for one in facts_of("dgx-spark").interfaces or ()}
    assert {one.name: one for one in by_sysfs} == wanted
