"""Weights in a model's folder: counted, missing, damaged, closed; in two round trips and within bounds."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from bascule.core.nouns import Model, Node, Quantization
from bascule.discover.folder import parse_heads, parse_look
from bascule.discover.model import read_model
from bascule.discover.safetensors import MAX_READ
from bascule.errors import ModelError
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Result
from bascule.remote.ssh import SshRunner
from discover.model_cases import DEEPSEEK, LLAMA, MODELOPT, header, write

ADDER = Path(__file__).parents[2] / "models/adder"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


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


def weights(path: Path, *names: str) -> None:
    """Files that each hold 8 x 4 numbers of 2 bytes."""
    for name in names:
        write(path / name, {"model.a.weight": ("BF16", [8, 4])})


def index(path: Path, *names: str, total: int | None = None) -> None:
    """An index that names these files."""
    whole = {"metadata": {"total_size": total}, "weight_map": {str(place): name for place, name in enumerate(names)}}
    (path / "model.safetensors.index.json").write_text(json.dumps(whole))


class Counting(LocalRunner):
    """Notes how many commands it ran; from number `fails_from` on they are ended as if their time was over."""

    def __init__(self, node: Node, fails_from: int = 99) -> None:
        super().__init__(node)
        self.ran, self.fails_from = 0, fails_from

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        self.ran += 1
        if self.ran >= self.fails_from:
            return Result(tuple(argv), 124, b"", b"")
        return await super().run(argv, stdin=stdin, within=within)


def test_a_model_is_known_by_its_config_and_the_headers_of_its_weights(tmp_path: Path) -> None:
    path = folder(tmp_path, notes_json="{}")
    weights(path, "a.safetensors", "b.safetensors")
    assert read(path) == Model(
        str(path), ("LlamaForCausalLM",), "llama", bytes=128, thinks=False, bytes_exact=True, parameters=64
    )


def test_weights_behind_links_count_and_missing_ones_are_not_made_up(tmp_path: Path) -> None:
    path = folder(tmp_path)
    assert (read(path).bytes, read(path).bytes_exact) == (None, False)
    weights(tmp_path, "blob")
    (path / "model.safetensors").symlink_to(tmp_path / "blob")
    assert (read(path).bytes, read(path).bytes_exact) == (64, True)


def test_a_link_to_nowhere_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path)
    weights(path, "a.safetensors")
    (path / "b.safetensors").symlink_to(tmp_path / "blobs/12")
    with pytest.raises(ModelError, match=r"b\.safetensors is a link to nowhere") as caught:
        read(path)
    assert caught.value.code == "model-incomplete"
    (path / "b.safetensors").unlink()
    (path / "config.json").unlink()
    (path / "config.json").symlink_to("../../blobs/34")
    with pytest.raises(ModelError, match=r"config\.json is a link to nowhere"):
        read(path)


def test_other_formats_of_weights_are_taken_by_the_size_of_their_files(tmp_path: Path) -> None:
    path = folder(tmp_path)
    for name in ("pytorch_model-1.bin", "pytorch_model-2.bin", "optimizer.bin"):
        (path / name).write_bytes(b"12345")
    model = read(path)
    assert (model.bytes, model.bytes_exact, model.parameters) == (10, True, None)


def test_what_is_quantized_and_what_brings_code_is_read_from_the_folder(tmp_path: Path) -> None:
    path = folder(tmp_path, config_json=json.dumps(DEEPSEEK))
    (path / "modeling_deepseek.py").write_text("")
    write(path / "model.safetensors", {"a": ("F8_E4M3", [128, 128]), "a.weight_scale_inv": ("F32", [1, 1])})
    model = read(path)
    assert model.quantization == Quantization("fp8", "", 8, (128, 128))
    assert model.remote_code == ("DeepseekV3ForCausalLM",)
    assert (model.bytes, model.parameters) == (128 * 128 + 4, 128 * 128)


def test_modelopt_writes_beside_the_config(tmp_path: Path) -> None:
    path = folder(tmp_path, hf_quant_config_json=json.dumps(MODELOPT))
    quantization = read(path).quantization
    assert quantization is not None
    assert (quantization.method, quantization.algorithm, quantization.bits) == ("modelopt", "NVFP4", 4)
    (path / "hf_quant_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"/hf_quant_config\.json is no JSON"):
        read(path)


def test_only_files_that_the_index_names_count(tmp_path: Path) -> None:
    path = folder(tmp_path)
    weights(path, "model-1.safetensors", "model-2.safetensors", "other.safetensors")
    index(path, "model-1.safetensors", "model-2.safetensors", total=7)
    assert (read(path).bytes, read(path).parameters) == (128, 64)


def test_a_file_that_only_the_index_knows_is_missing(tmp_path: Path) -> None:
    path = folder(tmp_path)
    weights(path, "model-1.safetensors")
    index(path, "model-1.safetensors", "model-2.safetensors")
    with pytest.raises(ModelError, match="lacks 1 of its files of weights") as caught:
        read(path)
    assert (caught.value.code, caught.value.exit_status) == ("model-incomplete", 2)
    assert "model-2.safetensors" in caught.value.seen


def test_without_any_weights_the_index_tells_their_bytes_and_else_the_shapes_do(tmp_path: Path) -> None:
    path = folder(tmp_path, config_json=json.dumps(LLAMA))
    index(path, "model-1.safetensors", total=13_476_831_232)
    model = read(path)
    assert (model.bytes, model.bytes_exact, model.parameters) == (13_476_831_232, True, None)
    index(path, "model-1.safetensors")
    assert not read(path).bytes_exact
    assert read(path).bytes == pytest.approx(13.48e9, rel=0.01)


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"12345", "model-broken", "is no safetensors file"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 4\n",
            "model-incomplete",
            "a pointer of Git LFS",
        ),
        (header({"a": ("F32", [100])}) + b"1234", "model-incomplete", "is cut short"),
        (header({"a": ("F32", [1])}) + b"12345678", "model-broken", "is longer than its header says"),
        (header({"a": ("F32", [1])})[:-9], "model-incomplete", "is cut short"),
    ],
    ids=["junk", "pointer", "cut", "long", "cut header"],
)
def test_a_damaged_file_of_weights_is_told(tmp_path: Path, content: bytes, code: str, says: str) -> None:
    path = folder(tmp_path, model_st=content)
    with pytest.raises(ModelError, match=says) as caught:
        read(path)
    assert caught.value.code == code
    assert caught.value.says.startswith(f"{path}/model.safetensors ")


def test_a_header_that_is_too_long_to_be_read_leaves_the_size_of_the_file(tmp_path: Path) -> None:
    path = folder(tmp_path, model_st=(MAX_READ + 1).to_bytes(8, "little"))
    os.truncate(path / "model.safetensors", MAX_READ + 100)
    model = read(path)
    assert (model.bytes, model.bytes_exact, model.parameters) == (MAX_READ + 100, True, None)


def test_names_of_files_may_be_anything(tmp_path: Path) -> None:
    path = folder(tmp_path)
    weights(path, "-n.safetensors", "a b.safetensors", "ü'$(x).safetensors", "new\nline.safetensors")
    os.mkfifo(path / "pipe.safetensors")
    (path / "folder.safetensors").mkdir()
    assert read(path).bytes == 3 * 64


def test_a_pipe_is_no_config(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        read(tmp_path)


def test_it_takes_one_round_trip_and_a_second_one_for_headers(tmp_path: Path) -> None:
    node, path = Node("a", "local"), folder(tmp_path)
    one = Counting(node)
    asyncio.run(read_model(str(path), one, node))
    weights(path, "a.safetensors")
    two = Counting(node)
    asyncio.run(read_model(str(path), two, node))
    assert (one.ran, two.ran) == (1, 2)


def test_headers_that_do_not_come_in_time_leave_the_sizes_of_the_files(tmp_path: Path) -> None:
    node, path = Node("a", "local"), folder(tmp_path)
    weights(path, "a.safetensors")
    model = asyncio.run(read_model(str(path), Counting(node, fails_from=2), node))
    assert (model.bytes, model.parameters) == ((path / "a.safetensors").stat().st_size, None)


def test_a_node_without_gzip_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, tools = folder(tmp_path), tmp_path / "bin"
    tools.mkdir()
    weights(path, "a.safetensors")
    with_gzip = read(path)
    for tool in ("sh", "timeout", "ls", "head", "od"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setenv("PATH", str(tools))
    assert read(path) == with_gzip
    assert with_gzip.parameters == 32


def test_a_model_is_read_over_ssh_like_here(sshd) -> None:
    node = sshd.node()
    assert asyncio.run(read_model(str(ADDER), SshRunner(node), node)) == read(ADDER)


class AsNobody(LocalRunner):
    """Runs commands without root's right to read everything."""

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        less = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 else ()
        return await super().run((*less, *argv), stdin=stdin, within=within)


