"""Flags and their values: what the trimmed releases know, and that what can't be read is neither a yes nor a no."""

import pytest

from bascule.core.nouns import Artefact, Candidate, Setting
from bascule.probe.readers import flags
from bascule.probe.verdict import Word
from probe.probe_cases import NEXT

VLLM_032 = ("vllm-0.32.0", "transformers-5.19.0")
SGLANG_023 = ("sglang-0.5.23", "transformers-5.19.0")


def flag(name: str, value: str | None = "", node: str | None = None) -> Setting:
    return Setting("flag", name, value, node)


@pytest.mark.parametrize(
    ("engine", "trees", "setting", "word"),
    [
        ("vllm", ("vllm-0.14.0",), flag("--max-model-len", "4096"), Word.YES),
        ("vllm", ("vllm-0.14.0",), flag("--language-model-only"), Word.NO),  # from 0.17 on
        ("vllm", VLLM_032, flag("--language-model-only"), Word.YES),
        ("vllm", VLLM_032, flag("--port", "1"), Word.YES),  # a field of a class
        ("vllm", VLLM_032, flag("--headless"), Word.YES),
        ("vllm", VLLM_032, flag("--max_model_len", "4096"), Word.YES),  # vLLM takes underscores
        ("vllm", VLLM_032, flag("--hf-overrides.rope_theta", "1"), Word.YES),  # a key of a JSON argument
        ("vllm", VLLM_032, flag("--hf_overrides.rope_theta", "1"), Word.YES),
        ("vllm", VLLM_032, flag("--max-model", "4096"), Word.YES),  # argparse: the beginning of one name
        ("vllm", VLLM_032, flag("--mas", "4096"), Word.NO),  # of two
        ("vllm", VLLM_032, flag("--no-enforce-eager"), Word.YES),
        ("vllm", VLLM_032, flag("--no-uvicorn-nothing"), Word.NO),
        ("vllm", VLLM_032, flag("--no-max-model-len"), Word.NO),
        ("vllm", VLLM_032, flag("--no-headless"), Word.NO),  # store_true
        ("vllm", VLLM_032, flag("--no-enable-auto-tool-choice"), Word.YES),
        ("vllm", VLLM_032, flag("-tp", "2"), Word.YES),
        ("vllm", VLLM_032, flag("-O3"), Word.YES),
        ("vllm", VLLM_032, flag("-O.mode", "3"), Word.NO),  # there is no -O in the trimmed file
        ("vllm", VLLM_032, flag("-xyz"), Word.NO),
        ("vllm", VLLM_032, flag("--tp-size", "2"), Word.NO),  # SGLang's
        ("vllm", VLLM_032, flag("--reasoning-parser", "qwen3"), Word.YES),
        ("vllm", VLLM_032, flag("--reasoning-parser", "qwen33"), Word.NO),
        ("vllm", ("vllm-0.14.0",), flag("--tool-call-parser", "gemma4"), Word.NO),
        ("vllm", VLLM_032, flag("--tool-call-parser", "gemma4"), Word.YES),
        ("vllm", ("vllm-0.14.0",), flag("--quantization", "bitsandbytes"), Word.YES),
        ("vllm", VLLM_032, flag("--quantization", "bitsandbytes"), Word.NO),  # gone by 0.28
        ("vllm", VLLM_032, flag("-q", "bitsandbytes"), Word.NO),
        ("sglang", SGLANG_023, flag("--tp-size", "2"), Word.YES),
        ("sglang", SGLANG_023, flag("--tensor-parallel-size", "2"), Word.YES),  # an alias
        ("sglang", SGLANG_023, flag("--tp_size", "2"), Word.NO),  # SGLang takes no underscores
        ("sglang", SGLANG_023, flag("--disable-cuda-graph"), Word.YES),  # no_cli, and yet there by hand
        ("sglang", SGLANG_023, flag("--fp8-gemm-backend", "x"), Word.YES),  # another name than the field
        ("sglang", SGLANG_023, flag("--fp8-gemm-runner-backend", "x"), Word.NO),
        ("sglang", SGLANG_023, flag("--no-trust-remote-code"), Word.NO),
        ("sglang", SGLANG_023, flag("--reasoning-parser", "auto"), Word.YES),  # an extra choice of the flag itself
        ("sglang", SGLANG_023, flag("--no-experts-shared-outer-loras"), Word.YES),
        ("sglang", ("sglang-0.5.9",), flag("--reasoning-parser", "auto"), Word.NO),
        ("sglang", ("sglang-0.5.9",), flag("--reasoning-parser", "qwen3"), Word.YES),
        ("sglang", ("sglang-0.5.9",), flag("--tool-call-parser", "qwen3_coder"), Word.YES),
        ("sglang", ("sglang-0.5.9",), flag("--language-model-only"), Word.NO),
        ("sglang", ("sglang-0.5.9",), flag("--quantization", "humming"), Word.NO),
        ("sglang", SGLANG_023, flag("--quantization", "humming"), Word.YES),
    ],
)
def test_flags_and_values_of_releases(install, report, engine, trees, setting, word):
    judgement = report(engine, install(*trees), NEXT, settings=[setting]).questions["flags"]
    assert (judgement.word, judgement.asked) == (word, True), judgement.says


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_flags_of_several_nodes_are_asked_for(install, report, engine):
    tree = {"vllm": "vllm-0.14.0", "sglang": "sglang-0.5.9"}[engine]
    judgement = report(engine, install(tree), NEXT, nodes=("a", "b")).questions["flags"]
    assert judgement.word is Word.YES, judgement.says
    own = {"vllm": ("--master-addr", "--headless"), "sglang": ("--dist-init-addr", "--tp-size")}[engine]
    assert all(name in judgement.says for name in ("--nnodes", "--node-rank", *own))


