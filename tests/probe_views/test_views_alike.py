"""Every view gives the answers that a folder on a node gives, which real sh and grep read."""

import asyncio
import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bascule.core.nouns import Node
from bascule.probe.gather import finding
from bascule.probe.verdict import Word
from bascule.probe.views.archive import open_archive
from bascule.probe.views.base import View, word
from bascule.probe.views.folder import FolderView
from bascule.probe.views.wheel import open_wheel, wheels_in
from bascule.remote.local import LocalRunner
from probe.probe_cases import GLM, LLAMA, NEXT, NOBODY, Q35, Q35_TEXT
from probe_views.views_cases import SITE, files_of, layer, layout, library, packed, report, saved, tar_of, under, wheel

ENGINES = ("vllm-0.32.0", "transformers-5.19.0")
FILES = {
    **files_of(*ENGINES),
    "xllamacpp/one.so": library(["llama", "qwen35moe", "rwkv6qwen2", "two words"]),
    "xllamacpp/.hidden.so": library(["llama"]),
    "site.pth": b"\n  /elsewhere\nimport x",
    "vllm/odd/lines.py": b"a = 1\r\n\tx[b]\nclass A(B):\nlast class A:",
    "vllm/odd/many.py": b"same\n" * 30,
    "vllm/odd/empty.py": b"",
    "vllm/a b/.x.py": b"one\n",
    "vllm/a b/ü.py": "class A: # é\n".encode(),
}
WAYS = (
    "wheel",
    "wheels",
    "saved",
    "saved newer",
    "layout",
    "layout folder",
    "layout zstd",
    "pipe",
    "pipe gzip",
    "flat",
)


def folder(tmp_path: Path) -> FolderView:
    for path, data in FILES.items():
        place = tmp_path / "folder" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return FolderView(LocalRunner(Node("h1", "local")), str(tmp_path / "folder"))


class OneWay(io.RawIOBase):
    """A file like a pipe."""

    def __init__(self, data: bytes) -> None:
        self.inner = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def readinto(self, buffer) -> int:
        return self.inner.readinto(memoryview(buffer)[:1000])


def made(way: str, tmp_path: Path, package: str = "vllm") -> View:
    half = len(FILES) // 2
    rows = list(FILES.items())
    layers = [layer(under(dict(part))) for part in (rows[:half], rows[half:])]
    archive = tmp_path / "image.tar"
    if way == "wheel":
        return open_wheel(wheel(tmp_path / "one.whl", FILES))
    if way == "wheels":
        wheel(tmp_path / "one.whl", dict(rows[:half]))
        two, three = rows[half::2], rows[half + 1 :: 2]
        wheel(tmp_path / "two.whl", {f"x-1.data/purelib/{path}": data for path, data in two})
        wheel(tmp_path / "three.whl", {f"x-1.data/platlib/{path}": data for path, data in three})
        return wheels_in(tmp_path)
    if way.startswith("pipe"):
        data = saved(layers, newer=way != "pipe gzip")
        return open_archive(io.BufferedReader(OneWay(packed(data) if "gzip" in way else data)), package)
    if way.startswith("layout"):
        parts = layout({"linux/arm64": [packed(one, "zstd" if "zstd" in way else "gzip") for one in layers]})
        if way != "layout folder":
            archive.write_bytes(tar_of(parts))
            return open_archive(archive, package)
        for path, blob in parts.items():
            (tmp_path / "layout" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "layout" / path).write_bytes(blob)
        return open_archive(tmp_path / "layout", package)
    archive.write_bytes(layer(under(FILES)) if way == "flat" else saved(layers, newer=way == "saved newer"))
    return open_archive(str(archive), package)


GLOBS = (
    ("vllm",),
    ("none",),
    ("*.dist-info", "vllm/*", "vllm/*/*.py", "no*"),
    ("*",),
    ("*/*.so", "*/.*.so"),
    ("transformers/models/*/modeling_*.py", "transformers/models/*/*/modeling_*.py"),
    ("[a-v]*", "vllm/[!a]*/*.py", "vllm/odd/lin?s.py", "vllm/a b/*", "vllm/*/.x.py"),
    ("vllm/config/", "vllm/config/model.py/x"),
)
PATTERNS = (
    word("Qwen3_5MoeForCausalLM"),
    "^class A[(: ]",
    r"^ *(/|\.)",
    r"x\[b\]$",
    "[[:space:]]+x",
    "^$",
    "same",
    r"""(model_type[^=]*=|_CONFIG_REGISTRY\[) *["']llama["']""",
    "[^a-z =1]",
    "cla{1}s+ A:",
    "é",
    "1.?$",
)


@pytest.mark.parametrize("way", WAYS)
def test_every_view_answers_as_a_folder_does(tmp_path, way):
    expected, view = folder(tmp_path), made(way, tmp_path)

    async def compare() -> None:
        for globs in GLOBS:
            assert await view.find(*globs) == tuple(dict.fromkeys(await expected.find(*globs))), globs
        for pattern in PATTERNS:
            globs = ("*.pth", "vllm/*/*.py", "vllm/*/*/*.py", "transformers/*/*/*.py")
            found, wanted = await view.search(pattern, *globs), await expected.search(pattern, *globs)
            assert found.files == wanted.files > 5
            assert sorted(found.hits, key=str) == sorted(wanted.hits, key=str), pattern
        assert (await view.search("x", "none/*.py")).files == 0

    asyncio.run(compare())


@pytest.mark.parametrize("way", WAYS)
def test_strings_of_libraries_are_those_that_grep_finds(tmp_path, way):
    expected, view = folder(tmp_path), made(way, tmp_path, "xllamacpp")

    async def compare() -> None:
        for pattern in ("^(qwen35moe|[0-9]+llama_model_x|llama)$", "qwen2$", "^qwen2$", "^two words$", "ELF"):
            wanted = await expected.words(pattern, "xllamacpp/*.so*", "none/*.so")
            assert await view.words(pattern, "xllamacpp/*.so*", "none/*.so") == wanted, pattern
        assert wanted.files == 1

    asyncio.run(compare())


@pytest.mark.parametrize("way", WAYS)
def test_the_report_is_right_through_every_view(tmp_path, way):
    view = made(way, tmp_path)
    found = report(view, Q35_TEXT)
    assert (found.label, found.overall.word) == ("vLLM 0.32.0", Word.YES)
    assert finding(found, "a", datetime.now(UTC)).release == "0.32.0"
    assert found.questions["architecture"].seen[0].text.startswith('"Qwen3_5MoeForCausalLM"')
    assert view.bytes_read > 1000
    assert view.root.startswith(str(tmp_path)) or way.startswith("pipe")
    if "wheel" not in way:
        assert view.root.endswith(f":/{SITE}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("model", "word"), [(Q35, Word.YES), (NEXT, Word.YES), (GLM, Word.YES), (LLAMA, Word.YES), (NOBODY, Word.NO)]
)
def test_each_model_through_each_view(tmp_path, way, model, word):
    assert report(made(way, tmp_path), model).overall.word is word
