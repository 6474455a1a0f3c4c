"""Fits over imagined machines: what must hold for every model, layout and wish, and what is known of single ones."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core.cache import largest_context
from bascule.core.choose import choices, layouts
from bascule.core.fit import Fit, Room, Wish, fit
from bascule.core.parallel import Customs, Layout, held_of, stage_bounds
from bascule.core.shape import Shape
from bascule.discover.hardware import link
from fit.fit_cases import (
    DEEPSEEK_V3,
    FAMILIES,
    GEMMA3_27B,
    GIB,
    LLAMA_70B,
    NEMOTRON,
    QWEN_122B,
    adder,
    cache,
    engine,
    machines,
    shape,
)

SHAPES = {name: shape(config) for name, config in FAMILIES.items()}
NAMES = st.sampled_from(sorted(SHAPES))
ENGINES = st.sampled_from([engine("vllm"), engine("vllm", "0.24.0"), engine("sglang")])
TENSORS = st.sampled_from([1, 2, 4, 8, 16])
WISHES = st.builds(
    Wish,
    context=st.none() | st.integers(1, 131072),
    sequences=st.none() | st.integers(1, 64),
    number=st.sampled_from([None, 1, 2]),
    drafts=st.booleans(),
)


def room(total: int, kind: str = "vram", **more: object) -> Room:
    return Room("n0", 16, total, kind=kind, **more)


def alone(model: Shape, total: int, wish: Wish) -> Fit:
    return fit(model, Layout(), [room(total)], engine(), wish)


@pytest.mark.parametrize(
    ("config", "bytes_of_a_token", "tensor"),
    [
        (DEEPSEEK_V3, 70_272, 1),  # 61 layers of 576 numbers, published
        (DEEPSEEK_V3, 70_272, 8),  # latent vectors are on every rank
        (LLAMA_70B, 327_680, 1),  # published
        (LLAMA_70B, 40_960, 8),
        (LLAMA_70B, 40_960, 16),  # 8 KV heads: each twice
        (QWEN_122B, 24_576, 1),
        (QWEN_122B, 12_288, 2),
        (QWEN_122B, 12_288, 4),
        (GEMMA3_27B, 507_904, 1),
        (NEMOTRON, 6_144, 1),  # 6 layers of attention, 2 KV heads
    ],
)
def test_bytes_of_one_token(config: dict, bytes_of_a_token: int, tensor: int) -> None:
    model = shape(config)
    assert sum(model.layers[kind].mixer.token_bytes(tensor, 2) for kind in model.order) == bytes_of_a_token


@pytest.mark.parametrize(
    ("config", "mebibytes", "layers"),
    [(QWEN_122B, 146.53, 36), (NEMOTRON, 46.81, 23)],  # matrices in 32 bits, the convolution's window in 16
    ids=["delta net", "mamba"],
)
def test_bytes_of_a_state(config: dict, mebibytes: float, layers: int) -> None:
    model = shape(config)
    states = [state for kind in model.order if (state := model.layers[kind].mixer.state)]
    assert len(states) == layers
    assert sum(state.rank_bytes(1) for state in states) / (1 << 20) == pytest.approx(mebibytes, abs=0.01)
    assert sum(state.rank_bytes(2) for state in states) * 2 == sum(state.rank_bytes(1) for state in states)


def test_groups_of_mamba_are_repeated_where_there_are_more_ranks() -> None:
    state = next(layer.mixer.state for layer in SHAPES["nemotron"].layers if layer.mixer.state)
    one = dataclasses.replace(state, groups=1)
    assert one.rank_bytes(8) * 8 - one.rank_bytes(1) == 7 * one.group_channels * one.taps * one.conv_bytes


@given(NAMES, TENSORS, ENGINES, WISHES, st.integers(1, 400), st.integers(0, 400))
@settings(deadline=None, max_examples=40)
def test_more_memory_never_fits_less(name, tensor, rules, wish, gib, more) -> None:
    def fitted(total: int) -> Fit:
        return fit(SHAPES[name], Layout(tensor), [room(total)], rules, wish)

    small, large = fitted(gib * GIB), fitted((gib + more) * GIB)
    assert small.legal == large.legal
    if small.legal:
        assert large.fits >= small.fits
        assert large.context >= small.context
        assert large.fits == (large.sequences >= wish.count and large.fits)


@given(NAMES, st.sampled_from([(1, 2), (2, 4), (4, 8), (8, 16)]), ENGINES, st.booleans())
@settings(deadline=None, max_examples=40)
def test_ranks_that_share_hold_no_more_each_and_no_less_together(name, sizes, rules, experts) -> None:
    model = SHAPES[name]
    few, many = (sum(held_of(model, Layout(tensor, experts=experts), 0, rules.customs).values()) for tensor in sizes)
    assert many <= few
    assert many * sizes[1] >= few * sizes[0]


@given(NAMES, st.integers(1, 12), TENSORS)
@settings(deadline=None, max_examples=40)
def test_stages_hold_all_layers_once(name, stages, tensor) -> None:
    model = SHAPES[name]
    bounds = stage_bounds(len(model.order), stages)
    assert [at for begin, end in bounds for at in range(begin, end)] == list(range(len(model.order)))
    layout = Layout(tensor, stages)
    held = [held_of(model, layout, stage, Customs()) for stage in range(stages)]
    together = sum(size for parts in held for size in parts.values())
    whole = sum(held_of(model, Layout(tensor), 0, Customs()).values())
    twice = sum(one.bytes for one in model.last if one.part == "head") if model.tied and stages > 1 else 0
    assert whole <= together <= whole + twice + stages


@given(NAMES, ENGINES, WISHES, st.integers(1, 300), st.integers(1, 4), st.integers(1, 8))
@settings(deadline=None, max_examples=30)
def test_choices_are_in_order_and_consistent(name, rules, wish, gib, nodes, gpus) -> None:
    rooms = [Room(f"n{at}", gpus, gib * GIB, bandwidth=1e12, inside=link("nvlink")) for at in range(nodes)]
    found = choices(SHAPES[name], rooms, rules, wish, link("rdma"))
    assert {one.fit.layout for one in found} == set(layouts(rooms, SHAPES[name].dimensions.experts > 0))
    ranks = [3 if not one.fit.legal else {True: 0, None: 1, False: 2}[one.fit.fits] for one in found]
    assert ranks == sorted(ranks)
    speeds = [one.bound.tok_s for one in found if one.fit.fits]
    assert speeds == sorted(speeds, reverse=True)
    for one in found:
        assert one.fit.legal == (one.bound is not None)
        assert one.fit.layout.ranks <= nodes * gpus
        if one.fit.fits:
            assert all(node.fits for node in one.fit.nodes)
            assert one.fit.context >= 1
            assert 0 < one.fit.utilisation <= 1
            for node in one.fit.nodes:
                assert node.weights + node.overhead + node.cache <= node.total


@given(NAMES, ENGINES, st.integers(1, 10**6), st.integers(1, 2**38), st.sampled_from([1, 2, 4]))
@settings(deadline=None, max_examples=40)
def test_the_largest_context_fits_and_one_token_more_does_not(name, rules, most, size, tensor) -> None:
    pool = cache(SHAPES[name], Layout(tensor), rules)
    context = largest_context(pool, size, most)
    assert 0 <= context <= most
    if context:
        assert pool.needs(context, 1) <= size
        assert pool.sequences(size, context) >= 1
    if context < most:
        assert pool.needs(context + 1, 1) > size


def test_a_utilisation_is_raised_only_as_far_as_it_helps() -> None:
    model = SHAPES["qwen"]
    both = machines("GB10", 2)
    two = Layout(2, 1, 2)
    assert fit(model, two, both, engine(), Wish()).utilisation == 0.8  # usual for unified memory
    many = fit(model, two, both, engine(), Wish(context=262144, sequences=12))
    assert many.fits
    assert many.utilisation == pytest.approx(0.82, abs=0.01)
    assert not fit(model, two, both, engine(), Wish(context=262144, sequences=16)).fits
    given = fit(model, two, both, engine(), Wish(utilisation=0.7))
    assert (given.utilisation, given.fits) == (0.7, True)


def test_what_is_in_use_already_is_not_there() -> None:
    model, two = SHAPES["qwen"], Layout(2, 1, 2)
    used = [dataclasses.replace(one, free=70 * GIB) for one in machines("GB10", 2)]
    found = fit(model, two, used, engine(), Wish())
    assert found.fits
    assert found.utilisation == pytest.approx(70 / 119.6, abs=0.01)
    full = [dataclasses.replace(one, free=50 * GIB) for one in machines("GB10", 2)]
    assert fit(model, two, full, engine(), Wish()).fits is False


def test_nodes_of_one_machine_share_its_memory() -> None:
    model, two = SHAPES["qwen"], Layout(2, 1, 2)
    h200 = [dataclasses.replace(one, sharers=2) for one in machines("H200", 2)]
    found = fit(model, two, h200, engine(), Wish())
    assert found.utilisation <= 0.475
    assert fit(model, two, machines("H200", 2), engine(), Wish()).utilisation == 0.9


def test_memory_that_was_not_read_is_unknown_and_never_a_no() -> None:
    unread = Room("n1", 1, None, unknown="nvidia-smi timed out")
    found = fit(SHAPES["qwen"], Layout(2, 1, 2), [machines("H200", 1)[0], unread], engine(), Wish())
    assert (found.fits, found.context, found.utilisation) == (None, None, None)
    assert found.unknown == "nvidia-smi timed out"
    assert found.nodes[0].weights > 57 * GIB  # what is known is told


def test_an_unlike_node_decides_for_all() -> None:
    rooms = [machines("H200", 1)[0], dataclasses.replace(machines("RTX 4090", 1)[0], node="small")]
    found = fit(SHAPES["qwen"], Layout(2, 1, 2), rooms, engine(), Wish())
    assert found.fits is False
    assert {node.node: node.fits for node in found.nodes} == {"n0": True, "small": False}


def test_layers_that_predict_more_tokens_count_when_they_are_asked_for() -> None:
    model = SHAPES["deepseek"]
    sizes = [alone(model, 1000 * GIB, Wish(drafts=drafts)).nodes[0].weights / 1e9 for drafts in (False, True)]
    assert sizes == pytest.approx([673.3, 688.6], rel=0.01)  # published: 688.6 GB with the draft layer


def test_a_tied_head_is_there_once_and_twice_with_stages() -> None:
    model = SHAPES["gemma"]
    words = 262208 * 5376 * 2
    one = sum(held_of(model, Layout(), 0, Customs()).values())
    two = sum(sum(held_of(model, Layout(1, 2), stage, Customs()).values()) for stage in (0, 1))
    assert two - one == pytest.approx(words, rel=1e-3)


def test_numbers_of_one_byte_hold_twice_the_tokens() -> None:
    full, half = (alone(SHAPES["llama"], 200 * GIB, Wish(number=number)) for number in (2, 1))
    assert half.tokens == pytest.approx(2 * full.tokens, rel=0.001)


def test_a_context_beyond_what_the_model_was_made_for_is_refused() -> None:
    found = alone(SHAPES["llama"], 1000 * GIB, Wish(context=131073))
    assert [refusal.code for refusal in found.refusals] == ["context-too-long"]
    assert alone(SHAPES["llama"], 1000 * GIB, Wish(context=131072)).fits


def test_our_own_model_fits_on_this_kind_of_machine() -> None:
    model = adder().shape
    found = fit(model, Layout(), [room(24 * GIB, "ram")], engine(), Wish())
    assert found.fits
    assert found.context == 2048
    assert found.nodes[0].weights == pytest.approx(3.0e6, rel=0.02)
