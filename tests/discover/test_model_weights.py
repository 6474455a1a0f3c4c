"""Headers of safetensors, indexes, and which files count; a damaged file is told before an engine stumbles over it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.nouns import Quantization
from bascule.discover.safetensors import MAX_HEADER, Shard, parse_header
from bascule.discover.weights import Head, Index, Weights, parse_index, weigh, weight_files
from bascule.errors import ModelError
from discover.model_cases import framed, header, size_of

PLAIN = {"a": ("BF16", [4, 8]), "b": ("F32", [3]), "empty": ("F32", [0, 5]), "one": ("F32", [])}


def shard(tensors: dict[str, tuple[str, list[int]]], quantization: Quantization | None = None) -> Shard | None:
    head = header(tensors)
    return parse_header("m/x.safetensors", head, size_of(head), quantization)


def test_bytes_and_parameters_are_those_of_the_shapes() -> None:
    assert shard(PLAIN) == Shard(4 * 8 * 2 + 3 * 4 + 4, 4 * 8 + 3 + 1)


@pytest.mark.parametrize(
    ("quantization", "tensors", "parameters"),
    [
        (
            Quantization("fp8", "", 8, (128, 128)),
            {"q.weight": ("F8_E4M3", [256, 256]), "q.weight_scale_inv": ("F32", [2, 2]), "n.weight": ("BF16", [256])},
            256 * 256 + 256,
        ),
        (
            Quantization("gptq", "", 4),
            {
                "q.qweight": ("I32", [32, 128]),
                "q.qzeros": ("I32", [2, 16]),
                "q.scales": ("F16", [2, 128]),
                "q.g_idx": ("I32", [256]),
                "q.bias": ("F16", [128]),
            },
            256 * 128 + 128,
        ),
        (Quantization("gptq", "", 3), {"q.qweight": ("I32", [24, 128])}, 256 * 128),
        (
            Quantization("compressed-tensors", "nvfp4-pack-quantized", 4),
            {
                "q.weight_packed": ("U8", [128, 64]),
                "q.weight_scale": ("F8_E4M3", [128, 8]),
                "q.weight_global_scale": ("F32", [1]),
                "q.input_global_scale": ("F32", [1]),
            },
            128 * 128,
        ),
        (
            Quantization("compressed-tensors", "pack-quantized", 4),
            {
                "q.weight_packed": ("I32", [128, 16]),
                "q.weight_scale": ("BF16", [128, 4]),
                "q.weight_shape": ("I64", [2]),
            },
            128 * 128,
        ),
        (
            Quantization("modelopt", "NVFP4", 4),
            {"q.weight": ("U8", [128, 64]), "q.weight_scale_2": ("F32", []), "q.input_scale": ("F32", [])},
            128 * 128,
        ),
        (
            Quantization("mxfp4", "", 4),
            {"e.gate_up_proj_blocks": ("U8", [2, 64, 3, 16]), "e.gate_up_proj_scales": ("U8", [2, 64, 3])},
            2 * 64 * 96,
        ),
        (
            Quantization("bitsandbytes", "", 4),
            {
                "q.weight": ("U8", [128, 1]),
                "q.weight.absmax": ("U8", [4]),
                "q.weight.quant_map": ("F32", [16]),
                "q.weight.quant_state.bitsandbytes__nf4": ("U8", [90]),
            },
            256,
        ),
        (Quantization("fp8", "", 8), {"w": ("F4", [4, 4]), "w.scale": ("F8_E8M0", [4])}, 16),
        (Quantization("modelopt", "MIXED_PRECISION"), {"q.weight": ("U8", [128, 64])}, None),
        (Quantization("compressed-tensors", "mixed"), {"q.weight_packed": ("I32", [128, 16])}, None),
    ],
    ids=lambda value: str(value) if isinstance(value, Quantization) else "",
)
def test_packed_weights_are_counted_as_what_they_unpack_to(quantization, tensors, parameters) -> None:
    found = shard(tensors, quantization)
    assert found is not None
    assert found.parameters == parameters


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("head", "size", "code", "says"),
    [
        (b"", 0, "model-broken", "is no safetensors file"),
        (b"1234567", 7, "model-broken", "is no safetensors file"),
        (b"<html>not found</html>", 22, "model-broken", "is no safetensors file"),
        ((MAX_HEADER + 1).to_bytes(8, "little"), 2**40, "model-broken", "is no safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", 134, "model-incomplete", "is a pointer of Git LFS"),
        (header(PLAIN), 50, "model-incomplete", "is cut short"),
        (header(PLAIN), size_of(header(PLAIN)) - 1, "model-incomplete", "is cut short"),
        (header(PLAIN), size_of(header(PLAIN)) + 1, "model-broken", "is longer than its header says"),
        (framed([]), None, "model-broken", "is no object"),
        (len(b"[" * 9999).to_bytes(8, "little") + b"[" * 9999, None, "model-broken", "is no JSON"),
        (framed({"a": 1}), None, "model-broken", "is no object"),
        (framed({"a": {}}), None, "model-broken", "lacks dtype, shape or data_offsets"),
        (framed({"a": entry(shape=[-1])}), None, "model-broken", "has no shape"),
        (framed({"a": entry(shape=[2.0])}), None, "model-broken", "has no shape"),
        (framed({"a": entry(shape=[2**60])}), None, "model-broken", "has no shape"),
        (framed({"a": entry(shape=[1] * 100_000)}), None, "model-broken", "has no shape"),
        (framed({"a": entry(offsets=[8, 0])}), None, "model-broken", "has no offsets"),
        (framed({"a": entry(offsets=[0, True])}), None, "model-broken", "has no offsets"),
        (framed({"a": entry(offsets=[0])}), None, "model-broken", "has no offsets"),
        (framed({"a": entry(offsets=[0, 4])}), None, "model-broken", "shape and offsets of tensor 'a' disagree"),
        (framed({"a": entry(), "b": entry(offsets=[4, 12])}), None, "model-broken", "'b' overlaps another one"),
        (framed({"a": entry(), "b": entry(offsets=[9, 17])}), None, "model-broken", "'b' leaves a gap before it"),
        (framed({"a": entry(offsets=[8, 16])}), None, "model-broken", "'a' leaves a gap before it"),
    ],
)
def test_a_file_that_no_engine_would_load_is_told(head: bytes, size: int | None, code: str, says: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_header("m/x.safetensors", head, len(head) + 16 if size is None else size, None)
    assert caught.value.code == code
    assert says in caught.value.says
    assert "m/x.safetensors" in caught.value.says
    assert len(caught.value.seen) < 1000


def test_a_dtype_that_is_newer_than_this_program_is_taken_by_its_offsets() -> None:
    head = framed({"a": entry("F5_NEW", [16], [0, 10])})
    assert parse_header("m/x", head, len(head) + 10, None) == Shard(10, 16)


@given(st.binary(max_size=300), st.integers(0, 2**63))
def test_any_bytes_are_a_shard_or_a_complaint(head: bytes, size: int) -> None:
    try:
        found = parse_header("m/x", head, size, None)
    except ModelError as error:
        assert error.code in ("model-broken", "model-incomplete")
        return
    assert found is None or found.bytes < size


ODD = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=4)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "F4", "X"]) | ODD,
        "shape": st.lists(st.integers(0, 4) | ODD, max_size=3) | ODD,
        "data_offsets": st.lists(st.integers(0, 40) | ODD, max_size=3) | ODD,
    }
)


@given(st.dictionaries(st.text(max_size=4), ENTRY | ODD, max_size=3), st.integers(0, 64), st.sampled_from([None, 4, 8]))
def test_any_header_is_a_shard_or_a_complaint(entries: dict[str, Any], more: int, bits: int | None) -> None:
    head = framed(entries)
    try:
        found = parse_header("m/x", head, len(head) + more, bits and Quantization("gptq", "", bits))
    except ModelError as error:
        assert error.code in ("model-broken", "model-incomplete")
        return
    assert found is not None
    assert found.bytes == more


def test_an_index_names_files_and_their_bytes() -> None:
    raw = {"metadata": {"total_size": 12.0}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
    assert parse_index("m/i", json.dumps(raw).encode()) == Index(frozenset({"x.safetensors", "y.safetensors"}), 12)


@pytest.mark.parametrize("total", [None, "12", -1, 1.5, True, 10**30, float("nan"), float("inf")])
def test_a_total_that_is_no_number_of_bytes_is_none(total: object) -> None:
    raw = {"metadata": {"total_size": total}, "weight_map": {"a": "x.safetensors"}}
    assert parse_index("m/i", json.dumps(raw).encode()).total is None


@pytest.mark.parametrize(
    "names", [None, {}, [], {"a": 1}, {"a": "../x.safetensors"}, {"a": "/x.safetensors"}, {"a": "x\n.safetensors"}]
)
def test_an_index_without_files_is_told(names: object) -> None:
    with pytest.raises(ModelError, match="m/i has no weight_map of files"):
        parse_index("m/i", json.dumps({"weight_map": names}).encode())


@pytest.mark.parametrize(
    ("sizes", "files", "wanted"),
    [
        ({"a.safetensors": 1, "b.safetensors": 2, "c.bin": 4, "d.gguf": 8}, None, 3),
        ({"c.bin": 4, "d.gguf": 8, "config.json": 16}, None, 8),
        ({"pytorch_model.bin": 4, "training_args.bin": 2}, None, 4),
        ({"model.safetensors": 1, "consolidated.safetensors": 2}, None, 1),
        ({"consolidated.safetensors": 2}, None, 2),
        ({"a.safetensors": 1, "other.safetensors": 2}, {"a.safetensors"}, 1),
        ({"other.safetensors": 2}, {"a.safetensors"}, 0),
        ({"a.safetensors": 1}, {"a.safetensors", "below/b.safetensors"}, 0),
        ({}, None, 0),
    ],
)
def test_the_files_that_count_are_those_that_an_engine_loads(sizes, files, wanted) -> None:
    index = None if files is None else Index(frozenset(files), None)
    assert sum(weight_files("m", sizes, index).values()) == wanted


@pytest.mark.parametrize(
    ("sizes", "files", "seen"),
    [
        ({"a.safetensors": 1}, {"a.safetensors", "b.safetensors"}, "by model.safetensors.index.json: b.safetensors"),
        (
            {"model-00001-of-00005.safetensors": 1},
            None,
            "by the number in the names: model-00002-of-00005.safetensors, model-00003-of-00005.safetensors, "
            "model-00004-of-00005.safetensors and 1 more",
        ),
    ],
)
def test_a_file_that_is_missing_among_others_is_told(sizes, files, seen) -> None:
    with pytest.raises(ModelError) as caught:
        weight_files("m", sizes, files and Index(frozenset(files), None))
    assert (caught.value.code, caught.value.seen) == ("model-incomplete", seen)


def test_names_with_huge_numbers_cost_nothing() -> None:
    with pytest.raises(ModelError, match="lacks 99990 of its files"):
        weight_files("m", {f"{i}-00001-of-999999.safetensors": 1 for i in range(1000)}, None)


def test_where_a_header_was_not_read_the_files_count_and_parameters_are_unknown() -> None:
    head = header(PLAIN)
    whole = Head(size_of(head), head)
    assert weigh("m", {"a": whole, "b": whole}, None) == Weights(160, True, 72)
    assert weigh("m", {"a": whole, "b": Head(size_of(head), head[:64])}, None) == Weights(2 * size_of(head))
