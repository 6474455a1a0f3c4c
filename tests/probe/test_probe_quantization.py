"""Quantization: what a config.json calls it, what a release calls it, and on which GPU the release takes it."""

from dataclasses import replace

import pytest

from bascule.core.nouns import Quantization, Setting
from bascule.probe.verdict import Word
from probe.probe_cases import NEXT

VLLM_014, VLLM_032 = ("vllm-0.14.0",), ("vllm-0.32.0", "transformers-5.19.0")
SGLANG_009, SGLANG_023 = ("sglang-0.5.9",), ("sglang-0.5.23", "transformers-5.19.0")


def quantized(method: str, algorithm: str = "") -> Quantization:
    return Quantization(method, algorithm)


@pytest.mark.parametrize(
    ("trees", "quantization", "gpu", "word"),
    [
        (VLLM_014, quantized("fp8"), "", Word.YES),
        (VLLM_014, quantized("FP8"), "", Word.YES),  # vLLM lowers it, too
        (VLLM_014, quantized("compressed_tensors"), "", Word.YES),
        (VLLM_014, quantized("awq"), "", Word.YES),
        (VLLM_032, quantized("awq"), "", Word.YES),  # there as auto_awq
        (VLLM_014, quantized("bitsandbytes"), "", Word.YES),
        (VLLM_032, quantized("bitsandbytes"), "", Word.NO),
        (VLLM_014, quantized("gguf"), "", Word.YES),
        (VLLM_032, quantized("gguf"), "", Word.NO),
        (VLLM_014, quantized("auto-round"), "", Word.NO),  # deprecated there
        (VLLM_032, quantized("auto-round"), "", Word.YES),  # taken by inc
        (VLLM_014, quantized("bitnet"), "", Word.NO),
        (VLLM_014, quantized("modelopt", "FP8"), "", Word.YES),
        (VLLM_014, quantized("modelopt", "NVFP4"), "", Word.YES),
        (VLLM_014, quantized("modelopt", "MXFP8"), "", Word.NO),  # modelopt_mxfp8 came later
        (VLLM_032, quantized("modelopt", "MXFP8"), "", Word.YES),
        (VLLM_014, quantized("modelopt", "W4A16_NVFP4"), "", Word.NO),  # not among its algorithms
        (VLLM_032, quantized("modelopt", "W4A16_NVFP4"), "", Word.YES),
        (VLLM_032, quantized("modelopt", "MIXED_PRECISION"), "", Word.YES),
        (VLLM_032, quantized("modelopt", "INT3"), "", Word.NO),
        (VLLM_014, quantized("modelopt", "FP8"), "sm_80", Word.NO),  # asks for 89
        (VLLM_014, quantized("modelopt", "FP8"), "sm_121", Word.YES),
        (VLLM_032, quantized("modelopt", "FP8"), "sm_80", Word.YES),
        (VLLM_014, quantized("fp8"), "sm_70", Word.NO),  # asks for 75
        (VLLM_014, quantized("gptq"), "sm_70", Word.YES),  # gptq_marlin asks for 75, but gptq for 60
        (VLLM_014, quantized("gptq"), "sm_52", Word.NO),
        (VLLM_032, quantized("gpt-oss-mxfp4"), "", Word.NO),
        (VLLM_032, quantized("mxfp4"), "sm_75", Word.NO),  # GptOssMxfp4Config has it from its base class
        (VLLM_032, quantized("mxfp4"), "sm_90a", Word.YES),
        (VLLM_032, quantized("fp8"), "gfx942", Word.YES),  # of another maker: capabilities say nothing
        (SGLANG_009, quantized("fp8"), "", Word.YES),
        (SGLANG_009, quantized("gptq"), "sm_121", Word.YES),
        (SGLANG_023, quantized("gptq"), "sm_121", Word.YES),  # as gptq_marlin
        (SGLANG_009, quantized("modelopt", "FP8"), "sm_80", Word.NO),  # asks for 89
        (SGLANG_023, quantized("modelopt", "MXFP8"), "sm_121", Word.YES),
        (SGLANG_009, quantized("mxfp4"), "sm_121", Word.YES),  # only on CUDA and some of AMD's
        (SGLANG_009, quantized("mxfp4"), "", Word.UNKNOWN),
        (SGLANG_023, quantized("mxfp4"), "sm_121", Word.YES),
        (SGLANG_023, quantized("mlx_q4"), "sm_121", Word.NO),  # only on Apple's
        (SGLANG_023, quantized("mlx_q4"), "", Word.UNKNOWN),
        (SGLANG_023, quantized("bitnet"), "sm_121", Word.NO),
    ],
)
def test_quantizations_of_releases(install, report, trees, quantization, gpu, word):
    engine = trees[0].split("-")[0]
    found = report(engine, install(*trees), replace(NEXT, quantization=quantization), gpu=gpu)
    judgement = found.questions["quantization"]
    assert (judgement.word, bool(judgement.seen)) == (word, True), judgement.says


def test_a_model_that_is_not_quantized(install, report):
    judgement = report("vllm", install(*VLLM_014), NEXT).questions["quantization"]
    assert (judgement.word, judgement.says) == (Word.YES, "the model is not quantized")


