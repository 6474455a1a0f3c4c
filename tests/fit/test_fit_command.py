"""`bascule fit` as a person and a program see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.cli import main
from fit.fit_cases import ADDER, LLAMA_70B, QWEN_122B, QWEN_122B_REFUSED

# The program reads its own command line here.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
BASCULE = Path(sys.executable).with_name("bascule")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs it in this process; gives status, output and complaints."""

    def run(model: dict | str, *words: str) -> tuple[int, str, str]:
        name = model if isinstance(model, str) else str(tmp_path / "config.json")
        if not isinstance(model, str):
            Path(name).write_text(json.dumps(model))
        monkeypatch.setattr(sys, "argv", ["bascule", "fit", name, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_it_is_a_program() -> None:
    words = [str(BASCULE), "fit", str(ADDER), "--gpu", "L4"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert "fits     tensor parallel 1" in done.stdout


def test_the_two_sparks_of_the_story(told) -> None:
    status, out, _ = told(QWEN_122B, "--gpu", "GB10", "--nodes", "2")
    assert status == 0
    lines = out.splitlines()
    assert "48 layers: 36 recurrent + 12 full · 24.0 KiB a token · 147 MiB a sequence" in lines[0]
    assert "GB10 · 120 GiB unified · 273 GB/s" in lines[1]
    first = next(line for line in lines if line.startswith("fits"))
    assert "tensor parallel 2, 2 nodes" in first
    assert "58 + 6.9 of 96 GiB" in first
    assert "context up to 262144" in first
    assert "at most 46 tok/s, 98 exchanges take 14% of it" in first
    no = next(line for line in lines if line.startswith("no "))
    assert "tensor parallel 1, 1 node" in no
    assert "of 108 GiB" in no
    assert "flags    --gpu-memory-utilization 0.80" in lines


def test_the_start_that_was_refused_is_named_before_it(told) -> None:
    status, out, _ = told(QWEN_122B_REFUSED, "--gpu", "H200", "--nodes", "2")
    assert status == 0  # stages would do
    assert "illegal  tensor parallel 2, 2 nodes" in out
    assert "fp8-block-indivisible: visual.blocks.attn.qkv: 1152 over 2 ranks is 576" in out
    assert "and 1 more reason: --all" in out
    whole = told(QWEN_122B_REFUSED, "--gpu", "H200", "--nodes", "2", "--all")[1]
    assert "linear_fc1" in whole
    assert "--all" not in whole


def test_nothing_fits_is_status_four(told) -> None:
    status, out, err = told(QWEN_122B, "--gpu", "RTX 4090")
    assert (status, err) == (4, "")
    assert [line.split()[0] for line in out.splitlines() if "tensor parallel" in line] == ["no"]
    assert "flags" not in out


def test_this_machine_and_our_own_model(told) -> None:
    status, out, _ = told(str(ADDER), "--json")
    assert status == 0
    found = json.loads(out)
    assert found["model"]["counted"] is True
    assert found["model"]["bytes"] == sum(best_parts(found).values())
    (node,) = found["nodes"]
    assert node["kind"] in ("ram", "vram", "unified")
    best = found["layouts"][0]
    assert best["fits"] is True
    assert best["layout"]["ranks"] == 1
    assert best["context"] == 2048
    assert best["nodes"][0]["parts"]["experts"] > 0


def best_parts(found: dict) -> dict[str, int]:
    return found["layouts"][0]["nodes"][0]["parts"]


def test_what_is_asked_for_counts(told) -> None:
    few = json.loads(told(LLAMA_70B, "--gpu", "H100:4", "--json")[1])["layouts"][0]
    many = json.loads(told(LLAMA_70B, "--gpu", "H100:4", "--json", "--context", "32768", "--sequences", "8")[1])
    assert few["fits"] and many["layouts"][0]["fits"]
    assert many["layouts"][0]["sequences"] >= 8
    small = json.loads(told(LLAMA_70B, "--gpu", "H100:4", "--json", "--cache-bytes", "1")[1])
    assert small["token_bytes"] == 163_840
    assert small["layouts"][0]["tokens"] == pytest.approx(2 * few["tokens"], rel=0.01)
    slow = json.loads(told(LLAMA_70B, "--gpu", "H100:4", "--json", "--bandwidth", "100")[1])["layouts"][0]
    assert slow["bound"]["tok_s"] == pytest.approx(2.8, abs=0.1)  # 139 GB over 4 GPUs of 100 GB/s
    long = told(LLAMA_70B, "--gpu", "H100:4", "--json", "--context", "200000")
    assert long[0] == 4
    assert {one["refusals"][0]["code"] for one in json.loads(long[1])["layouts"]} == {"context-too-long"}


def test_engines_differ(told) -> None:
    sglang = json.loads(told(QWEN_122B, "--gpu", "H200:2", "--engine", "sglang", "--json")[1])["layouts"][0]
    older = json.loads(told(QWEN_122B, "--gpu", "H200:2", "--engine-version", "0.24.0", "--json")[1])["layouts"][0]
    newer = json.loads(told(QWEN_122B, "--gpu", "H200:2", "--json")[1])["layouts"][0]
    assert older["sequences"] >= newer["sequences"] > 0
    assert sglang["utilisation"] != newer["utilisation"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu", "Radeon 1"), "the table of GPUs has no Radeon 1"),
        (("--gpu", "GB10:0"), "--gpu takes a number from 1"),
        (("--gpu", "GB10:x"), "--gpu takes a number from 1"),
        (("--gpu", "GB10", "--nodes", "0"), "--nodes takes a number from 1"),
        (("--gpu", "GB10", "--nodes", "1000"), "--nodes takes a number from 1"),
        (("--gpu", "GB10", "--node", "local"), "two ways to name machines"),
        (("--gpu", "GB10", "--engine", "nobody"), "nothing is known of nobody"),
        (("--gpu", "GB10", "--link", "pigeon"), "nothing is known of pigeon"),
        (("--gpu", "GB10", "--context", "0"), "--context takes a number from 1"),
        (("--gpu", "GB10", "--sequences", "-1"), "--sequences takes a number from 1"),
        (("--gpu", "GB10", "--cache-bytes", "9"), "--cache-bytes takes a number from 1"),
        (("--gpu", "GB10", "--bandwidth", "-1"), "--bandwidth takes"),
        (("--gpu", "GB10", "--bandwidth", "nan"), "--bandwidth takes"),
        (("--gpu", "GB10", "--utilisation", "1.5"), "--utilisation takes more than 0 and at most 1"),
        (("--gpu", "GB10", "--utilisation", "nan"), "--utilisation takes more than 0 and at most 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_words_that_can_not_be_meant(told, words: tuple[str, ...], says: str) -> None:
    status, out, err = told(LLAMA_70B, *words)
    assert (status, out) == (2, "")
    assert err.startswith("error[usage]: ")
    assert says in err


@pytest.mark.parametrize(
    ("change", "code", "seen"),
    [
        ({"num_key_value_heads": 7}, "shape-absurd", "num_key_value_heads: '7 of 64 heads'"),
        ({"hidden_size": -3}, "shape-absurd", "hidden_size: -3"),
        ({"num_hidden_layers": None}, "shape-unknown", "num_hidden_layers: not there"),
        ({"mamba_expand": 2}, "shape-unknown", "mamba_expand: not there"),
    ],
)
def test_a_configuration_that_can_not_be_meant_is_a_named_error(told, change: dict, code: str, seen: str) -> None:
    status, out, err = told(LLAMA_70B | change, "--gpu", "GB10")
    assert (status, out) == (2, "")
    assert err.startswith(f"error[{code}]: ")
    assert seen in err
    assert "try: " in err


def test_a_class_alone_tells_no_shape(told) -> None:
    status, _, err = told("LlamaForCausalLM", "--gpu", "GB10")
    assert status == 2
    assert "error[shape-unknown]" in err


def test_a_node_that_does_not_answer(told) -> None:
    status, _, err = told(LLAMA_70B, "--node", "nobody.invalid")
    assert status == 3
    assert "error[node-unreachable]" in err
