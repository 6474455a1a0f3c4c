"""The judgement on folders of made libraries, through a real runner: each word, and the fault that makes it."""

import asyncio
import shutil
from pathlib import Path

import pytest

from bascule.core.nouns import Artefact, Candidate, Model, Node, Quantization
from bascule.core.reading import Spot, Unreadable
from bascule.probe.kernels.look import look
from bascule.probe.verdict import KERNELS_MISSING, Question, Word
from bascule.probe.views.folder import FolderView
from bascule.remote.local import LocalRunner
from probe_kernels.elf_maker import elf, library, simple

BLOCK_FP8 = Quantization("fp8", block=(128, 128))
BLOCKWISE = (b"_ZN4vllm29cutlass_3x_gemm_fp8_blockwiseE",)
GOOD = library(simple("sm_90", "sm_120"))
CPU = elf((b".text", 1, b"code", 0))
TORCH = {"torch/lib/libtorch_cuda.so": GOOD, "torch/version.py": b"cuda: Optional[str] = '12.9'\n"}
VLLM = {**TORCH, "vllm/_C.abi3.so": GOOD, "vllm/_moe_C.abi3.so": GOOD}
SGLANG = {
    **TORCH,
    "sgl_kernel/sm90/common_ops.abi3.so": library(simple("sm_90")),
    "sgl_kernel/sm100/common_ops.abi3.so": library(simple("sm_80", "sm_120a")),
}


@pytest.fixture
def ask(tmp_path):
    """Make these files and ask whether the engine has kernels for a GPU."""

    def run(engine, files, gpu="sm_121", quantization=None, runner=None):
        for name, content in files.items():
            place = tmp_path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        candidate = Candidate("c", engine, Artefact("venv", str(tmp_path)), "/m")
        model = Model("/m", ("X",), "x", quantization=quantization)
        view = FolderView(runner or LocalRunner(Node("h1", "local")), str(tmp_path))
        return asyncio.run(look(view, Question(candidate, model, "Engine 1.0", gpu)))

    return run


def text_of(judgement, path: str) -> str:
    return next(spot.text for spot in judgement.seen if spot.path == path)


def test_compiled_code_everywhere_is_a_yes(ask):
    found = ask("vllm", VLLM)
    assert (found.word, found.says) == (Word.YES, "Engine 1.0 has compiled code for sm_121")
    assert [spot.path for spot in found.seen] == [
        "torch/lib/libtorch_cuda.so",
        "vllm/_C.abi3.so",
        "vllm/_moe_C.abi3.so",
        "torch/version.py",
    ]
    assert text_of(found, "vllm/_C.abi3.so") == ".nv_fatbin: 1 fat binary, each with something for sm_121"


def test_a_needed_library_with_nothing_for_the_gpu_is_a_no(ask):
    found = ask("vllm", {**VLLM, "vllm/_C.abi3.so": library(simple("sm_90"), simple("sm_120a"))})
    assert (found.word, found.code) == (Word.NO, KERNELS_MISSING)
    assert found.says == "Engine 1.0 can't work on sm_121: nothing in vLLM's own kernels runs there"
    assert found.seen[0] == Spot(
        "vllm/_C.abi3.so",
        None,
        ".nv_fatbin: 2 fat binaries, none with anything for sm_121: 1 only sm_90, 1 only sm_120a",
    )


def test_pytorch_too_is_needed(ask):
    found = ask("transformers", {**TORCH, "torch/lib/libtorch_cuda.so": library(simple("sm_70", "sm_80"))})
    assert (found.word, found.code) == (Word.NO, KERNELS_MISSING)
    assert ask("transformers", TORCH).word is Word.YES


def test_a_build_without_cuda_is_a_no(ask):
    found = ask("vllm", {"torch/version.py": b"debug = False\ncuda: Optional[str] = None\n", "vllm/_C.abi3.so": CPU})
    assert (found.word, found.code, found.change) == (Word.NO, KERNELS_MISSING, "a build for CUDA")
    assert found.seen == (Spot("torch/version.py", 2, "cuda: Optional[str] = None"),)


def test_llamacpp_without_cuda_is_a_no_unless_it_has_vulkan(ask):
    found = ask("llamacpp", {"xllamacpp/xllamacpp.abi3.so": CPU})
    assert (found.word, found.code, found.says) == (Word.NO, KERNELS_MISSING, "Engine 1.0 is a build without CUDA")
    vulkan = elf((b".rodata", 1, b"\0ggml_vulkan: Found %zu devices\0", 0))
    found = ask("llamacpp", {"xllamacpp/xllamacpp.abi3.so": vulkan})
    assert found.word is Word.MAYBE
    assert "without CUDA code" in found.says


