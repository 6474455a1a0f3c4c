"""Bounds on decode speed: bytes a token, exchanges, and what they make of each other."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core.choose import bound_of
from bascule.core.fit import Wish
from bascule.core.parallel import Customs, Layout
from bascule.core.roofline import Link, Speed, bound, exchanges
from bascule.discover.hardware import gpu_model, link
from fit.fit_cases import DEEPSEEK_V3, FAMILIES, GLM, LLAMA_70B, NEMOTRON, QWEN_122B, engine, machines, shape

SPARK = 273e9  # bytes a second
CABLE = Link("rdma", 30e-6, 23.7e9)
TWO = Layout(2, 1, 2)


def test_the_two_sparks_of_the_story_have_the_bound_that_was_worked_out_by_hand() -> None:
    """10.1 GB a token, 27 tok/s on one node, 46 on two with 98 all-reduces of 30 us; 27.3 were measured there."""
    model = shape(QWEN_122B)
    alone = bound(model, Layout(), Speed(SPARK, None), Customs())
    assert alone.bytes_per_token == pytest.approx(10.1e9, rel=0.01)
    assert alone.tok_s == pytest.approx(27.0, rel=0.01)
    assert (alone.exchanges, alone.exchange_s, alone.lost) == (0, 0.0, 0.0)
    both = bound(model, TWO, Speed(SPARK, CABLE), Customs())
    assert both.exchanges == 98
    assert both.bytes_per_token == pytest.approx(5.10e9, rel=0.01)
    assert both.tok_s == pytest.approx(46.3, rel=0.01)
    assert 27.3 / both.tok_s == pytest.approx(0.59, abs=0.01)


def test_what_was_measured_on_two_h200_over_sockets_is_below_its_bound() -> None:
    """128 tokens in 1.67 s and 256 in 3.11 s at batch 1, by vLLM 0.24.0 over loopback sockets."""
    found = bound(shape(QWEN_122B), TWO, Speed(gpu_model("NVIDIA H200").bandwidth, link("sockets")), Customs())
    assert 128 / (3.11 - 1.67) / found.tok_s == pytest.approx(0.67, abs=0.02)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (LLAMA_70B, 139e9),  # 70.6 B parameters in 2 bytes, less the embedding
        (DEEPSEEK_V3, 37.6e9),  # 37 B active in FP8, head and router in 2 bytes
        (GLM, 7.0e9),  # 3.5 B active, of which the embedding is not read
    ],
    ids=["llama", "deepseek", "glm"],
)
def test_bytes_a_token_are_those_of_the_active_parameters(config: dict, wanted: float) -> None:
    found = bound(shape(config), Layout(), Speed(1e12, None), Customs())
    assert found.bytes_per_token == pytest.approx(wanted, rel=0.04)


def test_a_layer_of_one_block_exchanges_once() -> None:
    assert exchanges(shape(NEMOTRON), Layout(2)) == 52 + 2
    assert exchanges(shape(LLAMA_70B), Layout(8)) == 160 + 2
    assert exchanges(shape(LLAMA_70B), Layout(1, 8)) == 0


def test_tokens_before_cost_what_their_cache_holds() -> None:
    model, speed = shape(QWEN_122B), Speed(SPARK, CABLE)
    near, far = (bound(model, TWO, speed, Customs(), context) for context in (0, 100_000))
    assert far.memory_s - near.memory_s == pytest.approx(4.5e-3, rel=0.01)  # 12 KiB a token on each rank
    halved = bound(model, TWO, speed, Customs(), 100_000, number=1)
    assert halved.memory_s - near.memory_s == pytest.approx((far.memory_s - near.memory_s) / 2, rel=1e-6)


def test_a_window_bounds_what_is_read() -> None:
    model = shape(FAMILIES["gemma"])
    sizes = [bound(model, Layout(), Speed(SPARK, None), Customs(), context).bytes_per_token for context in (0, 2048)]
    assert sizes[1] - sizes[0] == 16 * 256 * 2 * (10 * 2048 + 52 * 1024)


def test_whole_experts_are_read_where_they_are() -> None:
    """8 of 256 experts on 3 ranks: one of them reads at least 3, a slice of each would be 8 / 3."""
    model = shape(QWEN_122B)
    whole = bound(model, Layout(16, experts=True), Speed(SPARK, CABLE), Customs())
    sliced = bound(model, Layout(16), Speed(SPARK, CABLE), Customs())
    assert whole.bytes_per_token > sliced.bytes_per_token  # one expert at least, where half of one would do


@pytest.mark.parametrize(
    ("speed", "why"),
    [(Speed(None, CABLE), "bandwidth"), (Speed(SPARK, None), "link"), (Speed(None, None), "bandwidth")],
    ids=["memory", "link", "both"],
)
def test_what_is_not_known_gives_no_number(speed: Speed, why: str) -> None:
    found = bound(shape(QWEN_122B), TWO, speed, Customs())
    assert (found.tok_s, found.lost) == (None, None)
    assert why in found.unknown
    assert found.bytes_per_token > 0  # what is known is told


def test_a_hop_between_stages_needs_a_link_too() -> None:
    model, stages = shape(QWEN_122B), Layout(1, 2, 2)
    assert bound(model, stages, Speed(SPARK, None), Customs()).tok_s is None
    assert bound(model, stages, Speed(SPARK, None, CABLE), Customs()).tok_s == pytest.approx(26.9, rel=0.01)


SHAPES = {name: shape(config) for name, config in FAMILIES.items()}


@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(1e9, 1e13),
    st.floats(0, 1e-3),
    st.integers(0, 10**6),
)
@settings(deadline=None, max_examples=40)
def test_more_bandwidth_is_never_slower_and_more_latency_or_context_never_faster(
    name: str, tensor: int, bandwidth: float, latency: float, context: int
) -> None:
    model, layout = SHAPES[name], Layout(tensor)

    def speed(width: float, wait: float, tokens: int) -> float:
        found = bound(model, layout, Speed(width, Link("x", wait, 1e9)), Customs(), tokens)
        assert found.tok_s is not None
        return found.tok_s

    base = speed(bandwidth, latency, context)
    assert speed(bandwidth * 2, latency, context) >= base
    assert speed(bandwidth, latency * 2, context) <= base
    assert speed(bandwidth, latency, context * 2) <= base


def test_the_slowest_of_unlike_machines_counts() -> None:
    fast, slow = machines("H200", 1)[0], machines("GB10", 1)[0]
    model, rules = shape(QWEN_122B), engine()
    mixed = bound_of(model, TWO, [fast, slow], rules, Wish(), CABLE)
    assert mixed.tok_s == pytest.approx(46.2, rel=0.01)
    unknown = dataclasses.replace(fast, bandwidth=None)
    assert bound_of(model, TWO, [fast, unknown], rules, Wish(), CABLE).tok_s is None
