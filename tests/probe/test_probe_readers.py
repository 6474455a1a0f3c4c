"""Readers: found by iterating their package, and what each says beyond the registries."""

import tomllib
from dataclasses import replace
from importlib import resources

import pytest

from bascule.core.nouns import Model
from bascule.probe.readers import READERS
from bascule.probe.readers.sglang import config_classes
from bascule.probe.verdict import Word
from probe.probe_cases import GLM, LLAMA, NEXT, NOBODY, Q35

VLLM_032 = ("vllm-0.32.0", "transformers-5.19.0")
REGISTRY = "vllm/model_executor/models/registry.py"


def test_each_data_file_has_its_reader_and_their_order_is_theirs():
    files = resources.files("bascule.probe").joinpath("data/engines").iterdir()
    facts = {file.name.removesuffix(".toml"): tomllib.loads(file.read_text("utf-8")) for file in files}
    assert list(READERS) == sorted(facts, key=lambda name: facts[name]["order"])
    assert list(READERS)[-1] == "transformers"  # it stands beside the others
    assert len({row["order"] for row in facts.values()}) == len(facts)
    for name, reader in READERS.items():
        row = facts[name]
        assert (reader.engine, reader.title, reader.folder) == (name, row["title"], row["folder"])
        assert reader.distributions == tuple(row["distributions"])
    assert READERS["sglang"].kernels == ("sgl-kernel", "sglang-kernel")


# vLLM: the order in which it resolves a model (registry.py, inspect_model_cls and _raise_for_unsupported)


def model(architecture: str, model_type: str) -> Model:
    return Model("/m", (architecture,), model_type)


def modeling(root, name: str, text: str) -> None:
    path = root / f"transformers/models/{name}/modeling_{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_an_architecture_for_the_generic_backend_alone(install, report):
    judgement = report("vllm", install("vllm-0.14.0"), model("SmolLM3ForCausalLM", "smollm3")).questions["architecture"]
    assert judgement.word is Word.VIA_TRANSFORMERS
    assert judgement.seen[-1].text == '"SmolLM3ForCausalLM": ("transformers", "TransformersForCausalLM"),'


def test_the_backend_itself_is_generic(install, report):
    judgement = report("vllm", install(*VLLM_032), model("TransformersForCausalLM", "llama")).questions["architecture"]
    assert judgement.word is Word.VIA_TRANSFORMERS


def test_a_dropped_architecture_whose_class_transformers_has_is_asked_there_first(install, report):
    root, mpt = install(*VLLM_032), model("MptForCausalLM", "mpt")
    assert str(report("vllm", root, mpt).questions["architecture"]) == "REMOVED(0.28.0)"
    modeling(root, "mpt", "class MptForCausalLM(MptPreTrainedModel):\n    x = ALL_ATTENTION_FUNCTIONS\n")
    assert report("vllm", root, mpt).questions["architecture"].word is Word.MAYBE


def test_a_class_that_the_generic_backend_refuses_is_no_maybe(install, report):
    root, mpt = install(*VLLM_032), model("MptForCausalLM", "mpt")
    modeling(
        root, "mpt", "class MptAttention(nn.Module):\n    pass\nclass MptForCausalLM(MptPreTrainedModel):\n    pass\n"
    )
    judgement = report("vllm", root, mpt).questions["architecture"]
    assert str(judgement) == "REMOVED(0.28.0)"
    assert any(spot.source == "transformers/models/mpt/modeling_mpt.py:1" for spot in judgement.seen)
    modeling(root, "mpt", "class MptForCausalLM(MptPreTrainedModel):\n    pass\n")  # no attention of its own
    assert report("vllm", root, mpt).questions["architecture"].word is Word.MAYBE
    modeling(
        root,
        "mpt",
        "class MptAttention(nn.Module):\n  pass\n_supports_attention_backend = True\nclass MptForCausalLM(P):\n",
    )
    assert report("vllm", root, mpt).questions["architecture"].word is Word.MAYBE


def test_an_architecture_that_a_plugin_has(install, report):
    judgement = report("vllm", install(*VLLM_032), model("BartModel", "llama")).questions["architecture"]
    assert str(judgement) == "PLUGIN(https://github.com/vllm-project/bart-plugin)"


def test_a_model_type_that_vllm_gives_to_an_architecture(install, report):
    root = install(*VLLM_032)
    config = root / "vllm/transformers_utils/config.py"
    config.write_text(config.read_text() + '\n_ARCHITECTURE_TO_MODEL_TYPE = {"Qwen3NextForCausalLM": "llama"}\n')
    assert report("vllm", root, replace(NEXT, model_type="")).questions["config"].word is Word.YES
    assert report("vllm", root, replace(GLM, model_type="")).questions["config"].word is Word.UNKNOWN


