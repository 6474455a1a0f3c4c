"""`bascule probe` as a person calls it: one target in words, several as a matrix, JSON, and what can't be meant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.probe.inside import CONFINED
from probe_views.views_cases import files_of

ROOT = Path(__file__).parents[2]
BASCULE = Path(sys.executable).with_name("bascule")
ADDER = str(ROOT / "models/adder")
QUESTIONS = {"architecture", "config", "quantization", "kernels", "flags"}


@pytest.fixture
def environments(tmp_path):
    for name, trees in {
        "new": ("vllm-0.32.0", "transformers-5.19.0"),
        "old": ("vllm-0.14.0", "transformers-4.57.6"),
        "none": (),
    }.items():
        for path, data in {"readme.txt": b"x", **files_of(*trees)}.items():
            place = tmp_path / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return tmp_path


def probe(folder, *words):
    argv = [BASCULE, "probe", *map(str, words)]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_one_target_is_told_with_its_evidence(environments):
    done = probe(environments, "./old", "--model", ADDER)
    lines = done.stdout.splitlines()
    assert lines[0].split()[-1] == "NO" and done.returncode == 4
    assert "vLLM 0.14.0 does not know Qwen3_5MoeForCausalLM (first in 0.27.0)" in lines[1]
    assert any("vllm/model_executor/models/registry.py:" in line for line in lines)
    assert any("to change it: first release that knows it: 0.27.0" in line for line in lines)


def test_several_make_a_matrix(environments):
    done = probe(environments, "./new", "./old", "./none", "--model", ADDER, "--model", "LlamaForCausalLM:llama")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.startswith("./")}
    assert rows == {"./new": ["YES", "YES"], "./old": ["NO", "YES"], "./none": ["NO", "NO"]}
    assert done.returncode == 0


def test_json_has_one_object_a_target_and_model(environments):
    done = probe(environments, "./new", "./old", "--model", ADDER, "--json", "--flag", "--reasoning-parser qwen3")
    new, old = map(json.loads, done.stdout.splitlines())
    assert [row["target"] for row in (new, old)] == ["./new", "./old"]
    assert new["model"] == ADDER and set(new["questions"]) == QUESTIONS
    for row in (new, old):
        for question in row["questions"].values():
            assert {"verdict", "evidence"} <= set(question)
            assert all(set(one) == {"source", "excerpt"} for one in question["evidence"])
    assert (new["questions"]["kernels"]["asked"], new["questions"]["flags"]["verdict"]) == (False, "YES")


def test_a_flag_that_a_release_lacks_is_a_no(environments):
    done = probe(environments, "./new", "--model", ADDER, "--json", "--flag", "--no-such-flag 1")
    row = json.loads(done.stdout)
    assert (row["overall"], row["questions"]["architecture"]["verdict"]) == ("NO", "YES")
    assert row["says"] == "vLLM 0.32.0 has no --no-such-flag"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", ADDER), "nothing to probe"),
        (("./new", "--model", "/nowhere"), "there is no folder /nowhere"),
        (("./new", "--model", ADDER, "--engine", "acme"), "nothing is known of the engine acme"),
        (("./new", "--model", ADDER, "--gpu", "rtx"), "rtx is no GPU architecture"),
        (("venv:/nowhere", "--model", ADDER), "there is no folder /nowhere"),
        (("./new", "--model", "what is this"), "there is no model what is this"),
        (("./new", "--model", ADDER, "--flag", "loose"), "loose"),
    ],
)
def test_what_cannot_be_meant_is_an_error(environments, words, says):
    done = probe(environments, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[") and says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.engine
def test_run_asks_the_engine_itself(tmp_path):
    done = probe(tmp_path, ROOT / ".engines/vllm-0.32.0", "--model", ADDER, "--run", "--json")
    run = json.loads(done.stdout)["questions"]["run"]
    assert run["verdict"] == "YES" and '"architecture": true' in run["evidence"][0]["excerpt"]
    other = probe(tmp_path, ROOT / ".engines/vllm-0.32.0", "--model", "NobodyForCausalLM:llama", "--run", "--json")
    assert json.loads(other.stdout)["questions"]["run"]["verdict"] == "NO"


def test_an_image_runs_without_network_gpu_capabilities_or_a_writable_root():
    words = " ".join(CONFINED)
    for needed in ("--network none", "--read-only", "--cap-drop ALL", "no-new-privileges", "--pull never"):
        assert needed in words
    assert "--gpus" not in words and "--privileged" not in words and "NVIDIA_VISIBLE_DEVICES=void" in words
