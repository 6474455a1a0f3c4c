"""The catalogue that came with bascule: what is known of well-known models, and what it costs to load."""

import json
import os
import subprocess
import sys

import pytest

from bascule.catalog import app
from bascule.probe.facts import engines_on_record, first_release, known, known_from, looked_at, unknown_before, unread


@pytest.mark.parametrize(
    ("engine", "name", "first"),
    [
        ("vllm", "Qwen3_5MoeForConditionalGeneration", "0.17.0"),
        ("vllm", "Qwen3_5MoeForCausalLM", "0.27.0"),
        ("vllm", "Glm4MoeLiteForCausalLM", "0.15.0"),
        ("sglang", "Qwen3_5MoeForConditionalGeneration", "0.5.9"),
        ("sglang", "Glm4MoeLiteForCausalLM", "0.5.8"),
        ("transformers", "qwen3_5_moe", "5.2.0"),
        ("transformers", "glm4_moe_lite", "5.0.0"),
        ("transformers", "Qwen3_5MoeForCausalLM", "5.2.0"),
    ],
)
def test_first_releases_that_were_read_by_hand_too(engine, name, first):
    assert first_release(engine, name) == unknown_before(engine, name) == known_from(engine, name) == first


def test_a_name_in_the_oldest_release_may_be_older():
    oldest = looked_at("transformers")[0]
    assert first_release("transformers", "llama") == f"{oldest} or earlier"
    assert unknown_before("transformers", "llama") is None
    assert known_from("transformers", "llama") == oldest


@pytest.mark.parametrize(("name", "last"), [("AquilaForCausalLM", "0.24.0"), ("MPTForCausalLM", "0.28.0")])
def test_what_was_removed_is_known_from_no_release_on(name, last):
    record = known("vllm", name)
    assert record is not None
    assert (record.last, record.until) == (last, last)
    assert known_from("vllm", name) is None


def test_what_went_away_and_came_back_is_known_from_no_release_on():
    record = known("vllm", "ExaoneMoEForCausalLM")
    assert record is not None
    assert (record.first, record.missing[0], record.last) == ("0.14.0", "0.27.0", "")
    assert known_from("vllm", "ExaoneMoEForCausalLM") is None


@pytest.mark.parametrize(("engine", "name"), [("vllm", "Nobody"), ("vllm", "last"), ("nobody", "llama"), ("vllm", "")])
def test_what_no_release_knows_has_no_record(engine, name):
    assert known(engine, name) is None
    assert (first_release(engine, name), unknown_before(engine, name), known_from(engine, name)) == (None, None, None)


def test_every_release_was_read_to_its_end():
    assert set(engines_on_record()) == {"vllm", "sglang", "lmdeploy", "transformers"}
    for engine in engines_on_record():
        assert not unread(engine)
        assert len(looked_at(engine)) >= 19


def test_show_tells_it_for_every_engine(capsys):
    assert app(["show", "AquilaForCausalLM"], result_action="return_value") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "AquilaForCausalLM"
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:]}
    assert rows["vllm"].startswith("0.10.0 or earlier to 0.24.0 looked at 0.10.0 to ")
    assert rows["sglang"].startswith("no architecture of this name looked at ")
    assert rows["transformers"].startswith("in none looked at ")


def test_show_for_programs(capsys):
    assert app(["show", "qwen3_5_moe", "--json"], result_action="return_value") == 0
    rows = {row["engine"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["transformers"]["known"]["first"] == "5.2.0"
    assert rows["vllm"]["known"] is None
    assert rows["vllm"]["looked_at"][0] == looked_at("vllm")[0]


def test_help_reads_no_catalogue_and_no_network_library():
    code = (
        "import sys\nfrom bascule.catalog import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m in ('httpx2', 'tomllib', 'bascule.probe.facts', 'bascule.probe.census')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert said.stdout.splitlines()[-1] == "[]"
