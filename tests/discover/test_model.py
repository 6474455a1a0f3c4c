"""The facts of a model from its real folder; a folder that is none is told before anything is started."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from bascule.core.nouns import Model, Node
from bascule.discover.model import from_name, read_config_file, read_model
from bascule.errors import ModelError
from bascule.remote.local import LocalRunner

ADDER = Path(__file__).parents[2] / "models/adder"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
THINKS = "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
TOKENS = {"added_tokens_decoder": {"151667": {"content": "<think>"}}}


def read(folder: Path) -> Model:
    node = Node("a", "local")
    return asyncio.run(read_model(str(folder), LocalRunner(node), node))


def folder(tmp_path: Path, **files: str | bytes) -> Path:
    """A model's folder with a space in its name; `_json` stands for `.json`, `_jinja` for `.jinja`."""
    path = tmp_path / "my model"
    path.mkdir()
    for name, content in {"config_json": json.dumps(CONFIG), **files}.items():
        file = path / name.replace("_json", ".json").replace("_jinja", ".jinja").replace("_st", ".safetensors")
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("files", "thinks"),
    [
        ({"chat_template_jinja": THINKS}, True),
        ({"tokenizer_config_json": json.dumps({"chat_template": THINKS})}, True),
        ({"tokenizer_config_json": json.dumps({"chat_template": [{"name": "default", "template": THINKS}]})}, True),
        ({"chat_template_jinja": "{{ messages }}"}, False),
        (
            {"tokenizer_config_json": json.dumps({"added_tokens_decoder": TOKENS, "chat_template": "{{ messages }}"})},
            False,
        ),
        ({"tokenizer_config_json": json.dumps({"added_tokens_decoder": TOKENS})}, False),
        ({"tokenizer_config_json": "no json <think>"}, False),
        ({}, False),
    ],
)
def test_a_model_thinks_when_its_template_says_so(tmp_path: Path, files: dict[str, str], thinks: bool) -> None:
    assert read(folder(tmp_path, **files)).thinks is thinks


def test_a_config_may_hold_anything(tmp_path: Path) -> None:
    tricky = json.dumps({**CONFIG, "x": "=== weights 3\n=== y 9\n"}, indent=1) + "\n\n=== z 1\n"
    with pytest.raises(ModelError, match="is no JSON"):
        read(folder(tmp_path, config_json=tricky))
    (tmp_path / "my model/config.json").write_text(
        json.dumps({**CONFIG, "x": "\n=== weights 3\nü"}, ensure_ascii=False)
    )
    assert read(tmp_path / "my model").model_type == "llama"


@pytest.mark.parametrize(
    ("config", "says", "seen"),
    [
        ("{", "is no JSON", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "is no JSON", "Expecting value: line 1 column 1 (char 0)"),
        (b"\xff{}", "is no JSON", "invalid start byte"),
        ("[1]", "is no object", "list"),
        ("{}", "names no architectures", "None"),
        ('{"architectures": []}', "names no architectures", "[]"),
        ('{"architectures": "X"}', "names no architectures", "'X'"),
        ('{"architectures": [1]}', "names no architectures", "[1]"),
    ],
)
def test_a_broken_config_is_told(tmp_path: Path, config: str | bytes, says: str, seen: str) -> None:
    path = folder(tmp_path, config_json=config)
    with pytest.raises(ModelError) as caught:
        read(path)
    assert (caught.value.code, caught.value.exit_status) == ("model-broken", 2)
    assert caught.value.says == f"{path}/config.json {says}"
    assert seen in caught.value.seen


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json") as caught:
        read(tmp_path)
    assert caught.value.code == "model-broken"


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_a_folder_that_is_not_there_is_told_with_its_node(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError) as caught:
        read(tmp_path / name)
    assert (caught.value.code, caught.value.exit_status) == ("model-missing", 2)
    assert caught.value.says == f"there is no folder {tmp_path / name} on a"
    assert name in caught.value.seen


@pytest.mark.skipif(not (ADDER / "config.json").exists(), reason="models/adder is not here")
def test_our_own_tiny_model() -> None:
    model = read(ADDER)
    assert model.thinks
    assert model.architectures[0].startswith("Qwen3_5Moe")
    assert model.parameters == 1_506_264
    assert model.bytes == 2 * model.parameters
    assert model.bytes_exact


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("LlamaForCausalLM", "", "llama"),
        ("Glm4MoeLiteForCausalLM", "", "glm4_moe_lite"),
        ("Qwen3_5MoeForConditionalGeneration", "", "qwen3_5_moe"),
        ("Qwen3_5MoeForCausalLM", "", ""),  # two model types have it
        ("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "qwen3_5_moe_text"),
        ("NobodyForCausalLM", "", ""),
    ],
)
def test_a_name_alone_is_a_model_with_the_one_type_that_has_it(name: str, given: str, wanted: str) -> None:
    assert from_name(name, given) == Model(name, (name,), wanted, bytes_exact=False)


@pytest.mark.parametrize("name", ["", "a b", "owner/name", "../x", "-x"])
def test_what_can_be_no_class_is_told(name: str) -> None:
    with pytest.raises(ModelError, match="is no name of an architecture"):
        from_name(name)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_a_config_that_is_no_file_is_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    {"missing": str, "folder": os.mkdir, "pipe": os.mkfifo}[kind](path)
    with pytest.raises(ModelError, match="there is no file") as caught:
        read_config_file(path)
    assert caught.value.code == "model-missing"