def test_llamacpp_with_cuda_is_a_yes(ask):
    assert ask("llamacpp", {"xllamacpp/a.so": CPU, "xllamacpp.libs/libggml-cuda-1f.so": GOOD}).word is Word.YES


def test_code_for_a_neighbour_that_the_quantization_wants_is_a_maybe_with_the_cure(ask):
    files = {**VLLM, "vllm/_C.abi3.so": library(simple("sm_120"), simple("sm_120a", kernels=BLOCKWISE))}
    found = ask("vllm", files, quantization=BLOCK_FP8)
    assert found.word is Word.MAYBE
    assert found.says == (
        "Engine 1.0 has code for sm_121, but some of vLLM's own kernels don't run there: "
        "1 only sm_120a, 1 of them with block FP8"
    )
    assert found.change.startswith("VLLM_DISABLED_KERNELS=CutlassFp8BlockScaledMMKernel")
    assert text_of(found, "vllm/_C.abi3.so").endswith("1 only sm_120a; block FP8 in 1 of the 1 near ones")


@pytest.mark.parametrize(
    ("gpu", "quantization", "names", "word"),
    [
        ("sm_120", BLOCK_FP8, BLOCKWISE, Word.YES),
        ("sm_121", None, BLOCKWISE, Word.LIKELY),
        ("sm_121", Quantization("awq"), BLOCKWISE, Word.LIKELY),
        ("sm_121", Quantization("aqlm"), BLOCKWISE, Word.MAYBE),
        ("sm_121", BLOCK_FP8, (), Word.MAYBE),
        ("sm_121", None, (), Word.LIKELY),
    ],
    ids=["its own GPU", "not quantized", "another quantization", "an unknown one", "unreadable names", "neither"],
)
def test_what_code_for_a_neighbour_means_depends_on_the_model(ask, gpu, quantization, names, word):
    files = {**VLLM, "vllm/_C.abi3.so": library(simple("sm_120"), simple("sm_120a", kernels=names))}
    found = ask("vllm", files, gpu, quantization)
    assert found.word is word
    assert found.change == ""


def test_code_for_other_generations_alone_is_no_trouble(ask):
    files = {**VLLM, "vllm/_C.abi3.so": library(simple("sm_120"), simple("sm_90a", kernels=BLOCKWISE))}
    assert ask("vllm", files, quantization=BLOCK_FP8).word is Word.YES


def test_code_for_many_gpus_and_not_for_this_one_is_a_maybe(ask):
    files = {**VLLM, **dict.fromkeys(("torch/lib/libtorch_cuda.so", "vllm/_moe_C.abi3.so"), library(simple("sm_80")))}
    files["vllm/_C.abi3.so"] = library(simple("sm_80"), simple("sm_70", "sm_89", "sm_90"))
    found = ask("vllm", files, "sm_86")
    assert found.word is Word.MAYBE
    assert "1 of 2 parts of vLLM's own kernels are built for many GPUs, and not for this one" in found.says


def test_ptx_alone_is_likely_and_names_the_driver(ask):
    found = ask("vllm", {**VLLM, "vllm/_C.abi3.so": library(simple("sm_80", "compute_80"), simple("sm_120"))})
    assert found.word is Word.LIKELY
    assert found.says == (
        "Engine 1.0 has code for sm_121, but 1 of 2 parts of vLLM's own kernels are PTX: "
        "a long compilation by the driver of CUDA 12.9 (r575) or newer at the first start"
    )


def test_code_of_the_family_is_likely(ask):
    files = {**VLLM, "vllm/_C_stable_libtorch.abi3.so": library(simple("sm_120f"))}
    assert ask("vllm", files).word is Word.LIKELY
    assert ask("vllm", files, "sm_120").word is Word.YES


def test_a_library_that_many_models_need_is_a_maybe_with_its_cure(ask):
    found = ask("lmdeploy", {**TORCH, "lmdeploy/lib/_turbomind.so": library(simple("sm_120a"))})
    assert found.word is Word.MAYBE
    assert found.change.startswith("--backend pytorch")


def test_an_optional_library_is_evidence_alone(ask):
    found = ask("vllm", {**VLLM, "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": library(simple("sm_90a"))})
    assert found.word is Word.YES
    assert "1 only sm_90a" in text_of(found, "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")


def test_sglang_is_judged_by_the_library_that_it_loads_on_that_gpu(ask):
    assert ask("sglang", SGLANG, "sm_90").word is Word.YES
    found = ask("sglang", SGLANG, "sm_121")
    assert (found.word, found.seen[0].path) == (Word.NO, "sgl_kernel/sm100/common_ops.abi3.so")
    assert "sglang-kernel" in found.change


