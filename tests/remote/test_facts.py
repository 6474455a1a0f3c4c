"""What is read from machines of many kinds; what could not be read has a reason, and nothing is made up."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from bascule.core.layout import own_address
from bascule.core.machine import Address, NodeFacts
from bascule.core.nouns import Node
from bascule.remote.facts import interface_of, parse_facts, read_facts
from bascule.remote.local import LocalRunner

FACTS = Path(__file__).parents[1] / "facts"
KIB, GIB = 1024, 1024**3
FIELDS = [
    "hostname",
    "arch",
    "cores",
    "memory_bytes",
    "memory_free_bytes",
    "run_dir",
    "run_dir_free_bytes",
    "machine_id",
    "gpus",
    "addresses",
]


def facts_of(name: str) -> NodeFacts:
    return parse_facts((FACTS / f"{name}.txt").read_text())


def unknown(facts: NodeFacts) -> dict[str, str]:
    """What could not be read of the fields that these recordings are about."""
    return {name: why for name, why in facts.unknown.items() if name in FIELDS}


def test_a_machine_without_a_gpu() -> None:
    facts = facts_of("debian12-vm-without-gpu")
    assert (facts.hostname, facts.arch, facts.cores, facts.gpus, unknown(facts)) == ("host-1", "x86_64", 2, (), {})
    assert facts.run_dir == "/root/.local/state/bascule/ranks"
    assert [(a.interface, a.ip, a.prefix) for a in facts.addresses] == [
        ("lo", "127.0.0.1", 8),
        ("eth0", "192.0.2.2", 24),
    ]


def test_a_dgx_spark() -> None:
    facts = facts_of("dgx-spark")
    assert facts == NodeFacts(
        hostname="spark-1",
        arch="aarch64",
        cores=20,
        memory_bytes=125548544 * KIB,
        memory_free_bytes=112 * GIB,
        run_dir="/home/aurora/.local/state/bascule/ranks",
        run_dir_free_bytes=2444305152 * KIB,
        addresses=(
            Address("lo", "127.0.0.1", 8),
            Address("enp1s0f0np0", "10.0.0.1", 24),
            Address("wlP9s9", "192.168.1.20", 24),
            Address("docker0", "172.17.0.1", 16),
        ),
        gpus=("NVIDIA GB10",),
        machine_id="0b6f4f1c-6a52-4a3e-9a0d-6c7f4e0f7a11\nnet:[4026531840]",
        unknown=facts.unknown,
    )


def test_a_machine_without_iproute2_and_with_a_space_in_a_path() -> None:
    facts = facts_of("h200-without-iproute2")
    assert unknown(facts) == {}
    assert facts.addresses == (Address("lo", "127.0.0.1", 8), Address("eth0", "10.128.4.17", 20))
    assert facts.gpus == ("NVIDIA H200", "NVIDIA H200")
    assert (facts.run_dir, facts.run_dir_free_bytes) == ("/mnt/big disk/bascule", 5 * 1024 * GIB)


def test_what_could_not_be_read_is_unknown_and_says_why() -> None:
    facts = facts_of("broken")
    assert (facts.hostname, facts.run_dir) == ("b", "/root/.local/state/bascule/ranks")
    assert unknown(facts) == {
        "arch": "nothing was printed",
        "cores": "'many' is no number",
        "memory_bytes": "/proc/meminfo has no MemTotal",
        "memory_free_bytes": "'what' is no number",
        "run_dir_free_bytes": "df: /root: Permission denied",
        "machine_id": "nothing was printed",
        "gpus": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.",
        "addresses": "nothing was printed",
    }
    assert facts.gpus is None


@pytest.mark.parametrize(
    ("printed", "gpus"), [("none", ()), ("No devices were found", ()), ("", None), ("Failed to initialize NVML", None)]
)
def test_no_gpu_is_told_from_not_known(printed: str, gpus: tuple[str, ...] | None) -> None:
    assert parse_facts(f"=== gpus\n{printed}\n").gpus == gpus


def test_nothing_at_all_is_all_unknown() -> None:
    facts = parse_facts("")
    assert len(unknown(facts)) == 10
    assert facts == NodeFacts(unknown=facts.unknown)


@pytest.mark.parametrize(
    ("ip", "interface"),
    [
        ("10.0.0.1", "enp1s0f0np0"),
        ("10.0.0.77", "enp1s0f0np0"),
        ("192.168.1.20", "wlP9s9"),
        ("127.0.0.3", "lo"),
        ("172.17.9.9", "docker0"),
        ("10.0.1.1", None),
    ],
)
def test_an_address_is_carried_by_an_interface(ip: str, interface: str | None) -> None:
    assert interface_of(facts_of("dgx-spark"), ip) == interface


def test_the_very_address_wins_over_a_wider_network_before_it() -> None:
    facts = NodeFacts(addresses=(Address("wide", "10.0.0.1", 8), Address("own", "10.0.0.2", 24)))
    assert interface_of(facts, "10.0.0.2") == "own"


@pytest.mark.parametrize(
    ("machine", "address"),
    [("dgx-spark", "10.0.0.1"), ("h200-without-iproute2", "10.128.4.17"), ("broken", None)],
)
def test_the_peers_are_told_an_address_that_is_there(machine: str, address: str | None) -> None:
    assert own_address(Node("a", "a", facts=facts_of(machine))) == address


@pytest.mark.parametrize(
    ("asked", "run_dir"), [(None, "{state}/bascule/ranks"), ("~/ranks", "{home}/ranks"), ("/r", "/r")]
)
def test_this_very_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None, run_dir: str) -> None:
    state, home = tmp_path / "state", tmp_path / "home"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("HOME", str(home))
    node = Node("here", "local", run_dir=asked)
    facts = asyncio.run(read_facts(LocalRunner(node), node)).facts
    assert unknown(facts) == {}
    assert (facts.hostname, facts.arch, facts.cores) == (
        socket.gethostname(),
        os.uname().machine,
        len(os.sched_getaffinity(0)),
    )
    assert facts.run_dir == run_dir.format(state=state, home=home)
    assert not state.exists(), "reading facts creates nothing"
    assert interface_of(facts, "127.0.0.1") == "lo"


def test_what_took_too_long_is_not_known_and_says_where_it_stopped(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node = Node("here", "local")
    facts = asyncio.run(read_facts(LocalRunner(node), node, within=1)).facts
    assert facts.hostname == socket.gethostname()
    assert (facts.docker, facts.unknown["docker"]) == (None, "not read within 1 s: stopped at docker")


def test_without_iproute2_python_tells_the_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("here", "local")
    with_ip = asyncio.run(read_facts(LocalRunner(node), node)).facts
    for tool in ["timeout", "sh", "uname", "nproc", "cat", "df", "tail", "dirname", "readlink"]:
        found = next(path for folder in os.get_exec_path() if (path := Path(folder) / tool).exists())
        (tmp_path / tool).symlink_to(found)
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("PATH", str(tmp_path))
    without = asyncio.run(read_facts(LocalRunner(node), node)).facts
    first = {address.interface: address for address in reversed(with_ip.addresses)}
    assert unknown(without) == {}
    assert {address.interface: address for address in without.addresses} == first
