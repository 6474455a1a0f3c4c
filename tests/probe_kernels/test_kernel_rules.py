"""Which code runs where, as a table, and the counts and words of whole libraries."""

import pytest

from bascule.core.nouns import Quantization
from bascule.probe.kernels.fatbin import Code, FatBinary, Library
from bascule.probe.kernels.lore import driver_for, need, places, tools
from bascule.probe.kernels.rules import Way, describe, labels, tally, target, way

DEAD, JIT, FAMILY, NATIVE = Way


@pytest.mark.parametrize(
    ("gpu", "sm"),
    [
        ("sm_121", 121),
        ("121", 121),
        ("12.1", 121),
        ("SM_90", 90),
        ("sm90", 90),
        ("9.0", 90),
        ("sm_90a", 90),
        ("compute_86", 86),
        (" 8.9 ", 89),
        ("gfx1151", None),
        ("gfx942", None),
        ("sm_9", None),
        ("12.10", None),
        ("0.9", None),
        ("1211", None),
        ("", None),
        ("٩٠", None),
    ],
)
def test_names_of_gpus(gpu, sm):
    assert target(gpu) == sm


def code(text: str) -> Code:
    kind, _, rest = text.partition("_")
    number, suffix = rest.rstrip("af"), rest[-1] if rest[-1] in "af" else ""
    return Code("cubin", int(number), suffix) if kind == "sm" else Code("ptx", int(number), suffix, (8, 8))


@pytest.mark.parametrize(
    ("text", "sm", "expected"),
    [
        ("sm_121", 121, NATIVE),
        ("sm_120", 121, NATIVE),
        ("sm_121", 120, DEAD),
        ("sm_90", 121, DEAD),
        ("sm_90", 100, DEAD),
        ("sm_80", 86, NATIVE),
        ("sm_80", 89, NATIVE),
        ("sm_89", 80, DEAD),
        ("sm_120f", 120, NATIVE),
        ("sm_120f", 121, FAMILY),
        ("sm_121f", 120, DEAD),
        ("sm_100f", 103, FAMILY),
        ("sm_100f", 110, DEAD),
        ("sm_100f", 121, DEAD),
        ("sm_120a", 120, NATIVE),
        ("sm_120a", 121, DEAD),
        ("sm_121a", 121, NATIVE),
        ("sm_90a", 90, NATIVE),
        ("compute_80", 121, JIT),
        ("compute_121", 121, JIT),
        ("compute_121", 120, DEAD),
        ("compute_120f", 121, JIT),
        ("compute_100f", 121, DEAD),
        ("compute_120a", 121, DEAD),
        ("compute_120a", 120, JIT),
        ("compute_90a", 121, DEAD),
    ],
)
def test_the_rules(text, sm, expected):
    assert way(code(text), sm) is expected


def binaries(count: int, *codes: str) -> list[FatBinary]:
    return [FatBinary(tuple(code(one) for one in codes))] * count


def counted(*groups: list[FatBinary], sm: int = 121):
    return tally(Library("x.so", 1, tuple(one for group in groups for one in group)), sm)


def test_each_fat_binary_is_decided_by_itself_never_by_the_union():
    found = counted(
        binaries(3, "sm_90", "sm_120"),
        binaries(2, "sm_120f", "sm_90a"),
        binaries(4, "compute_80", "sm_80"),
        binaries(5, "sm_120a", "sm_100a"),
        binaries(6, "sm_90a"),
        [FatBinary(())],
    )
    assert [len(part) for part in (found.native, found.family, found.jit, found.dead)] == [3, 2, 4, 11]
    assert found.total == 20
    assert describe(found) == (
        "11 of 20 fat binaries have nothing for sm_121: 6 only sm_90a, 5 only sm_120a; "
        "4 only as PTX; 2 by code of the family (sm_120f)"
    )


def test_the_best_way_of_a_fat_binary_counts():
    assert len(counted(binaries(1, "compute_80", "sm_120f", "sm_120")).native) == 1
    assert len(counted(binaries(1, "compute_80", "sm_120f")).family) == 1


def test_near_code_stops_at_an_earlier_gpu_of_the_generation():
    found = counted(binaries(1, "sm_120a", "sm_100a"), binaries(1, "sm_90a"), binaries(1, "sm_120"))
    assert found.near == tuple(binaries(1, "sm_120a", "sm_100a"))
    assert counted(binaries(1, "sm_121a"), sm=120).near == ()


def test_general_code_is_built_for_three_generations_and_not_for_this_gpu():
    found = counted(binaries(2, "sm_87", "sm_90", "sm_100", "sm_120"), binaries(3, "sm_89", "sm_120"), sm=86)
    assert found.general == tuple(binaries(2, "sm_87", "sm_90", "sm_100", "sm_120"))
    assert counted(binaries(1, "sm_80", "sm_90a", "sm_100a"), sm=121).general == ()