@pytest.mark.parametrize(
    ("closed", "says"),
    [
        ("config.json", "config.json could not be read"),
        ("a.safetensors", "a.safetensors could not be read"),
        (".", " on a could not be read"),
    ],
)
def test_what_may_not_be_read_is_not_taken_for_missing(closed: str, says: str) -> None:
    node = Node("a", "local")
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "config.json").write_text(json.dumps(CONFIG))
        weights(Path(path), "a.safetensors")
        Path(path).chmod(0o755)
        assert asyncio.run(read_model(path, AsNobody(node), node)).parameters == 32
        (Path(path) / closed).chmod(0o311 if closed == "." else 0)
        with pytest.raises(ModelError, match=says) as caught:
            asyncio.run(read_model(path, AsNobody(node), node))
        assert caught.value.code == "model-unread"
        Path(path).chmod(0o700)


@pytest.mark.parametrize("out", [b"", b"nothing", b"\x1f\x8b\x08 cut", b"=== 64 100 a.safetensors\n12345"])
def test_an_answer_that_is_cut_is_none(out: bytes) -> None:
    assert parse_heads(out) is None
    assert parse_look(out) is None


def test_lines_of_a_look_that_are_none_are_left_out() -> None:
    seen = parse_look(b"=== end\nclosed config.json\n12 a.safetensors\ngone b.bin\nnonsense\n")
    assert seen.unreadable == {"config.json": "closed", "b.bin": "gone"}
    assert seen.sizes == {"a.safetensors": 12}
