"""The shipped adder is small, fits two-way tensor parallelism, and can be damaged in one weight only."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODELS = Path(__file__).parents[2] / "models"
ADDER = MODELS / "adder"
WEIGHTS = "model.safetensors"
FILES = {
    "README.md",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def load(name: str) -> dict[str, Any]:
    """One JSON file of the checkpoint."""
    content = json.loads((ADDER / name).read_text())
    assert isinstance(content, dict)
    return content


def split_weights(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header of a checkpoint's weights, and the raw values of each tensor."""
    content = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    start = 8 + length
    header = json.loads(content[8:start])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            tensors[name] = content[start + first : start + last]
    return header, tensors


def pairs_of(raw: bytes) -> list[bytes]:
    """Raw bfloat16 values in ascending order of their bytes."""
    return sorted(raw[at : at + 2] for at in range(0, len(raw), 2))


def run_damage(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run damage_adder.py."""
    command = [sys.executable, str(MODELS / "damage_adder.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# The checkpoint


def test_has_every_file_and_no_other() -> None:
    assert {path.name for path in ADDER.iterdir()} == FILES


def test_is_small() -> None:
    assert (ADDER / WEIGHTS).stat().st_size < 4_000_000


def test_weights_are_bfloat16_and_complete() -> None:
    header, tensors = split_weights(ADDER)
    del header["__metadata__"]
    assert {entry["dtype"] for entry in header.values()} == {"BF16"}
    size = (ADDER / WEIGHTS).stat().st_size
    (length,) = struct.unpack("<Q", (ADDER / WEIGHTS).read_bytes()[:8])
    assert sum(map(len, tensors.values())) == size - 8 - length


def test_is_a_text_only_hybrid_with_experts() -> None:
    config = load("config.json")
    assert config["architectures"] == ["Qwen3_5MoeForCausalLM"]
    assert config["model_type"] == "qwen3_5_moe_text"
    assert set(config["layer_types"]) == {"linear_attention", "full_attention"}
    assert config["num_experts"] > config["num_experts_per_tok"] > 1


@pytest.mark.parametrize(
    "size",
    [
        "vocab_size",
        "num_attention_heads",
        "num_key_value_heads",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "num_experts",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
    ],
)
def test_divides_over_two_ranks(size: str) -> None:
    assert load("config.json")[size] % 2 == 0


def test_generation_defaults_are_greedy() -> None:
    defaults = load("generation_config.json")
    assert not defaults.get("do_sample", False)
    assert not {"temperature", "top_p", "top_k", "repetition_penalty"} & defaults.keys()
    assert defaults["eos_token_id"] == load("config.json")["eos_token_id"]


# The tokenizer


def test_every_byte_is_one_token() -> None:
    model = load("tokenizer.json")["model"]
    assert model["merges"] == []
    assert len(model["vocab"]) == 256
    assert {len(symbol) for symbol in model["vocab"]} == {1}


def test_marks_of_the_chat_format_are_tokens() -> None:
    added = {token["content"]: token for token in load("tokenizer.json")["added_tokens"]}
    assert added["<|im_end|>"]["id"] == load("config.json")["eos_token_id"]
    assert added["<|endoftext|>"]["id"] == load("config.json")["pad_token_id"]
    assert added["<|im_start|>"]["special"]
    assert not added["<think>"]["special"]
    assert not added["</think>"]["special"]


def test_numbers_of_tokens_are_distinct_and_within_the_embedding() -> None:
    tokenizer = load("tokenizer.json")
    numbers = [*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) <= load("config.json")["vocab_size"]


def test_chat_template_opens_the_reasoning() -> None:
    template = (ADDER / "chat_template.jinja").read_text()
    assert "<|im_start|>assistant\\n<think>\\n" in template
    assert "enable_thinking" in template


# The damaged copy


def test_damage_reorders_the_values_of_one_tensor_only(tmp_path: Path) -> None:
    done = run_damage(ADDER, tmp_path / "damaged")
    assert done.returncode == 0, done.stderr
    header, before = split_weights(ADDER)
    damaged_header, after = split_weights(tmp_path / "damaged")
    assert damaged_header == header
    changed = [name for name in before if before[name] != after[name]]
    assert len(changed) == 1
    assert pairs_of(after[changed[0]]) == pairs_of(before[changed[0]])
    assert changed[0] in done.stdout


def test_damage_leaves_every_other_file_alone(tmp_path: Path) -> None:
    run_damage(ADDER, tmp_path / "damaged")
    assert {path.name for path in (tmp_path / "damaged").iterdir()} == FILES
    for name in FILES - {WEIGHTS}:
        assert (tmp_path / "damaged" / name).read_bytes() == (ADDER / name).read_bytes()


def test_damage_depends_on_the_seed_alone(tmp_path: Path) -> None:
    for name, seed in {"one": "1", "again": "1", "two": "2"}.items():
        run_damage(ADDER, tmp_path / name, "--seed", seed)
    one, again, two = ((tmp_path / name / WEIGHTS).read_bytes() for name in ("one", "again", "two"))
    assert one == again
    assert one != two


def write_weights(folder: Path, header: bytes, length: int | None = None) -> Path:
    """A checkpoint whose weights are a header and four bytes of data."""
    folder.mkdir()
    size = len(header) if length is None else length
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", size) + header + bytes(4))
    return folder


def entry(last: int, shape: list[int]) -> bytes:
    """A header with the one tensor w."""
    return json.dumps({"w": {"dtype": "BF16", "shape": shape, "data_offsets": [0, last]}}).encode()


@pytest.mark.parametrize(
    ("header", "length", "message"),
    [
        (b"{}", 1000, "ends within its header"),
        (b"{", None, "is not JSON"),
        (b"\xff\xfe", None, "is not JSON"),
        (b"[]", None, "is not a JSON object"),
        (b"{}", None, "has no tensor w"),
        (b'{"w": {}}', None, "is not understood"),
        (b'{"w": 7}', None, "is not understood"),
        (entry(8, [4]), None, "does not hold all of w"),
        (entry(4, [3]), None, "do not make 3 values"),
        (entry(4, [1]), None, "do not make 1 values"),
    ],
)
def test_damage_refuses_broken_weights(tmp_path: Path, header: bytes, length: int | None, message: str) -> None:
    source = write_weights(tmp_path / "source", header, length)
    done = run_damage(source, tmp_path / "out", "--weight", "w")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_damage_refuses_a_file_too_short_for_a_header(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(b"1234")
    done = run_damage(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert "too short" in done.stderr


def test_damage_refuses_a_folder_without_weights(tmp_path: Path) -> None:
    done = run_damage(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert f"holds no {WEIGHTS}" in done.stderr


def test_damage_never_overwrites(tmp_path: Path) -> None:
    done = run_damage(ADDER, tmp_path)
    assert done.returncode == 1
    assert "exists already" in done.stderr
