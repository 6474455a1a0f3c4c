"""The proof between hosts of their own: firewalls, a cut cable, a black hole for large packets, other interpreters."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bascule.core.nouns import Fate, Node
from bascule.lab import hosts
from bascule.lab.spec import Host, Lab
from bascule.preflight.addresses import Proven, prove_addresses
from bascule.remote.connect import connect
from bascule.remote.facts import read_facts
from lab_parts import lab_of

NAME, NET = "linktest", 83
FABRIC, LAN = f"10.{NET}.0.", f"10.{NET}.1."

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not os.environ.get("CI") and (os.getuid() != 0 or not shutil.which("iptables")),
        reason="needs root and iptables",
    ),
]


@dataclass
class Bench:
    """The lab, and short words for what the tests do with it."""

    lab: Lab
    read: list[Node]

    def host(self, number: int) -> Host:
        return self.lab.hosts[number - 1]

    def run(self, number: int, words: str) -> str:
        """A line of shell as root of a host; its standard output."""
        command = hosts.inside(self.host(number), ("sh", "-c", words))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def nodes(self, count: int = 2, address: str = "") -> list[Node]:
        """Nodes with the facts that were read from them; address is the beginning of those that the recipe names."""
        return [replace(one, address=address + one.name[1:] if address else None) for one in self.read[:count]]

    def listeners(self, number: int) -> list[str]:
        rows = [line.split()[3] for line in self.run(number, "ss -Hltn").splitlines()]
        return [row for row in rows if not row.endswith(":22")]


@pytest.fixture(scope="session")
def link_lab(tmp_path_factory) -> Iterator[Bench]:
    with lab_of(tmp_path_factory, NAME, 3, NET, docker=False) as made:
        yield Bench(made, read([Node(host.name, host.name) for host in made.hosts]))


def read(nodes: list[Node]) -> list[Node]:
    """The nodes with their facts."""
    runners = connect(nodes)

    async def all_of_them() -> list[Node]:
        return await asyncio.gather(*(read_facts(runners[one.name], one) for one in nodes))

    return asyncio.run(all_of_them())


@pytest.fixture
def bench(link_lab: Bench) -> Bench:
    hosts.heal(link_lab.lab)
    return link_lab


def proven(nodes: list[Node]) -> Proven:
    return asyncio.run(prove_addresses(nodes, patience=1.2))  # behind the first repetition of a SYN


def outcomes(result: Proven) -> dict[tuple[str, str], str]:
    return {(pair.origin, pair.target): pair.outcome for pair in result.pairs}


def test_all_fine_over_the_fabric_with_facts_as_they_are_read(bench):
    result = proven(bench.nodes(3))
    assert result.plan.link.network == f"10.{NET}.0.0/24"
    assert [row.zmq.ip for row in result.plan.rows] == [f"{FABRIC}{n}" for n in (1, 2, 3)]
    assert [row.nccl.interface for row in result.plan.rows] == ["fab0"] * 3
    assert len(result.pairs) == 6 and set(outcomes(result).values()) == {"reached"}
    assert all(pair.local_ip == f"{FABRIC}{pair.origin[1:]}" for pair in result.pairs)
    assert result.findings[0].code == "addresses-proven"
    assert [bench.listeners(n) for n in (1, 2, 3)] == [[], [], []]


def test_connections_of_one_node_dropped_by_the_other_are_named_by_direction(bench):
    bench.run(2, f"iptables -w -A INPUT -p tcp --syn -s {FABRIC}1 -j DROP")
    result = proven(bench.nodes(address=FABRIC))
    assert outcomes(result) == {("h1", "h2"): "no-answer", ("h2", "h1"): "reached"}
    finding = result.findings[0]
    assert result.fails and (finding.code, finding.fate) == ("peer-unreachable", Fate.CLUSTER)
    assert finding.says == f"h1 gets no answer to its SYN at {FABRIC}2 of h2; the other direction works"
    assert finding.evidence[0].node == "h1" and "python3" in finding.evidence[0].source


def test_a_firewall_that_rejects_is_told_apart(bench):
    bench.run(2, f"iptables -w -A INPUT -p tcp --syn -s {FABRIC}1 -j REJECT")
    result = proven(bench.nodes(address=FABRIC))
    assert outcomes(result)["h1", "h2"] == "refused"
    assert "a firewall rejects it" in result.findings[0].advice


def test_a_cut_lan_is_no_matter_while_the_fabric_works(bench):
    hosts.cut(bench.host(1), bench.host(2), ("lan",))
    result = proven(bench.nodes())
    assert not result.fails and result.plan.link.network == f"10.{NET}.0.0/24" and result.plan.failed == ()


def test_where_the_fabric_is_cut_the_lan_is_taken_and_it_is_told(bench):
    hosts.cut(bench.host(1), bench.host(2), ("fabric",))
    result = proven(bench.nodes())
    assert not result.fails and result.plan.link.network == f"10.{NET}.1.0/24"
    assert [link.network for link in result.plan.failed] == [f"10.{NET}.0.0/24"]
    notice = result.notices[0]
    assert notice.code == "link-passed-over" and "gets no answer to its SYN" in notice.says
    assert "after 10.83.0.0/24" in result.plan.because


def test_large_packets_that_vanish_are_a_black_hole(bench):
    for chain in ("INPUT", "OUTPUT"):
        bench.run(
            1,
            f"iptables -w -A {chain} -p tcp -s {FABRIC}1,{FABRIC}2 -m length --length 1400:65535 -i fab0 -j DROP"
            if chain == "INPUT"
            else "true",
        )
    result = proven(bench.nodes(address=FABRIC))
    assert outcomes(result) == {("h1", "h2"): "reached", ("h2", "h1"): "stalled"}
    assert (result.findings[0].code, result.findings[0].fate) == ("mtu-blackhole", Fate.CLUSTER)
    assert f"h2 can send small messages and no full-size segments at {FABRIC}1 of h1" in result.findings[0].says


@contextlib.contextmanager
def hidden(bench: Bench, number: int, *names: str) -> Iterator[None]:
    """These programs don't run on a host for as long as the context lasts."""
    paths = [bench.run(number, f"readlink -f $(command -v {name})").strip() for name in names]
    for path in paths:
        bench.run(number, f"mount --bind /dev/null {path}")
    try:
        yield
    finally:
        for path in paths:
            bench.run(number, f"umount {path}")


