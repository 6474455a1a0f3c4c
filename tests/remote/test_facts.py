"""What is read from machines of many kinds; what could not be read has a reason, and nothing is made up."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from bascule.core.layout import own_address
from bascule.core.machine import Address, Disk, DockerFacts, NodeFacts
from bascule.core.nouns import Node
from bascule.remote.facts import READINGS, interface_of, parse_facts, read_facts
from bascule.remote.local import LocalRunner

FACTS = Path(__file__).parents[1] / "facts"
RECORDED = sorted(path.stem for path in FACTS.glob("*.txt"))
KIB, MIB, GIB = 1024, 1024**2, 1024**3
FIELDS = {name for reading in READINGS for name in reading.parsers}
SMALL = ["timeout", "sh", "uname", "nproc", "cat", "df", "tail", "readlink", "date", "grep", "sed", "cut", "getent"]


@pytest.fixture
def quick_docker(tmp_path_factory, monkeypatch) -> None:
    """In place of the real one, for which nobody waits here."""
    folder = tmp_path_factory.mktemp("bin")
    info = '{"ServerVersion":"0","ContainersRunning":0,"ContainersPaused":0}'
    (folder / "docker").write_text(f"#!/bin/sh\necho '{info}'\n")
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def facts_of(name: str) -> NodeFacts:
    return parse_facts((FACTS / f"{name}.txt").read_text())


def test_a_machine_without_a_gpu() -> None:
    facts = facts_of("debian12-vm-without-gpu")
    assert (facts.hostname, facts.arch, facts.cores) == ("host-1", "x86_64", 2)
    assert (facts.os, facts.kernel) == ("Debian GNU/Linux 12 (bookworm)", "6.1.0-28-amd64")
    assert (facts.gpus, facts.driver, facts.cuda, facts.gpu_processes, facts.unified) == ((), "", "", (), False)
    assert facts.run_dir == "/root/.local/state/bascule/ranks"
    assert (facts.python3, facts.cgroup, facts.user_memlock_bytes) == ("3.11.7", 1, 8 * MIB)
    assert [(a.interface, a.ip, a.prefix) for a in facts.addresses] == [
        ("lo", "127.0.0.1", 8),
        ("eth0", "192.0.2.2", 24),
    ]
    assert facts.unknown == {}


def test_a_dgx_spark() -> None:
    facts = facts_of("dgx-spark")
    assert (facts.hostname, facts.arch, facts.cores) == ("spark-1", "aarch64", 20)
    assert (facts.os, facts.kernel) == ("Ubuntu 24.04.4 LTS", "6.17.0-1014-nvidia")
    assert (facts.memory_bytes, facts.memory_free_bytes) == (127601388 * KIB, 112 * GIB)
    assert facts.unified
    assert facts.run_dir_free_bytes == 410000000 * KIB
    assert facts.addresses == (
        Address("lo", "127.0.0.1", 8),
        Address("enp1s0f0np0", "10.0.0.1", 24),
        Address("enP2p1s0f0np0", "10.0.1.1", 24),
        Address("wlP9s9", "192.168.1.20", 24),
        Address("docker0", "172.17.0.1", 16),
    )
    assert facts.docker == DockerFacts(("docker",), "28.5.1", "overlay2", "/var/lib/docker", "arm64", nvidia=True)
    assert (facts.own_name_ip, facts.python3, facts.cgroup, facts.infiniband) == ("127.0.1.1", "3.12.3", 2, True)
    assert (facts.machine_id or "").splitlines() == ["0b6f4f1c-6a52-4a3e-9a0d-6c7f4e0f7a11", "net:[4026531840]"]
    assert facts.unknown == {}


def test_images_of_the_containerd_store_lie_elsewhere() -> None:
    facts = facts_of("dgx-spark-2")
    assert facts.docker is not None
    assert (facts.docker.store, facts.docker.version) == ("containerd", "29.2.1")
    assert {disk.what: disk.path for disk in facts.disks or ()}["docker"] == "/var/lib/containerd"


def test_a_machine_without_iproute2_and_with_a_space_in_a_path() -> None:
    facts = facts_of("h200-without-iproute2")
    assert set(facts.unknown) == {"docker", "gpus.sm"}
    assert facts.addresses == (Address("lo", "127.0.0.1", 8), Address("eth0", "10.128.4.18", 20))
    assert facts.disks == (
        Disk("run", "/mnt/big disk/bascule", "/mnt/big disk", 5 * 1024 * GIB, "nfs.lan:/export/big"),
        Disk("cache", "/root/.cache/huggingface/hub", "/", 225000000 * KIB, "overlay"),
    )
    assert (facts.run_dir, facts.run_dir_free_bytes) == ("/mnt/big disk/bascule", 5 * 1024 * GIB)
    assert (facts.own_name_ip, facts.default_interface) == ("", ""), "nothing is there, which is no unknown"


def test_places_on_one_device_share_what_is_free_there() -> None:
    disks = {disk.what: disk for disk in facts_of("docker-overlay2").disks or ()}
    assert disks["docker"].mount != disks["run"].mount
    assert {disk.volume for disk in disks.values()} == {"/dev/vda"}
    apart = {disk.what: disk.volume for disk in facts_of("h200-infiniband").disks or ()}
    assert apart == {"run": "nas.lan:/export/home", "cache": "/dev/md1", "docker": "/dev/md1"}
    assert Disk("run", "/run/x", "/run", 1, "tmpfs").volume == "/run", "two tmpfs are two disks"


def test_what_could_not_be_read_is_unknown_and_says_why() -> None:
    facts = facts_of("broken")
    failed = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running."
    )
    assert facts == NodeFacts(run_dir="/root/.local/state/bascule/ranks", unknown=facts.unknown)
    assert facts.unknown == {
        "hostname": "uname said 'b'",
        "kernel": "uname said 'b'",
        "arch": "uname said 'b'",
        "os": "nothing was printed",
        "cores": "'many' is no number",
        "memory_bytes": "/proc/meminfo has no MemTotal",
        "memory_free_bytes": "'what' is no number",
        "machine_id": "nothing was printed",
        "user_memlock_bytes": "'plenty' is no number",
        "cgroup": "/sys/fs/cgroup holds neither version",
        "python3": "Traceback (most recent call last):",
        "own_name_ip": "its name servers did not answer within 2 s",
        "addresses": "nothing was printed",
        "interfaces": "neither ip nor /sys/class/net tells them",
        "default_interface": "cat: /proc/net/route: Permission denied",
        "rdma": "nothing was printed",
        "docker": "docker: no answer within 8 s; sudo -n docker: sudo: a password is required; podman: not installed",
        "memlock": "nothing was printed",
        "infiniband": "nothing was printed",
        "ranks": "Error response from daemon: context deadline exceeded",
        "disks": "df: /root: Permission denied; df: /root: Permission denied",
        "disks.run": "df: /root: Permission denied",
        "disks.cache": "df: /root: Permission denied",
        "run_dir_free_bytes": "df: /root: Permission denied",
        "gpus": failed,
        "driver": failed,
        "cuda": "nvidia-smi ended with 9",
        "gpu_processes": "nvidia-smi ended with 9",
    }


def test_a_disk_that_can_not_be_read_does_not_hide_the_others() -> None:
    row = "/dev/vda 264212084 25976032 80414880 25% /"
    facts = parse_facts(f"=== disks\nrun /r\ncache /c\ndocker /d\ndf\n{row}\ndf: /c: Stale file handle\n{row}\n")
    assert [disk.what for disk in facts.disks or ()] == ["run", "docker"]
    assert facts.unknown["disks.cache"] == "df: /c: Stale file handle"
    lost = parse_facts(f"=== disks\nrun /r\ncache /c\ndf\n{row}\n")
    assert (lost.disks, lost.run_dir_free_bytes) == (None, None), "one row of two: whose is it?"


def test_nothing_at_all_is_all_unknown() -> None:
    facts = parse_facts("")
    assert set(facts.unknown) == FIELDS
    assert facts == NodeFacts(unknown=facts.unknown)


@pytest.mark.parametrize(
    ("machine", "docker"),
    [
        ("debian12-vm-without-gpu", (("podman",), "4.3.1", "overlay", "/var/lib/containers/storage", "amd64", False)),
        ("podman-only", (("podman",), "4.3.1", "overlay", "/var/lib/containers/storage", "amd64", False)),
        ("docker-overlay2", (("docker",), "20.10.24+dfsg1", "overlay2", "/run/host/docker", "amd64", False)),
        ("h200-infiniband", (("sudo", "-n", "docker"), "27.3.1", "overlay2", "/raid/docker", "amd64", False)),
        ("busybox", None),
    ],
)  # fmt: skip
def test_docker_or_podman(machine: str, docker: tuple[tuple[str, ...], str, str, str, str, bool] | None) -> None:
    assert facts_of(machine).docker == (DockerFacts(*docker) if docker else None)


def test_that_docker_is_denied_is_known_though_podman_works() -> None:
    facts = facts_of("docker-denied-podman-rootless")
    assert facts.docker is not None
    assert (facts.docker.command, facts.docker.store) == (("podman",), "vfs")
    assert facts.unknown["docker.denied"].startswith("docker: permission denied while trying to connect")


@pytest.mark.parametrize(
    ("more", "nvidia"),
    [
        ('"Runtimes":{"nvidia":{"path":"nvidia-container-runtime"},"runc":{}}}', True),
        ('"DiscoveredDevices":[{"Source":"cdi","ID":"nvidia.com/gpu=0"}]}', True),
        ('"Runtimes":{"runc":{}}}', False),
        ('"Runtimes":{"runc":{}}}\ngpus /etc/cdi/nvidia.yaml', True),
        ('"Runtimes":{"runc":{}}}\ngpus nvidia-container-runtime-hook', True),
    ],
)
def test_whether_containers_get_gpus(more: str, nvidia: bool) -> None:
    info = f'WARNING: old\n{{"ServerVersion":"28","Driver":"overlay2",{more}'
    docker = parse_facts(f"=== docker\nok docker\n{info}\n").docker
    assert docker is not None
    assert (docker.nvidia, docker.version) == (nvidia, "28")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CapEff:\t000001ffffffffff\nMax locked memory 8388608 8388608 bytes", True),
        ("CapEff:\t0000000000000000\nMax locked memory unlimited unlimited bytes", True),
        ("CapEff:\t000001fffeffffff\nMax locked memory 8388608 8388608 bytes", False),
    ],
)
def test_whether_containers_may_lock_memory(text: str, value: bool) -> None:
    assert parse_facts(f"=== memlock\n{text}\n").memlock is value


@pytest.mark.parametrize(
    ("ip", "interface"),
    [
        ("10.0.0.1", "enp1s0f0np0"),
        ("10.0.0.77", "enp1s0f0np0"),
        ("192.168.1.20", "wlP9s9"),
        ("127.0.0.3", "lo"),
        ("172.17.9.9", "docker0"),
        ("10.0.2.1", None),
    ],
)
def test_an_address_is_carried_by_an_interface(ip: str, interface: str | None) -> None:
    assert interface_of(facts_of("dgx-spark"), ip) == interface


def test_the_very_address_wins_over_a_wider_network_before_it() -> None:
    facts = NodeFacts(addresses=(Address("wide", "10.0.0.1", 8), Address("own", "10.0.0.2", 24)))
    assert interface_of(facts, "10.0.0.2") == "own"


@pytest.mark.parametrize(
    ("machine", "address"),
    [("dgx-spark", "10.0.0.1"), ("h200-without-iproute2", "10.128.4.18"), ("broken", None)],
)
def test_the_peers_are_told_an_address_that_is_there(machine: str, address: str | None) -> None:
    assert own_address(Node("a", "a", facts=facts_of(machine))) == address


@pytest.mark.parametrize(
    ("asked", "run_dir"), [(None, "{state}/bascule/ranks"), ("~/ranks", "{home}/ranks"), ("/r", "/r")]
)
@pytest.mark.usefixtures("quick_docker")
def test_this_very_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | None, run_dir: str) -> None:
    state, home = tmp_path / "state", tmp_path / "home"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", "~/hf")
    node = Node("here", "local", run_dir=asked)
    facts = asyncio.run(read_facts(LocalRunner(node), node)).facts
    must = FIELDS - {"docker", "gpus", "driver", "cuda", "gpu_processes", "own_name_ip", "memlock"}
    assert {name: why for name, why in facts.unknown.items() if name in must} == {}
    assert (facts.hostname, facts.arch, facts.kernel) == (
        socket.gethostname(),
        os.uname().machine,
        os.uname().release,
    )
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.run_dir == run_dir.format(state=state, home=home)
    assert {disk.what: disk.path for disk in facts.disks or ()}["cache"] == f"{home}/hf/hub"
    assert not state.exists() and not home.exists(), "reading facts creates nothing"
    assert interface_of(facts, "127.0.0.1") == "lo"
    assert next(one.kind for one in facts.interfaces or () if one.name == "lo") == "loopback"
    assert abs(facts.clock_offset_s or 9) <= (facts.clock_error_s or 0) + 0.01, "it is the very same clock"


def test_what_took_too_long_is_not_known_and_says_where_it_stopped(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node = Node("here", "local")
    facts = asyncio.run(read_facts(LocalRunner(node), node, within=5)).facts
    assert (facts.hostname, facts.cores) == (socket.gethostname(), len(os.sched_getaffinity(0)))
    for name in ("docker", "disks", "gpus"):
        assert facts.unknown[name] == "not read within 5 s: stopped at docker"
    assert "hostname" not in facts.unknown


@pytest.mark.usefixtures("quick_docker")
def test_without_iproute2_python_tells_the_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("here", "local")
    with_ip = asyncio.run(read_facts(LocalRunner(node), node)).facts
    for tool in SMALL:
        found = next(path for folder in os.get_exec_path() if (path := Path(folder) / tool).exists())
        (tmp_path / tool).symlink_to(found)
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("PATH", str(tmp_path))
    without = asyncio.run(read_facts(LocalRunner(node), node)).facts
    first = {address.interface: address for address in reversed(with_ip.addresses)}
    assert {address.interface: address for address in without.addresses} == first
    assert "interfaces" not in without.unknown
    here = {one.name: one for one in without.interfaces or ()}
    for one in with_ip.interfaces or ():
        if one.name in here:
            assert (here[one.name].mtu, here[one.name].kind == "loopback") == (one.mtu, one.kind == "loopback")
