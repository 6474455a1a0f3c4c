"""The order of candidates: one place for each image, a reason each, and nobody unknown without being asked about."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.candidates.ask import Ask
from bascule.core.nouns import Model
from bascule.discover.offers import Offer, Publisher, merged
from bascule.discover.rank import CLASSES, Verdict, Wanted, age, rank, refusal
from bascule.probe.verdict import Word

NOW = datetime(2026, 12, 1, tzinfo=UTC)
PROJECT = Publisher("docker.io/vllm", "vLLM project", "project")
ANYBODY = Publisher("docker.io/hellohal2064", "hellohal2064", "community")
YES = Verdict("YES", "it knows it")


def offer(name, *identities, **more):
    return Offer((name,), "image", more.pop("engine", "vllm"), ("x",), identities=frozenset(identities), **more)


def names(rows):
    return [row.offer.name for row in rows]


def ranked(*pairs, **wanted):
    return rank(pairs, Wanted(("a", "b"), ("linux/arm64",), engines=("vllm", "sglang", "llamacpp"), **wanted), NOW)


def test_the_probe_s_words_all_have_a_place():
    assert set(CLASSES) == {str(word) for word in Word}
    order = [CLASSES[str(word)] for word in Word]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((offer("far"), YES), (offer("near", nodes=("a", "b")), Verdict("LIKELY", ""))),
        ((offer("via"), Verdict("YES-via-transformers", "")), (offer("maybe"), Verdict("MAYBE", ""))),
        ((offer("hinted"), Verdict("UNKNOWN", "", hint=1)), (offer("plain"), Verdict("UNKNOWN", ""))),
        ((offer("plain"), Verdict("UNKNOWN", "")), (offer("old"), Verdict("UNKNOWN", "", hint=-1))),
        ((offer("everywhere", nodes=("a", "b")), YES), (offer("one", nodes=("a",)), YES)),
        ((offer("one", nodes=("a",)), YES), (offer("none"), YES)),
        ((offer("known", publisher=PROJECT), YES), (offer("newer", created=NOW, publisher=ANYBODY), YES)),
        ((offer("new", created=NOW), YES), (offer("old", created=NOW - timedelta(days=9)), YES)),
        ((offer("dated", created=NOW), YES), (offer("undated"), YES)),
        ((offer("small", size=5), YES), (offer("large", size=6), YES)),
        ((offer("v"), YES), (offer("s", engine="sglang"), YES)),
        ((offer("named", named=True), Verdict("UNKNOWN", "")), (offer("other"), YES)),
    ],
)
def test_what_comes_first(first, second):
    found = ranked(second, first, trust=("hellohal2064",))
    assert names(found.candidates) == [first[0].name, second[0].name]


@pytest.mark.parametrize("word", ["NO", "REMOVED", "PLUGIN"])
def test_a_no_is_refused_with_its_reason(word):
    found = ranked((offer("a"), Verdict(word, "vLLM 0.14.0 does not know X")))
    assert found.candidates == () and found.refused[0].refused == "vLLM 0.14.0 does not know X"


@pytest.mark.parametrize(
    ("made", "wanted", "why"),
    [
        (offer("x", platforms=("linux/amd64",)), {}, "made for linux/amd64, not for linux/arm64"),
        (offer("x", platforms=("linux/arm64/v8",)), {}, ""),
        (offer("x"), {}, ""),
        (offer("x", accelerator="rocm"), {"accelerator": "cuda"}, "made for AMD's GPUs"),
        (offer("x", accelerator="rocm"), {}, ""),
        (offer("x", accelerator="cuda"), {"accelerator": "cpu"}, "made for NVIDIA's GPUs, and these nodes have none"),
        (offer("x", engine="tgi"), {}, "bascule can't start tgi"),
        (offer("x", engine=""), {}, "no engine that bascule knows was found in it"),
        (
            offer("x", engine="llamacpp"),
            {"unfit": {"llamacpp": "it takes GGUF files alone"}},
            "it takes GGUF files alone",
        ),
    ],
)
def test_what_is_refused_unseen(made, wanted, why):
    asked = Wanted((), ("linux/arm64",), engines=("vllm", "llamacpp"), **wanted)
    assert refusal(made, asked) == why
    assert [row.refused for row in rank([(made, YES)], asked, NOW).rows] == [why]


@pytest.mark.parametrize("trust", ["hellohal2064", "docker.io/hellohal2064"])
def test_anybody_s_image_is_held_until_somebody_trusts_them(trust):
    pair = (offer("x", publisher=ANYBODY), YES)
    found = ranked(pair)
    assert (found.candidates, names(found.held)) == ((), ["x"])
    assert "community image of hellohal2064" in found.held[0].because
    assert names(ranked(pair, trust=(trust,)).candidates) == ["x"]
    assert names(ranked(pair, trust=("hellohal", "docker.io")).held) == ["x"]
    assert names(ranked((offer("x", publisher=ANYBODY, named=True), YES)).candidates) == ["x"]


def test_a_reason_says_where_it_is_what_moves_whose_it_is_and_its_age():
    made = offer("x", size=14_200_000_000, nodes=("a",), publisher=PROJECT, created=NOW - timedelta(days=12))
    row = ranked((made, YES)).candidates[0]
    assert row.because == "it knows it; on a; 14.2 GB to copy to b; by vLLM project; 12 days old"
    assert ranked((offer("y", size=3_100_000), YES)).candidates[0].because == "it knows it; 3.1 MB to pull; built here"


@pytest.mark.parametrize(
    ("old", "words"),
    [(timedelta(hours=5), "5 h"), (timedelta(days=99), "99 days"), (timedelta(days=400), "13 months"), (None, "")],
)
def test_ages(old, words):
    assert age(None if old is None else NOW - old, NOW) == words
    assert age(NOW + timedelta(days=3), NOW) == "0 h"


def test_gguf_files_are_for_llama_cpp_alone_and_all_else_for_the_others():
    assert set(Ask(Model("/m/q.gguf", (), "")).wanted.unfit) == {"vllm", "sglang", "transformers"}
    assert set(Ask(Model("/m", ("X",), "x")).wanted.unfit) == {"llamacpp"}


def test_offers_with_an_identity_in_common_are_one():
    here = offer("vllm-node:latest", "sha256:1", "layers:9", nodes=("a",))
    there = offer("vllm-node:latest", "sha256:2", "layers:9", nodes=("b",))
    far = offer("vllm/vllm-openai:v1", "sha256:2", publisher=PROJECT, pinned="sha256:7", pulls=5, signed="absent")
    other = offer("x", "sha256:5")
    one, left = merged([far, other, here, there])
    assert (one.name, one.nodes, one.pulls, one.publisher) == ("vllm-node:latest", ("a", "b"), 5, PROJECT)
    assert set(one.names) == {"vllm-node:latest", "vllm/vllm-openai:v1"} and left.name == "x"
    assert merged([offer("x"), offer("y")]) == (offer("x"), offer("y"))


OFFERS = st.builds(
    lambda name, ids, nodes, words, who: (offer(name, *ids, nodes=tuple(nodes), publisher=who), Verdict(words, "says")),
    st.text("abc", min_size=1, max_size=3),
    st.frozensets(st.sampled_from("1234567"), max_size=3),
    st.sets(st.sampled_from("ab")),
    st.sampled_from(sorted(CLASSES)),
    st.sampled_from([PROJECT, ANYBODY]),
)


@given(st.lists(OFFERS, max_size=12))
def test_no_two_rows_have_an_identity_in_common_and_every_row_has_a_reason(pairs):
    whole = merged([made for made, _ in pairs])
    found = ranked(*((made, pairs[0][1]) for made in whole))
    seen = [identity for row in found.rows for identity in row.offer.identities]
    assert len(seen) == len(set(seen)) and set(seen) == {one for made, _ in pairs for one in made.identities}
    assert all(row.because for row in found.rows)
    assert {node for row in found.rows for node in row.offer.nodes} == {
        node for made, _ in pairs for node in made.nodes
    }
    for row in found.candidates:
        assert CLASSES[row.verdict.word] < 9 and row.offer.publisher.kind != "community"
