"""What sockets prove: the address of a peer that can't be reached, and which one to tell instead."""

from __future__ import annotations

import pytest

from bascule.core.machine import Address
from bascule.watch.samples import Sample, Socket
from bascule.watch.sockets import PERSISTS, Seat, about_peers, decode, lonely, parse_tcp, unreachable
from watch_sampler.sampler_parts import HERE

LAN, FABRIC = "10.88.1.2", "10.77.0.1"
HEAD = Seat(0, "a", FABRIC, (Address("fab1", FABRIC, 24), Address("lan1", LAN, 24)))
WORKER = Seat(1, "b", "10.77.0.2", (Address("fab2", "10.77.0.2", 24), Address("lan2", "10.88.2.2", 24)))
SEATS = (HEAD, WORKER)
TRIES = Socket("SYN-SENT", "10.88.2.2:40000", f"{LAN}:42085")
LISTENS = Socket("LISTEN", f"{LAN}:42085", "")
JOINED = Socket("ESTABLISHED", "10.77.0.2:40002", f"{FABRIC}:25000")


def looks(rank, *sockets, times=(0.0, PERSISTS), read=True):
    return [Sample(rank, at, {}, sockets if read else None) for at in times]


def test_the_address_that_the_head_told_and_nobody_reaches_is_named_with_the_one_to_tell():
    (found,) = unreachable([*looks(0, LISTENS), *looks(1, TRIES, JOINED)], SEATS)
    assert (found.advertised, found.interface) == (f"{LAN}:42085", "lan1")
    assert (found.by_rank, found.to_rank, found.listening) == (0, 1, True)
    assert (found.instead, found.proof) == (FABRIC, "connected")
    assert str(found) == (
        "rank 1 has tried to reach 10.88.1.2:42085 of rank 0, which listens there, without an answer for 5 s; "
        "10.77.0.1 is connected"
    )


def test_the_tables_of_the_two_hosts_of_a_real_start_prove_the_same():
    head, worker = (parse_tcp((HERE / "looks" / f"hang-host{k}.txt").read_text()) for k in (1, 2))
    (found,) = unreachable([*looks(0, *head), *looks(1, *worker)], SEATS)
    assert (found.advertised, found.by_rank, found.to_rank, found.instead) == (f"{LAN}:42085", 0, 1, FABRIC)


def test_a_connection_seen_only_from_the_peer_is_proof_as_well():
    joined = Socket("ESTABLISHED", f"{FABRIC}:25000", "10.77.0.2:40002")
    (found,) = unreachable([*looks(0, LISTENS, joined), *looks(1, TRIES)], SEATS)
    assert (found.instead, found.proof) == (FABRIC, "connected")


def test_without_a_connection_the_plans_address_is_only_said_to_be_in_the_same_network():
    (found,) = unreachable(looks(1, TRIES), SEATS)
    assert (found.instead, found.proof, found.listening) == (FABRIC, "same network", None)


def test_where_the_plans_own_address_is_silent_there_is_nothing_to_tell_instead():
    tries = Socket("SYN-SENT", "10.77.0.2:40000", f"{FABRIC}:29500")
    (found,) = unreachable(looks(1, tries), SEATS)
    assert (found.advertised, found.instead, found.proof) == (f"{FABRIC}:29500", None, "")
    both = unreachable(looks(1, tries, TRIES), SEATS)
    assert [one.instead for one in both] == [None, None]  # the fabric is silent too


def test_a_fabric_that_is_no_network_of_both_is_not_proposed():
    far = Seat(1, "b", "10.99.0.2", (Address("fab2", "10.99.0.2", 24),))
    (found,) = unreachable(looks(1, Socket("SYN-SENT", "10.99.0.2:1", f"{LAN}:42085")), (HEAD, far))
    assert found.instead is None


@pytest.mark.parametrize(
    "samples",
    [
        looks(1, TRIES, times=(0.0,)),
        looks(1, TRIES, times=(0.0, PERSISTS - 0.1)),
        [*looks(1, TRIES), Sample(1, PERSISTS + 1, {}, (JOINED,))],
        [*looks(1, TRIES, times=(0.0,)), *looks(1, JOINED, times=(3.0,)), *looks(1, TRIES, times=(6.0, 9.0))],
        looks(1, JOINED),
        looks(0, LISTENS),
        [],
    ],
    ids=["once", "not long enough", "over by now", "with a break", "connected", "only listens", "nothing"],
)
def test_a_connection_that_is_just_made_or_that_nobody_wants_is_no_failure(samples):
    assert unreachable(samples, SEATS) == ()


def test_looks_without_sockets_do_not_break_what_lasts():
    samples = [*looks(1, TRIES, times=(0.0, 10.0)), *looks(1, times=(2.0, 4.0, 12.0), read=False)]
    assert unreachable(samples, SEATS)[0].for_s == 10.0


def test_a_look_in_which_it_tries_no_more_ends_it():
    assert unreachable([*looks(1, TRIES, times=(0.0, 10.0)), *looks(1, times=(12.0,))], SEATS) == ()
    assert unreachable([*looks(1, TRIES, times=(0.0, 10.0)), *looks(1, times=(5.0,))], SEATS) == ()


@pytest.mark.parametrize(
    "remote", ["127.0.1.1:42085", "203.0.113.9:443", "172.17.0.1:5000", "[fe80::1]:80", "10.88.2.2:42085"]
)
def test_addresses_of_nobody_of_several_or_of_itself_are_not_named(remote):
    bridge = Address("docker0", "172.17.0.1", 16)
    seats = [Seat(one.rank, one.node, one.address, (*one.addresses, bridge)) for one in SEATS]
    assert unreachable(looks(1, Socket("SYN-SENT", "10.88.2.2:40000", remote)), seats) == ()


def test_of_two_ranks_of_a_node_the_one_that_listens_told_the_address():
    second = Seat(2, "a", FABRIC, HEAD.addresses)
    (found,) = unreachable([*looks(2, LISTENS), *looks(0, JOINED), *looks(1, TRIES)], (HEAD, second, WORKER))
    assert found.by_rank == 2


def test_a_listener_beside_the_plans_address_is_a_hint_until_somebody_connects():
    assert [one.listens for one in lonely(looks(0, LISTENS), SEATS)] == [f"{LAN}:42085"]
    joined = Socket("ESTABLISHED", f"{LAN}:42085", "10.88.2.2:40000")
    assert lonely(looks(0, LISTENS, joined), SEATS) == ()
    assert lonely(looks(0, Socket("LISTEN", f"{FABRIC}:29500", ""), Socket("LISTEN", "0.0.0.0:8000", "")), SEATS) == ()


def test_of_a_whole_network_only_listeners_and_what_leads_to_peers_is_kept():
    other = Socket("SYN-SENT", "10.88.2.2:1", "203.0.113.9:443")
    assert about_peers((TRIES, other, LISTENS, JOINED), {LAN, FABRIC}) == (TRIES, LISTENS, JOINED)


@pytest.mark.parametrize("row", [("2", "0100007F:1F40", "0"), ("02", "0100007F:1F40", "x"), ("01", "7F:1", "7F:1")])
def test_a_row_that_is_no_socket_is_refused(row):
    with pytest.raises(ValueError, match=r"state|address"):
        decode(*row)