def test_a_release_without_the_flags_of_several_nodes_says_so(install, report):
    root = install("vllm-0.14.0")
    path = root / "vllm/engine/arg_utils.py"
    path.write_text(path.read_text().replace('"--node-rank"', '"--node-number"'))
    found = report("vllm", root, NEXT, nodes=("a", "b"))
    assert found.questions["flags"].says == "vLLM 0.14.0 has no --node-rank"
    assert (found.overall.word, found.overall.code) == (Word.NO, "flag-unknown")


def test_without_flags_nothing_is_asked(install, report):
    assert report("vllm", install("vllm-0.14.0"), NEXT).questions["flags"].asked is False


def test_what_counts_of_a_candidates_settings():
    candidate = Candidate(
        "c",
        "vllm",
        Artefact("venv", "/v"),
        "/m",
        (flag("--a", "1"), flag("--a", "2"), flag("--gone", None), Setting("env", "VLLM_X", "1")),
        changes=(flag("--b"),),
    )
    assert flags.asked(candidate) == {"--a": "2", "--b": ""}


def test_an_unset_flag_is_not_asked_for():
    candidate = Candidate("c", "vllm", Artefact("venv", "/v"), "/m", (flag("--a", "1"),), changes=(flag("--a", None),))
    assert flags.asked(candidate) == {}


@pytest.mark.parametrize(
    ("engine", "tree", "path"),
    [
        ("vllm", "vllm-0.14.0", "vllm/engine/arg_utils.py"),
        ("vllm", "vllm-0.14.0", "vllm/entrypoints/openai/cli_args.py"),
        ("sglang", "sglang-0.5.9", "sglang/srt/server_args.py"),
    ],
)
@pytest.mark.parametrize("how", ["missing", "broken"])
def test_a_list_of_flags_that_cannot_be_read_is_no_no(install, report, engine, tree, path, how):
    root = install(tree)
    if how == "missing":
        (root / path).unlink()
    else:
        (root / path).write_text("class X:\n  a = (\n")
    judgement = report(engine, root, NEXT, settings=[flag("--never-heard-of")]).questions["flags"]
    assert judgement.word is Word.UNKNOWN, judgement.says


@pytest.mark.parametrize(
    ("engine", "tree", "path", "line"),
    [
        ("vllm", "vllm-0.14.0", "vllm/engine/arg_utils.py", "for x in more:\n    parser.add_argument(x)\n"),
        ("vllm", "vllm-0.14.0", "vllm/engine/arg_utils.py", "parser.add_argument(*more)\n"),
        ("sglang", "sglang-0.5.9", "sglang/srt/server_args.py", 'parser.add_argument(f"--{x}")\n'),
        ("sglang", "sglang-0.5.9", "sglang/srt/server_args.py", "add_cli_args_from_dataclass(parser, Other)\n"),
        ("sglang", "sglang-0.5.9", "sglang/srt/server_args.py", "class X:\n    x: A[int, Arg(cli_name=NAME)] = 1\n"),
    ],
)
def test_a_flag_whose_name_is_no_literal_is_a_gap(install, report, engine, tree, path, line):
    root = install(tree)
    with (root / path).open("a") as file:
        file.write(f"\n{line}")
    judgement = report(engine, root, NEXT, settings=[flag("--never-heard-of")]).questions["flags"]
    assert judgement.word is Word.UNKNOWN, judgement.says
    assert report(engine, root, NEXT, settings=[flag("--nnodes", "2")]).questions["flags"].word is Word.YES


def test_a_plugin_may_bring_a_parser(install, report):
    plugin = flag("--reasoning-parser-plugin", "/p.py")
    judgement = report("vllm", install(*VLLM_032), NEXT, settings=[plugin, flag("--reasoning-parser", "mine")])
    assert judgement.questions["flags"].word is Word.UNKNOWN
    assert "--reasoning-parser-plugin may bring mine" in judgement.questions["flags"].says


def test_parsers_that_cannot_be_read_are_no_no(install, report):
    root = install(*VLLM_032)
    (root / "vllm/reasoning/__init__.py").unlink()
    judgement = report("vllm", root, NEXT, settings=[flag("--reasoning-parser", "qwen3")]).questions["flags"]
    assert judgement.word is Word.UNKNOWN


def test_the_evidence_of_a_yes_is_the_line_that_declares_it(install, report):
    judgement = report("vllm", install(*VLLM_032), NEXT, settings=[flag("--enforce-eager")]).questions["flags"]
    assert judgement.seen[0].path == "vllm/engine/arg_utils.py"
    assert '"--enforce-eager"' in judgement.seen[0].text


def test_the_evidence_of_a_no_says_how_many_were_read(install, report):
    judgement = report("vllm", install(*VLLM_032), NEXT, settings=[flag("--never")]).questions["flags"]
    assert judgement.says == "vLLM 0.32.0 has no --never"
    assert judgement.seen[0].text.startswith("no --never among ")