def test_a_doubt_about_one_architecture_is_not_hidden_by_a_no_about_another(install, report):
    root = install("sglang-0.5.9", "transformers-4.57.6")
    (root / "sglang/srt/models/odd.py").write_text("class OddForCausalLM: ...\nEntryClass = make()  # OddForCausalLM\n")
    two = Model("/m", ("NobodyForCausalLM", "OddForCausalLM"), "llama")
    assert report("sglang", root, two).questions["architecture"].word is Word.UNKNOWN


# What a bare wheel requires


@pytest.mark.parametrize(
    ("tree", "asked", "word", "says"),
    [
        ("vllm-0.14.0", LLAMA, Word.YES, ""),
        ("vllm-0.14.0", NOBODY, Word.NO, "does not know the model type nobody"),
        ("vllm-0.17.0", GLM, Word.NO, "(first in transformers 5.0.0)"),
        ("sglang-0.5.9", LLAMA, Word.YES, ""),
        ("lmdeploy-0.18.0", LLAMA, Word.YES, ""),
        ("lmdeploy-0.18.0", GLM, Word.UNKNOWN, "only with transformers >= 5.0.0"),
    ],
)
def test_a_bare_wheel_is_judged_by_the_range_that_it_requires(install, report, tree, asked, word, says):
    judgement = report(tree.split("-")[0], install(tree), asked).questions["config"]
    assert (judgement.word, says in judgement.says) == (word, True), judgement.says
    assert judgement.seen[0].text.startswith("Requires-Dist: transformers")


def test_a_wheel_that_requires_no_transformers_is_unknown(install, report):
    root = install("lmdeploy-0.18.0")
    (root / "lmdeploy-0.18.0.dist-info/METADATA").write_text("Name: lmdeploy\nVersion: 0.18.0\n")
    judgement = report("lmdeploy", root, LLAMA).questions["config"]
    assert (judgement.word, "none is required" in judgement.says) == (Word.UNKNOWN, True)


# LMDeploy


@pytest.mark.parametrize(
    ("architecture", "word"),
    [
        ("Glm4MoeLiteForCausalLM", "YES"),
        ("Qwen3_5MoeForConditionalGeneration", "YES"),
        ("InternLM2ForCausalLM", "YES"),  # in the trimmed files, TurboMind alone has it
        ("Qwen3NextForCausalLM", "YES"),  # and PyTorch alone this one
        ("NobodyForCausalLM", "NO"),
        ("Starcoder2ForCausalLM", "REMOVED(an earlier release)"),
    ],
)
def test_lmdeploy_takes_what_either_backend_has(install, report, architecture, word):
    judgement = report("lmdeploy", install("lmdeploy-0.18.0"), model(architecture, "llama")).questions["architecture"]
    assert (str(judgement), bool(judgement.seen)) == (word, True)


@pytest.mark.parametrize("path", ["pytorch/models/module_map.py", "turbomind/supported_models.py"])
def test_a_backend_of_lmdeploy_that_cannot_be_read_is_no_no(install, report, path):
    root = install("lmdeploy-0.18.0")
    (root / "lmdeploy" / path).write_text("MODULE_MAP = {\n")
    assert report("lmdeploy", root, NOBODY).questions["architecture"].word is Word.UNKNOWN
    assert report("lmdeploy", root, Q35).questions["architecture"].word is Word.YES  # the other has it


def test_lmdeploy_may_read_what_transformers_cannot(install, report):
    root = install("lmdeploy-0.18.0", "transformers-4.57.6")
    assert report("lmdeploy", root, GLM).questions["config"].word is Word.NO
    (root / "lmdeploy/hf_configs").mkdir()
    (root / "lmdeploy/hf_configs/__init__.py").write_text("def f(x):\n    return PretrainedConfig.from_pretrained(x)\n")
    judgement = report("lmdeploy", root, GLM).questions["config"]
    assert (judgement.word, judgement.seen[-1].line) == (Word.UNKNOWN, 2)


# SGLang's configs: a list of classes, a comprehension over them, and later additions


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (b"_CONFIG_REGISTRY = [A, B]", {"A", "B"}),
        (b"_CONFIG_REGISTRY: dict = {c.model_type: c for c in [A, B]}", {"A", "B", "c"}),
        (b"OTHER = [A]", set()),
        (b"_CONFIG_REGISTRY = [", set()),
    ],
)
def test_the_classes_of_sglangs_config_registry(source, names):
    assert config_classes(source, "f.py") == names


def test_sglang_reads_its_own_configs_without_transformers(install, report):
    judgement = report("sglang", install("sglang-0.5.9"), Q35).questions["config"]
    assert (judgement.word, judgement.seen[0].text) == (Word.YES, 'model_type = "qwen3_5_moe"')