def test_a_ptxas_that_does_not_know_the_gpu_is_a_maybe(ask):
    ptxas = "triton/backends/nvidia/bin/ptxas"
    found = ask("vllm", {**VLLM, ptxas: b"\0sm_90a\0sm_120a\0"})
    assert found.word is Word.MAYBE
    assert found.says.endswith("the ptxas of its Triton doesn't know sm_121: no kernel of Triton compiles there")
    assert found.change.startswith("TRITON_PTXAS_PATH")
    assert ask("vllm", {**VLLM, f"{ptxas}-blackwell": b"\0sm_121a\0"}).word is Word.YES


def test_what_pytorch_declares_and_a_compiler_are_evidence(ask):
    listed = b"\0x\0sm_80 sm_90 sm_120 compute_120\0y\0"
    found = ask("vllm", {**VLLM, "torch/lib/libtorch_python.so": listed, "nvidia/cu13/bin/nvcc": b""})
    assert text_of(found, "torch/lib/libtorch_python.so") == "sm_80 sm_90 sm_120 compute_120"
    assert text_of(found, "nvidia/cu13/bin/nvcc") == "nvcc is there"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vllm/_C.abi3.so": GOOD[:200]}, "vllm/_C.abi3.so ends at byte 200"),
        ({"vllm/_C.abi3.so": b"version https://git-lfs"}, "vllm/_C.abi3.so is no ELF file"),
        ({"vllm/_moe_C.abi3.so": b"text"}, "vllm/_moe_C.abi3.so is no ELF file"),
        ({"vllm/_C.abi3.so": CPU}, "vLLM's own kernels carry no CUDA code"),
        ({"torch/lib/libtorch_cuda.so": None}, "PyTorch's kernels are not there"),
        ({"vllm/_C.abi3.so": None}, "vLLM's own kernels are not there"),
        (dict.fromkeys(VLLM), "no compiled libraries are there"),
    ],
)
def test_what_was_not_read_is_neither_yes_nor_no(ask, change, why):
    files = {name: content for name, content in {**VLLM, **change}.items() if content is not None}
    found = ask("vllm", files)
    assert found.word is Word.UNKNOWN
    assert found.says.startswith(f"whether Engine 1.0 has code for sm_121 could not be told: {why}")
    assert found.seen


def test_a_damaged_library_is_no_proof_of_a_no(ask):
    data = library(simple("sm_90"), simple("sm_120"))
    second = data.rindex(b"\x50\xed\x55\xba")
    damaged = data[:second] + b"gone" + data[second + 4 :]
    assert ask("vllm", {**VLLM, "vllm/_C.abi3.so": damaged}).word is Word.UNKNOWN


def test_other_makers_and_other_engines_are_not_guessed(ask):
    assert ask("vllm", VLLM, "gfx1151").word is Word.UNKNOWN
    assert ask("unheard-of", VLLM).word is Word.UNKNOWN


def test_without_a_gpu_it_is_not_asked(ask):
    found = ask("vllm", {}, gpu="")
    assert (found.word, found.asked) == (Word.UNKNOWN, False)


class Poorer(LocalRunner):
    """A node whose PATH is one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Node("h1", "local"))
        self.folder = folder

    async def run(self, argv, **how):
        return await super().run(("env", f"PATH={self.folder}", *argv), **how)


@pytest.fixture
def tools(tmp_path) -> Path:
    """A PATH with a shell and its utilities, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "ls", "wc", "head", "grep", "env", "timeout"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def test_a_node_without_python_is_unknown_and_says_so(ask, tools):
    found = ask("vllm", VLLM, runner=Poorer(tools))
    assert found.word is Word.UNKNOWN
    assert found.says.endswith("the node has no python3, and libraries are read with it")


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("cat >/dev/null; echo '{}'", "its libraries could not be read: the answer has no end"),
        (
            "cat >/dev/null; echo 'SyntaxError: too old' >&2; exit 1",
            "could not read its libraries: SyntaxError: too old",
        ),
    ],
)
def test_a_python_that_does_not_answer_is_unreadable(tools, tmp_path, python, why):
    (tools / "python3").write_text(f"#!/bin/sh\n{python}\n")
    (tools / "python3").chmod(0o755)
    view = FolderView(Poorer(tools), str(tmp_path))
    with pytest.raises(Unreadable, match=why):
        asyncio.run(view.libraries("*.so"))


def test_a_view_counts_what_came_and_expands_globs_under_its_root(tmp_path):
    folder = tmp_path / "with [odd] * name"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg/a.so").write_bytes(GOOD)
    view = FolderView(LocalRunner(Node("h1", "local")), str(folder))
    assert [one.path for one in asyncio.run(view.libraries("pkg/*.so", "pkg/a.*"))] == ["pkg/a.so"]
    assert 0 < view.bytes_read < 1000
