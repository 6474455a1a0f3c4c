"""The whole proof on this machine: nodes are addresses of the loopback, each with a helper of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.addresses import Pair, Told
from bascule.core.machine import Address
from bascule.core.nouns import Fate
from bascule.core.plain import to_plain
from bascule.preflight.addresses import Proven, prove_addresses
from bascule.preflight.judge import judge, passed_over, sources
from bascule.preflight.posts import open_posts
from bascule.preflight.prove import ALL_RATES, prove, rounds
from bascule.show.links import addresses_line, links_lines
from preflight_links.clusters import AT, node, plan_of


def here(count, **more):
    """So many nodes on this machine, by addresses of its loopback."""
    rows = [node(f"n{n}", f"lo 127.0.0.{n}/8 loopback", told=f"127.0.0.{n}", **more) for n in range(1, count + 1)]
    return [replace(one, host="local") for one in rows]


def listening(pids):
    """Addresses on which any of these processes listens."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                continue
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]


def test_two_nodes_are_proven_both_ways():
    proven = asyncio.run(prove_addresses(here(2)))
    assert [(pair.origin, pair.target, pair.outcome) for pair in proven.pairs] == [
        ("n1", "n2", "reached"),
        ("n2", "n1", "reached"),
    ]
    assert not proven.fails and [one.code for one in proven.findings] == ["addresses-proven"]
    assert all(pair.rate and pair.round_trip_s and pair.connect_s for pair in proven.pairs)
    assert "by python3 3." in proven.findings[0].evidence[0].source
    assert to_plain(proven)["pairs"][0]["rate"] == proven.pairs[0].rate


def test_the_source_address_on_the_loopback_is_nothing_to_tell():
    """There the kernel sends from 127.0.0.1, whatever n2 tells."""
    proven = asyncio.run(prove_addresses(here(2)))
    assert "127.0.0.1" in {pair.local_ip for pair in proven.pairs if pair.origin == "n2"}
    assert proven.notices == ()


def test_an_address_that_a_variable_of_the_recipe_makes_an_engine_tell_is_proven_as_well():
    nodes = [
        replace(one, facts=replace(one.facts, addresses=(*one.facts.addresses, Address("lo:1", f"127.0.9.{n}", 8))))
        for n, one in enumerate(here(2), 1)
    ]
    proven = asyncio.run(prove_addresses(nodes, {"n2": {"VLLM_HOST_IP": "127.0.9.2"}}))
    assert sorted((pair.target, pair.ip, pair.outcome) for pair in proven.pairs) == [
        ("n1", "127.0.0.1", "reached"),
        ("n2", "127.0.0.2", "reached"),
        ("n2", "127.0.9.2", "reached"),
    ]
    told = [line.split("   ")[0] for line in links_lines(proven)]
    assert {"n1 127.0.0.1", "n2 127.0.0.2", "n2 127.0.9.2"} <= set(told)


def test_one_node_has_nobody_to_reach():
    proven = asyncio.run(prove_addresses(here(1)))
    assert (proven.pairs, proven.fails, proven.findings[0].fate) == ((), False, Fate.OK)


def test_a_node_that_is_not_reached_by_ssh_leaves_its_pairs_unproven(monkeypatch):
    monkeypatch.setenv("BASCULE_SSH", "false")
    nodes = here(3)
    proven = asyncio.run(prove_addresses([*nodes[:2], replace(nodes[2], host="nobody@127.0.0.1")]))
    outcomes = {(pair.origin, pair.target): pair.outcome for pair in proven.pairs}
    assert outcomes["n1", "n2"] == outcomes["n2", "n1"] == "reached"
    assert {outcomes[way] for way in outcomes if "n3" in way} == {"unproven"}
    assert (proven.findings[0].code, proven.findings[0].fate) == ("pairs-unproven", Fate.UNKNOWN)
    assert not proven.fails and proven.plan


def test_a_helper_that_dies_leaves_its_pairs_unproven():
    async def go():
        nodes = here(2)
        async with open_posts(nodes) as posts:
            os.killpg(posts["n1"]._channel._process.pid, signal.SIGKILL)
            return await prove(posts, [Told("n1", "127.0.0.1", "lo"), Told("n2", "127.0.0.2", "lo")])

    pairs = asyncio.run(go())
    assert [pair.outcome for pair in pairs] == ["unproven", "unproven"]
    assert "n1 ended early" in pairs[0].seen or "gone" in pairs[0].seen or "exit" in pairs[0].seen


