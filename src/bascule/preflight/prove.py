"""Proves addresses: every node listens at its own, every other one connects and exchanges bytes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from bascule.core.addresses import Outcome, Pair, Told
from bascule.preflight.posts import Post, Silent

PATIENCE = 3.5  # seconds: a lost SYN is sent again after 1 and 3 s, a lost segment after 0.2 s and more (RFC 6298)
ANSWERS_WITHIN = 40.0  # seconds for an exchange in which every step takes its time
RATE_BYTES, RATE_SECONDS = 32 << 20, 0.3  # whichever ends first
RATE_WITHIN = 15.0  # seconds
ALL_RATES = 8  # nodes; of more, each sends to the next one only
_OUTCOMES: Mapping[str, Outcome] = {
    "reached": "reached",
    "refused": "refused",
    "no-route": "no-route",
    "no-answer": "no-answer",
    "mute": "mute",
    "stalled": "stalled",
    "stranger": "stranger",
}


@dataclass(frozen=True, slots=True)
class Door:
    """Where a node listens; without a port, why it doesn't."""

    port: str
    token: str
    why_not: str = ""


async def prove(
    posts: Mapping[str, Post], told: Sequence[Told], *, rates: bool = True, patience: float = PATIENCE
) -> list[Pair]:
    """Every node against every address that another one tells, all at once; then the rates, one pair of a node at a
    time. Nothing is raised: what could not be tried is unproven."""
    opened = await asyncio.gather(*(_open(posts[one.node], one) for one in told))
    doors = dict(zip(told, opened, strict=True))
    ways = [(origin, one) for origin in posts for one in told if one.node != origin]
    found: dict[tuple[str, Told], Pair] = {}
    for _ in range(2):  # what failed among hundreds at the same moment is tried once more
        again = [way for way in ways if way not in found or found[way].bad]
        pairs = await asyncio.gather(*(_reach(posts[origin], one, doors[one], patience) for origin, one in again))
        found |= dict(zip(again, pairs, strict=True))
    able_ways = [way for way in reversed(ways) if found[way].outcome == "reached"]
    reached = {(origin, one.node): (origin, one) for origin, one in able_ways}  # of several addresses the first
    for together in rounds(list(posts)) if rates else ():
        able = [reached[names] for names in together if names in reached]
        measured = await asyncio.gather(*(_rate(posts[way[0]], found[way], doors[way[1]]) for way in able))
        found |= dict(zip(able, measured, strict=True))
    return list(found.values())


def rounds(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Who sends to whom, such that within a round each node is in one pair."""
    if len(names) <= ALL_RATES:
        wanted = list(permutations(names, 2))
    else:
        wanted = list(zip(names, [*names[1:], names[0]], strict=True))
    planned: list[list[tuple[str, str]]] = []
    for pair in wanted:
        free = next((one for one in planned if not {*pair} & {name for each in one for name in each}), None)
        if free is None:
            planned.append([pair])
        else:
            free.append(pair)
    return planned


async def _open(post: Post, told: Told) -> Door:
    token = secrets.token_hex(16)
    try:
        answer = await post.ask("listen", told.ip, token, within=ANSWERS_WITHIN)
    except Silent as why:
        return Door("", "", str(why))
    if answer[0] == "listening":
        return Door(answer[1], token)
    return Door("", "", f"{told.node} can't listen at {told.ip}: {' '.join(answer[1:])}")


async def _reach(post: Post, told: Told, door: Door, patience: float) -> Pair:
    pair = Pair(post.node.name, told.node, told.ip, "unproven", seen=door.why_not)
    if not door.port:
        return pair
    try:
        answer = await post.ask("reach", told.ip, door.port, door.token, f"{patience:g}", within=ANSWERS_WITHIN)
    except Silent as why:
        return replace(pair, seen=str(why))
    _, outcome, local, connect_s, round_trip_s, *text = answer
    return replace(
        pair,
        outcome=_OUTCOMES.get(outcome, "unproven"),
        local_ip="" if local == "-" else local,
        connect_s=_number(connect_s),
        round_trip_s=_number(round_trip_s),
        seen=" ".join(text),
    )


async def _rate(post: Post, pair: Pair, door: Door) -> Pair:
    """The pair with its rate, and with the round trip of a quiet moment; as it is when that could not be measured."""
    words = (pair.ip, door.port, door.token, str(RATE_BYTES), f"{RATE_SECONDS:g}")
    try:
        answer = await post.ask("rate", *words, within=RATE_WITHIN)
    except Silent:
        return pair
    size, seconds, trip = (_number(word) for word in answer[1:4])
    trips = [one for one in (pair.round_trip_s, trip) if one]
    rate = size / seconds if size and seconds else None
    return replace(pair, rate=rate, round_trip_s=min(trips, default=None))


def _number(word: str) -> float | None:
    return None if word == "-" else float(word)
