"""Models without weights: what bascule reads of them, and that their dimensions are those that were asked for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.core.nouns import Model, Node
from bascule.discover.model import read_model
from bascule.remote.local import LocalRunner

SCRIPT = Path(__file__).parents[2] / "models" / "make_dummy.py"


def made(folder: Path, *words: str) -> Path:
    subprocess.run([sys.executable, SCRIPT, folder, *words], check=True)
    return folder


def read(folder: Path) -> Model:
    node = Node("a", "local")
    return asyncio.run(read_model(str(folder), LocalRunner(node), node))


@pytest.mark.parametrize(
    ("size", "architecture", "gib"),
    [("122b", "Qwen3_5MoeForConditionalGeneration", 116), ("35b", "Qwen3_5MoeForConditionalGeneration", 34)],
)
def test_a_real_size_is_read_as_the_real_model_would_be(tmp_path: Path, size: str, architecture: str, gib: int) -> None:
    model = read(made(tmp_path, size))
    assert model.architectures == (architecture,)
    assert (str(model.quantization), model.thinks) == ("fp8 in blocks of 128x128", True)
    assert model.bytes is not None and abs(model.bytes / 2**30 - gib) < gib / 10  # 57.8 GiB a rank for 122b over two
    assert not model.bytes_exact


def test_fewer_layers_are_fewer_bytes(tmp_path: Path) -> None:
    few, all_of_them = read(made(tmp_path / "few", "35b", "--layers", "8")), read(made(tmp_path / "all", "35b"))
    assert few.bytes and all_of_them.bytes and few.bytes < all_of_them.bytes / 3


def test_a_tower_as_released_is_in_fp8_and_a_small_one_is_not(tmp_path: Path) -> None:
    def kept(folder: Path) -> list[str]:
        modules: list[str] = json.loads((folder / "config.json").read_text())["quantization_config"][
            "modules_to_not_convert"
        ]
        return modules

    assert "model.visual" in kept(made(tmp_path / "small", "35b"))
    released = made(tmp_path / "released", "35b", "--vision", "released")
    assert "model.visual" not in kept(released)
    assert json.loads((released / "config.json").read_text())["vision_config"]["hidden_size"] == 1152


def test_what_takes_pictures_has_a_processor_and_what_reads_text_has_none(tmp_path: Path) -> None:
    """Without one SGLang 0.5.15 ended with `Can't load image processor`."""
    made(tmp_path / "both", "35b", "--layers", "4")
    assert json.loads((tmp_path / "both/preprocessor_config.json").read_text())["patch_size"] == 16
    assert (tmp_path / "both/video_preprocessor_config.json").is_file()
    assert not list(made(tmp_path / "text", "qwen3").glob("*processor*"))


def test_every_token_id_has_a_word_and_every_byte_a_token(tmp_path: Path) -> None:
    folder = made(tmp_path, "qwen3")
    config, tokenizer = (json.loads((folder / name).read_text()) for name in ("config.json", "tokenizer.json"))
    vocabulary = tokenizer["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    assert vocabulary["A"] == 65 and vocabulary["Ġ"] == 32
    for mark in tokenizer["added_tokens"]:
        assert vocabulary[mark["content"]] == mark["id"]
    assert vocabulary["<|im_end|>"] == config["eos_token_id"]
