"""What is known before the first start, as a person reads it: addresses, fit, offers; and speed against its bound."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bascule.core.addresses import AddressPlan, Link, Pair, Row, Told
from bascule.core.machine import Gpu, NodeFacts
from bascule.core.notices import Notice
from bascule.core.nouns import Artefact, Candidate, Evidence, Fate, Finding, Model, Node, Setting, Step
from bascule.core.plain import to_plain
from bascule.fits import Fitness, fitness
from bascule.journal import Event
from bascule.plan import Plan, Planned
from bascule.preflight.addresses import Proven
from bascule.show.plan import plan_lines
from bascule.show.story import Narrator
from fit.fit_cases import GIB, QWEN_122B, QWEN_122B_REFUSED, shape

AT = datetime(2026, 12, 1, 9, tzinfo=UTC)
SEEN = (Evidence("a", "vllm/registry.py:71", AT, "x"),)
ONE = Candidate("vllm-0.32", "vllm", Artefact("venv", "/v"), "/m", (), ("a", "b"), 2)
NODES = [
    Node(name, name, facts=NodeFacts(gpus=(Gpu(0, "NVIDIA GB10", "sm_121"),), memory_bytes=120 * GIB)) for name in "ab"
]
TOLD = [Told(name, f"10.0.0.{at}", "enp1") for at, name in enumerate("ab", 1)]
PAIRS = (
    Pair("a", "b", "10.0.0.2", "reached", round_trip_s=4e-5, rate=2.5e9),
    Pair("b", "a", "10.0.0.1", "reached", round_trip_s=6e-5, rate=2.9e9),
)


def told(*events: Event, whole: bool = False) -> list[str]:
    narrator = Narrator(whole=whole)
    return [f"{say.label:<10} {say.text}".rstrip() for event in events for say in narrator.tell(event)]


def event(kind: str, **data: Any) -> Event:
    return Event(17, AT, kind, to_plain(data))


def finding(fate: Fate, code: str, says: str) -> Finding:
    return Finding(Step.PREFLIGHT, fate, code, says, SEEN, advice="do this", scope="candidate")


def proven(*pairs: Pair, notices: tuple[Notice, ...] = (), found: Finding | None = None) -> Proven:
    rows = tuple(Row(one.node, "10.0.0.1", one, one, one) for one in TOLD)
    plan = AddressPlan(Link("10.0.0.0/24", tuple(TOLD)), rows, "it is the fastest network that all nodes share")
    well = finding(Fate.OK, "addresses-proven", "all reach each other")
    return Proven(plan, pairs or PAIRS, (found or well,), notices)


def test_the_fabric_is_told_with_its_slowest_pair():
    assert told(event("addresses", proven=proven())) == [
        "fabric     a 10.0.0.1 (enp1) ⇄ b 10.0.0.2 (enp1)   20 Gbit/s TCP · 0.06 ms"
    ]


def test_notices_of_addresses_and_what_is_only_for_the_whole_story():
    said = tuple(Notice("a", f"x-{weight}", "says", SEEN, weight) for weight in ("warning", "note", "blocker"))
    brief = told(event("addresses", proven=proven(notices=said)))[1:]
    assert brief == ["           x-warning: says", "           x-blocker: says"]
    assert sum("x-note" in line for line in told(event("addresses", proven=proven(notices=said)), whole=True)) == 1


def test_a_pair_that_does_not_reach_is_told_in_place_of_figures():
    cut = replace(PAIRS[0], outcome="no-answer", rate=None, round_trip_s=None)
    bad = finding(Fate.CLUSTER, "peer-unreachable", "a gets no answer from b")
    lines = told(event("addresses", proven=proven(cut, PAIRS[1], found=bad)))
    assert lines[0].endswith("a → b no-answer") and lines[1] == "           peer-unreachable: a gets no answer from b"


def fit(config: dict = QWEN_122B, context: int | None = 8192) -> Fitness:
    return fitness(ONE, Model("/m", (), "", bytes=1, shape=shape(config)), NODES, context, None)


def test_a_fit_is_told_once_for_a_layout():
    lines = told(event("fitted", candidate=ONE, fitness=fit()), event("fitted", candidate=ONE, fitness=fit()))
    (line,) = lines
    assert line.startswith("fits       tensor parallel 2: ") and " GiB a rank · context up to 262144 · at most " in line
    assert line.endswith(" tok/s")


def test_what_is_not_known_of_a_fit_is_for_the_whole_story():
    unknown = Fitness(unknown="nobody has looked at how llamacpp uses memory")
    assert told(event("fitted", candidate=ONE, fitness=unknown)) == []
    (line,) = told(event("fitted", candidate=ONE, fitness=unknown), whole=True)
    assert line.endswith("unknown: nobody has looked at how llamacpp uses memory")


def test_a_layout_that_is_refused_says_what_to_do():
    lines = told(event("fitted", candidate=ONE, fitness=fit(QWEN_122B_REFUSED)))
    assert lines[0].startswith("1          no       vllm would refuse tensor parallel 2: ")
    assert lines[1].startswith("     try   ") and "--mm-encoder-tp-mode data" in lines[1]


def test_what_was_found_and_what_is_held_back():
    row = {"names": ["me/vllm:1"], "because": "community image of me", "publisher": "docker.io/me"}
    unread = [{"source": "docker.io", "why": "no route to host"}]
    found = event("discovered", candidates=[row, row], held=[row], refused=[], unread=unread)
    assert told(found) == [
        "found      2 could serve it · 0 could not · 1 held back",
        "           me/vllm:1: community image of me",
    ]
    assert told(found, whole=True)[-1].endswith("docker.io was not read: no route to host")


@pytest.mark.parametrize(("weight", "said"), [("warning", True), ("blocker", True), ("unknown", True), ("note", False)])
def test_notices_of_nodes(weight, said):
    notice = event("notice", notice=Notice("a", "clock-off", "the clock of a is 7 min behind", SEEN, weight))
    assert told(notice) == (["notice     clock-off: the clock of a is 7 min behind"] if said else [])
    assert len(told(notice, whole=True)) == 1
    tried = event("try", candidate=ONE, because="it is first")
    assert told(tried, notice)[1:] == (["  notice   clock-off: the clock of a is 7 min behind"] if said else [])


def test_what_is_waited_for():
    assert told(event("asking", says="looking at 5 images in registries")) == [
        "asking     looking at 5 images in registries"
    ]


def test_speed_is_told_against_its_bound():
    bound = fit().bound
    assert bound is not None and bound.tok_s
    speed = {"tokens_per_s": bound.tok_s / 2, "ttft_s": 0.43}
    (line,) = told(event("speed", speed=speed, bound=bound))
    exchanges = f"{bound.exchanges} exchanges a token"
    assert line == (
        f"speed      {bound.tok_s / 2:.1f} tok/s at batch 1 · 50 % of the bound ({bound.tok_s:.0f} tok/s, {exchanges})"
        " · first token after 0.43 s"
    )
    assert told(event("speed", speed=speed, bound=None)) == [
        f"speed      {bound.tok_s / 2:.1f} tok/s at batch 1 · first token after 0.43 s"
    ]


def page(*planned: Planned, events: tuple[Event, ...] = ()) -> list[str]:
    return plan_lines(Plan(events, tuple(NODES), None, Model("/m", (), ""), planned))


def test_the_page_of_a_plan():
    setting = Setting("env", "X", "lo", "b")
    change = Finding(Step.PREFLIGHT, Fate.ADJUST, "interface-missing", "b has no eth9", SEEN, setting)
    ok = finding(Fate.OK, "architecture-known", "it knows the model")
    one = Planned(
        ONE, ok, True, "it knows the model", changes=(change,), asks=("--trust-remote-code",), commands=("ls",)
    )
    no = finding(Fate.HOPELESS, "disk-too-small", "60 GB are to come")
    assert page(one, Planned(ONE, no, False, no.says)) == [
        "",
        "# 1          vllm-0.32   would be tried: it knows the model",
        "#   seen     a  vllm/registry.py:71",
        "#   start    how long it takes here is not known yet",
        "#   change   X=lo on b   (interface-missing: b has no eth9)",
        "#   asks     --trust-remote-code",
        "ls",
        "",
        "# 2          vllm-0.32   NOT tried: 60 GB are to come",
        "#   seen     a  vllm/registry.py:71",
        "#   try      do this",
    ]


def test_no_text_leaves_its_comment():
    """Else what a file of an image says would be run by who pastes the page."""
    bad = finding(Fate.OK, "architecture-known", "x\nrm -rf ~\r\nrm -rf /")
    lines = page(Planned(ONE, bad, True, bad.says))
    assert all(line.startswith("# ") and "\n" not in line and "\r" not in line for line in lines if line)