def test_an_address_that_can_not_be_listened_at_is_unproven_and_said_so():
    async def go():
        async with open_posts(here(2)) as posts:
            return await prove(posts, [Told("n1", "192.0.2.1", None), Told("n2", "127.0.0.2", "lo")], rates=False)

    pairs = {pair.origin: pair for pair in asyncio.run(go())}
    assert (pairs["n2"].outcome, pairs["n1"].outcome) == ("unproven", "reached")
    assert pairs["n2"].seen.startswith("n1 can't listen at 192.0.2.1: ") and pairs["n1"].rate is None


class Flaky:
    """A helper whose first tries are lost, as in a burst."""

    def __init__(self, name, losses):
        self.node, self.losses, self.tries = node(name), losses, 0

    async def ask(self, order, *words, within):
        if order == "listen":
            return ["listening", "1234"]
        self.tries += 1
        if self.tries <= self.losses:
            return ["pair", "no-answer", "-", "-", "-", "SYN-SENT"]
        return ["pair", "reached", "10.0.0.9", "0.001", "0.001", ""]


@pytest.mark.parametrize(("losses", "outcome", "tries"), [(0, "reached", 1), (1, "reached", 2), (2, "no-answer", 2)])
def test_a_pair_that_fails_is_tried_twice_before_it_is_a_no(losses, outcome, tries):
    posts = {name: Flaky(name, losses) for name in "ab"}
    told = [Told("a", "10.0.0.1", "e0"), Told("b", "10.0.0.2", "e0")]
    pairs = asyncio.run(prove(posts, told, rates=False))
    assert {pair.outcome for pair in pairs} == {outcome}
    assert [post.tries for post in posts.values()] == [tries, tries]