def test_the_newest_ptx_that_is_the_only_way_names_the_driver():
    old, new = Code("ptx", 80, "", (8, 0)), Code("ptx", 90, "", (8, 8))
    found = counted([FatBinary((old,)), FatBinary((old, new))])
    assert found.isa == (8, 0)
    assert counted([FatBinary((old,)), FatBinary((new,))]).isa == (8, 8)
    assert driver_for((8, 8)) == "the driver of CUDA 12.9 (r575) or newer"
    assert driver_for((99, 1)) == "a driver that knows PTX 99.1"


def test_words_for_whole_libraries():
    assert describe(counted()) == "no GPU code of CUDA"
    assert describe(counted(binaries(1, "sm_120"))) == "1 fat binary, each with something for sm_121"
    assert describe(counted(binaries(2, "sm_90a"))) == ("2 fat binaries, none with anything for sm_121: 2 only sm_90a")
    many = [one for sm in (50, 60, 70, 80, 90, 100) for one in binaries(1, f"sm_{sm}")]
    assert labels(many, 121) == "1 only sm_50, 1 only sm_60, 1 only sm_70, 1 only sm_80, 2 only others"


@pytest.mark.parametrize(
    ("quantization", "what"),
    [
        (Quantization("fp8", block=(128, 128)), "block FP8"),
        (Quantization("fp8"), "FP8"),
        (Quantization("compressed-tensors", "float-quantized", block=(128, 128)), "block FP8"),
        (Quantization("compressed-tensors", "float-quantized"), "FP8"),
        (Quantization("compressed-tensors", "nvfp4-pack-quantized"), "NVFP4"),
        (Quantization("compressed-tensors", "pack-quantized"), "4-bit or 8-bit integer"),
        (Quantization("modelopt", "NVFP4"), "NVFP4"),
        (Quantization("modelopt", "FP8"), "FP8"),
        (Quantization("mxfp4"), "MXFP4"),
        (Quantization("awq"), "4-bit or 8-bit integer"),
        (Quantization("gptq", bits=8), "4-bit or 8-bit integer"),
    ],
)
def test_each_quantization_wants_kernels_of_its_own(quantization, what):
    assert need(quantization).what == what


def test_a_quantization_that_nobody_looked_at_is_not_guessed():
    assert need(Quantization("aqlm")) is None


NAMES = {
    "block FP8": "_ZN7cutlass13device_kernelIN4vllm29cutlass_3x_gemm_fp8_blockwiseINS_6half_tELi1ELi128E",
    "FP8": "_ZN7cutlass13device_kernelIN4vllm24cutlass_3x_gemm_sm90_fp8INS_12float_e4m3_tE",
    "NVFP4": "_ZN4vllm15cvt_fp16_to_fp4I13__nv_bfloat16Lb0EEEviiPKT_PKfPjS6_",
    "4-bit or 8-bit integer": "_Z24gptq_marlin_repack_kernelILi256ELi4ELb0EEvPKjS1_Pjii",
}


def test_the_patterns_find_kernels_of_a_real_library_and_not_each_others():
    wanted = {
        what: need(given)
        for what, given in {
            "block FP8": Quantization("fp8", block=(128, 128)),
            "FP8": Quantization("fp8"),
            "NVFP4": Quantization("modelopt", "NVFP4"),
            "4-bit or 8-bit integer": Quantization("gptq"),
        }.items()
    }
    found = {what: [name for name, text in NAMES.items() if one.kernels.search(text)] for what, one in wanted.items()}
    assert found == {
        "block FP8": ["block FP8"],
        "FP8": ["block FP8", "FP8"],
        "NVFP4": ["NVFP4"],
        "4-bit or 8-bit integer": ["4-bit or 8-bit integer"],
    }


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lmdeploy", "llamacpp", "transformers"])
def test_every_engine_has_places_with_a_known_weight(engine):
    found = places(engine)
    assert {place.weight for place in found.libraries} <= {"needed", "matters", "optional"}
    assert any(place.weight == "needed" and place.serves(sm) for sm in (90, 121) for place in found.libraries)


def test_places_hold_libraries_under_all_their_names():
    vllm = places("vllm").libraries
    names = {
        "vllm/_C.abi3.so": "needed",
        "vllm/_C_stable_libtorch.abi3.so": "needed",
        "vllm/_moe_C.abi3.so": "matters",
        "vllm/_moe_C_stable_libtorch.abi3.so": "matters",
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": "matters",
        "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": "optional",
        "vllm/_flashmla_C.abi3.so": "optional",
        "torch/lib/libtorch_cuda.so": "needed",
    }
    held = {name: next(place.weight for place in vllm if place.holds(name)) for name in names}
    assert held == names


def test_sglang_loads_another_library_on_hopper():
    served = [place.globs[0] for place in places("sglang").libraries if place.serves(90)]
    assert "sgl_kernel/sm90/common_ops.*so" in served
    assert "sgl_kernel/sm100/common_ops.*so" not in served


def test_an_engine_that_nobody_looked_at_has_no_places():
    assert places("unheard-of") is None
    assert tools().version == "torch/version.py"