def test_a_host_without_python3_takes_perl_and_one_without_both_is_unknown(bench):
    nodes = bench.nodes()
    python = subprocess.run(
        ["ssh", "-F", f"{bench.lab.folder}/ssh_config", "h1", "readlink -f $(command -v python3)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    with hidden(bench, 1, python):
        result = proven(nodes)
        assert set(outcomes(result).values()) == {"reached"}
        by = {pair.origin: pair for pair in result.pairs}
        assert by["h1"].rate and by["h2"].rate
        with hidden(bench, 1, "perl"):
            result = proven(nodes)
    assert set(outcomes(result).values()) == {"unproven"}
    finding = result.findings[0]
    assert (finding.code, finding.fate, result.fails) == ("pairs-unproven", Fate.UNKNOWN, False)
    assert "neither python3 nor perl runs there" in finding.says


def test_a_route_by_another_interface_shows_the_source_that_the_peer_sees(bench):
    bench.run(1, f"ip route add {FABRIC}2/32 dev lan0 src {LAN}1")
    try:
        result = proven(bench.nodes())
    finally:
        bench.run(1, f"ip route del {FABRIC}2/32")
    notice = next(one for one in result.notices if one.code == "other-source-address")
    assert notice.says == f"h1 tells {FABRIC}1 and reaches {FABRIC}2 of h2 from {LAN}1"


def test_a_rail_of_rdma_ports_that_is_cut_costs_those_ports_only(bench):
    """The lab has no RDMA: its ports are written into the facts; the addresses and the proof are real."""
    from preflight_links.clusters import port  # noqa: PLC0415

    nodes = [
        replace(one, facts=replace(one.facts, rdma=(port("r0", "fab0"), port("r1", "lan0")))) for one in bench.nodes()
    ]
    whole = proven(nodes)
    assert [row.hcas for row in whole.plan.rows] == [("r0:1", "r1:1")] * 2
    hosts.cut(bench.host(1), bench.host(2), ("lan",))
    result = proven(nodes)
    assert not result.fails and [row.hcas for row in result.plan.rows] == [("r0:1",)] * 2
    assert [one.code for one in result.notices] == ["rail-passed-over"]


CONTROLLER = """
import asyncio, sys
from bascule.core.nouns import Node
from bascule.preflight.posts import open_posts
async def go():
    async with open_posts([Node("h1", "h1"), Node("h2", "h2")]) as posts:
        for n in ("1", "2"):
            await posts["h" + n].ask("listen", sys.argv[1] + n, "t" * 32, within=20)
        print("listening", flush=True)
        await asyncio.sleep(60)
asyncio.run(go())
"""


def test_nothing_listens_on_the_hosts_after_the_controller_was_killed(bench):
    controller = subprocess.Popen([sys.executable, "-c", CONTROLLER, FABRIC], stdout=subprocess.PIPE, text=True)
    assert controller.stdout.readline() == "listening\n"
    assert len(bench.listeners(1)) == len(bench.listeners(2)) == 1
    controller.send_signal(signal.SIGKILL)
    controller.wait(20)
    controller.stdout.close()
    until = time.monotonic() + 20
    while bench.listeners(1) + bench.listeners(2):
        assert time.monotonic() < until
        time.sleep(0.05)