CONTROLLER = """
import asyncio
from preflight_links.test_prove_here import here
from bascule.preflight.posts import open_posts
async def go():
    async with open_posts(here(2)) as posts:
        for n in (1, 2):
            await posts[f"n{n}"].ask("listen", f"127.0.0.{n}", "t" * 32, within=20)
        print(*(post._channel._process.pid for post in posts.values()), flush=True)
        await asyncio.sleep(60)
asyncio.run(go())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_listens_after_the_controller_was_killed(number):
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "tests"}, text=True
    )
    pids = controller.stdout.readline().split()
    assert len(listening(pids)) == 2
    controller.send_signal(number)
    controller.wait(20)
    controller.stdout.close()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/fd").exists() and listening([pid]) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_nothing_listens_after_a_proof():
    async def go():
        async with open_posts(here(2)) as posts:
            pids = [post._channel._process.pid for post in posts.values()]
            await prove(posts, [Told(f"n{n}", f"127.0.0.{n}", "lo") for n in (1, 2)], rates=False)
            during = listening(pids)
        return during, [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    during, after = asyncio.run(go())
    assert len(during) == 2 and after == []


def test_a_proof_that_is_cancelled_ends_its_helpers():
    async def go():
        task = asyncio.create_task(prove_addresses(here(2)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]

    assert asyncio.run(go()) == []


def test_many_nodes_are_all_tried_and_only_neighbours_are_measured():
    proven = asyncio.run(prove_addresses(here(ALL_RATES + 1)))
    count = ALL_RATES + 1
    assert len(proven.pairs) == count * (count - 1) and {pair.outcome for pair in proven.pairs} == {"reached"}
    measured = {(pair.origin, pair.target) for pair in proven.pairs if pair.rate}
    assert measured <= {(f"n{n}", f"n{n % count + 1}") for n in range(1, count + 1)} and measured
    lines = links_lines(proven)
    assert len([line for line in lines if "8 peers" in line]) == count
    assert "TCP both ways ≤ " in addresses_line(proven)


@given(st.integers(1, 20))
def test_a_round_has_each_node_once_and_all_rounds_have_all_pairs(count):
    names = [f"n{n}" for n in range(count)]
    planned = rounds(names)
    for together in planned:
        busy = [name for pair in together for name in pair]
        assert len(busy) == len(set(busy)) or count == 1
    pairs = [pair for together in planned for pair in together]
    assert len(pairs) == len(set(pairs)) == (count * (count - 1) if count <= ALL_RATES else count)


PLAN = plan_of([node("a", "e0 10.0.0.1/24"), node("b", "e0 10.0.0.2/24")])
RAN = {"a": "python3 3.11", "b": "perl 5.36"}


def pair(origin, target, outcome="reached", **more):
    ip = {"a": "10.0.0.1", "b": "10.0.0.2"}[target]
    return Pair(origin, target, ip, outcome, **more)


def test_the_direction_that_fails_is_named():
    found = judge(PLAN, [pair("a", "b"), pair("b", "a", "no-answer", seen="SYN-SENT for 3.5 s")], RAN, AT)
    assert [(one.code, one.fate) for one in found] == [("peer-unreachable", Fate.CLUSTER)]
    assert found[0].says == "b gets no answer to its SYN at 10.0.0.1 of a; the other direction works"
    assert (found[0].evidence[0].node, found[0].evidence[0].excerpt) == ("b", "no-answer, SYN-SENT for 3.5 s")
    assert found[0].evidence[0].source == "TCP connection to 10.0.0.1 of a, by perl 5.36"
    assert "on a" in found[0].advice and "`ip route get 10.0.0.1` on b" in found[0].advice


@pytest.mark.parametrize("outcome", ["refused", "no-route", "no-answer", "mute", "stranger"])
def test_every_way_to_fail_has_its_words_and_advice(outcome):
    found = judge(PLAN, [pair("a", "b", outcome), pair("b", "a", outcome)], RAN, AT)
    assert found[0].code == "peer-unreachable" and "; nor the other way" in found[0].says
    assert found[0].advice and "{" not in found[0].advice
    shown = links_lines(Proven(PLAN, (pair("a", "b", outcome), pair("b", "a", outcome)), found))
    assert any("b 10.0.0.2" in line and line.split()[-1].isupper() for line in shown)


def test_small_words_that_pass_alone_are_a_black_hole():
    found = judge(PLAN, [pair("a", "b", "stalled"), pair("b", "a")], RAN, AT)
    assert [(one.code, one.fate) for one in found] == [("mtu-blackhole", Fate.CLUSTER)]
    assert "MTU" in found[0].advice


def test_the_weightiest_stands_first_and_nothing_untried_counts_as_good():
    found = judge(PLAN, [pair("a", "b", "unproven", seen="no python3"), pair("b", "a", "refused")], RAN, AT)
    assert [one.code for one in found] == ["peer-unreachable", "pairs-unproven"]
    alone = judge(PLAN, [pair("a", "b", "unproven", seen="no python3"), pair("b", "a")], RAN, AT)
    assert [(one.code, one.fate) for one in alone] == [("pairs-unproven", Fate.UNKNOWN)]
    assert alone[0].says == "a → b could not be tried: no python3"


def test_what_is_passed_over_says_why():
    found = judge(PLAN, [pair("a", "b", "no-answer"), pair("b", "a")], RAN, AT)
    notice = passed_over(PLAN.link, found)
    assert notice.says.startswith("10.0.0.0/24 is not used: a gets no answer") and notice.evidence == found[0].evidence


def test_a_source_that_is_the_told_one_is_nothing_to_tell():
    assert list(sources(PLAN.link, [pair("a", "b", local_ip="10.0.0.1")], AT)) == []
    (notice,) = sources(PLAN.link, [pair("a", "b", local_ip="192.168.1.5")], AT)
    assert (notice.code, notice.weight) == ("other-source-address", "warning")
    (half,) = sources(PLAN.link, [pair("a", "b", local_ip="127.0.0.1")], AT)
    assert half.code == "other-source-address", "only where both ends are inside of one machine is it nothing"


def test_the_table_of_two_nodes():
    times = {"local_ip": "10.0.0.2", "connect_s": 0.0001, "round_trip_s": 0.00004}
    pairs = (pair("a", "b", local_ip="10.0.0.1", round_trip_s=0.00005, rate=2.9e9), pair("b", "a", **times))
    proven = Proven(PLAN, pairs, judge(PLAN, pairs, RAN, AT))
    assert [" ".join(line.split()) for line in links_lines(proven)] == [
        "10.0.0.0/24 is the best network that all 2 nodes share",
        "tells what to over RDMA ports for NCCL round trip rate from",
        "a 10.0.0.1 rendezvous, gloo, nccl, zmq b e0 left to NCCL 0.04 ms not measured 10.0.0.2",
        "b 10.0.0.2 gloo, nccl, zmq a e0 left to NCCL 0.05 ms 23.2 Gbit/s 10.0.0.1",
    ]
    assert addresses_line(proven) == (
        "rendezvous 10.0.0.1 · gloo, nccl, zmq 10.0.0.x over e0 · TCP both ways ≤ 0.05 ms ≥ 23.2 Gbit/s"
    )