def test_a_gpu_that_is_too_old_says_what_is_asked(install, report):
    model = replace(NEXT, quantization=quantized("modelopt", "FP8"))
    judgement = report("vllm", install(*VLLM_014), model, gpu="sm_80").questions["quantization"]
    assert judgement.says.endswith("it asks for sm_89 or newer, and this is sm_80")
    path = "vllm/model_executor/layers/quantization/modelopt.py"
    assert (judgement.seen[0].path, judgement.seen[0].text) == (path, "return 89")


def test_a_deprecated_method_needs_a_flag(install, report):
    model, root = replace(NEXT, quantization=quantized("fp_quant")), install(*VLLM_032)
    judgement = report("vllm", root, model).questions["quantization"]
    assert (judgement.word, "--allow-deprecated-quantization" in judgement.says) == (Word.NO, True)
    assert judgement.seen[0].text == '"fp_quant",'
    allowed = report("vllm", root, model, settings=[Setting("flag", "--allow-deprecated-quantization", "")])
    assert allowed.questions["quantization"].word is Word.YES


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("how", ["missing", "broken", "more"])
def test_a_table_that_cannot_be_read_is_no_no(install, report, engine, how):
    root = install({"vllm": "vllm-0.14.0", "sglang": "sglang-0.5.9"}[engine])
    place = {"vllm": "vllm/model_executor", "sglang": "sglang/srt"}[engine]
    path = root / place / "layers/quantization/__init__.py"
    if how == "missing":
        path.unlink()
    elif how == "broken":
        path.write_text("QuantizationMethods = Literal[\n")
    else:
        name = {"vllm": "QuantizationMethods", "sglang": "QUANTIZATION_METHODS"}[engine]
        path.write_text(path.read_text() + f"\n{name}.update(more())\n")
    found = report(engine, root, replace(NEXT, quantization=quantized("bitnet")))
    assert found.questions["quantization"].word is Word.UNKNOWN


def test_a_capability_that_is_no_literal_is_no_no(install, report):
    root = install(*VLLM_014)
    path = root / "vllm/model_executor/layers/quantization/fp8.py"
    path.write_text(path.read_text().replace("return 75", "return least()"))
    found = report("vllm", root, replace(NEXT, quantization=quantized("fp8")), gpu="sm_70")
    assert found.questions["quantization"].word is Word.YES


def test_a_plugin_may_bring_a_quantization(install, report):
    root = install(*VLLM_014)
    (root / "my_plugin-1.0.dist-info").mkdir()
    (root / "my_plugin-1.0.dist-info/entry_points.txt").write_text("[vllm.general_plugins]\nx = my_plugin:register\n")
    found = report("vllm", root, replace(NEXT, quantization=quantized("bitnet")))
    assert found.questions["quantization"].word is Word.UNKNOWN
    found = report("vllm", root, NEXT, settings=[Setting("flag", "--quantization", "mine")])
    assert found.questions["flags"].word is Word.YES  # the flag is there; its values are not asked about


@pytest.mark.parametrize("items", ["*more(), 'x'", "more(), 'x'"])
def test_a_list_of_deprecated_methods_that_cannot_be_read_is_no_yes(install, report, items):
    root = install(*VLLM_014)
    path = root / "vllm/model_executor/layers/quantization/__init__.py"
    text = path.read_text()
    path.write_text(f"{text}\nDEPRECATED_QUANTIZATION_METHODS = [{items}]\n")
    model = replace(NEXT, quantization=quantized("fp8"))
    assert report("vllm", root, model).questions["quantization"].word is Word.UNKNOWN
    path.write_text(text.replace("DEPRECATED_QUANTIZATION_METHODS", "OLD"))  # an older release has no such list
    assert report("vllm", root, model).questions["quantization"].word is Word.YES


@pytest.mark.parametrize(
    ("method", "word"), [("fp8", Word.YES), ("compressed_tensors", Word.YES), ("hqq", Word.UNKNOWN)]
)
def test_lmdeploy_compares_names(install, report, method, word):
    root = install("lmdeploy-0.18.0")
    (root / "lmdeploy/pytorch/config.py").write_text(
        "def f(quant_method):\n    if quant_method == 'fp8':\n        pass\n"
        "    elif quant_method == 'compressed-tensors':\n        pass\n"
    )
    found = report("lmdeploy", root, replace(NEXT, quantization=quantized(method)))
    assert found.questions["quantization"].word is word


@pytest.mark.parametrize(
    ("method", "word"), [("bitsandbytes", Word.YES), ("fp8", Word.YES), ("compressed-tensors", Word.NO)]
)
def test_transformers_has_a_table(install, report, method, word):
    root = install("transformers-5.19.0")
    (root / "transformers/quantizers").mkdir()
    (root / "transformers/quantizers/auto.py").write_text(
        'AUTO_QUANTIZATION_CONFIG_MAPPING = {\n    "bitsandbytes_4bit": B,\n    "fp8": F,\n}\n'
    )
    found = report("transformers", root, replace(NEXT, quantization=quantized(method)))
    assert found.questions["quantization"].word is word


def test_llamacpp_says_nothing_of_weights_that_are_no_gguf(tmp_path, report):
    (tmp_path / "xllamacpp").mkdir()
    (tmp_path / "xllamacpp/x.so").write_bytes(b"\0llama\0qwen3next\0")
    found = report("llamacpp", tmp_path, replace(NEXT, quantization=quantized("fp8")))
    assert found.questions["architecture"].word is Word.YES
    assert (found.overall.word, "GGUF" in found.overall.says) == (Word.UNKNOWN, True)
