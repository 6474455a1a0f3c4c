"""An engine in a folder of packages and its PyTorch among the interpreter's own: both are read, in Python's order."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bascule.core.machine import Gpu, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Fate, Finding, Node
from bascule.core.reading import Unreadable
from bascule.probe.gather import probe
from bascule.probe.views.folder import FolderView
from bascule.probe.views.path import PathView, open_path
from bascule.remote.local import LocalRunner
from probe.probe_cases import FILES, NOW, Q35
from probe_kernels.elf_maker import library, simple

GOOD = library(simple("sm_90"))
HERE = LocalRunner(Node("h1", "local"))


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture
def both(tmp_path: Path) -> PathView:
    first = write(
        tmp_path / "first",
        {
            "engine/__init__.py": b"first",
            "both/one.txt": b"first",
            "Six_Seven-1.dist-info/METADATA": b"first",
            "lone.py": b"",
        },
    )
    second = write(
        tmp_path / "second",
        {
            "engine/__init__.py": b"second",
            "engine/only.py": b"needle",
            "both/one.txt": b"second",
            "both/two.txt": b"needle",
            "six-seven-2.dist-info/METADATA": b"second",
            "lone.py": b"needle",
            "torch/version.py": b"needle",
        },
    )
    return PathView([FolderView(HERE, str(first)), FolderView(HERE, str(second))])


def test_a_package_is_of_the_first_folder_and_none_of_it_of_the_second(both: PathView) -> None:
    async def read(*paths: str) -> list[bytes | None]:
        return [await both.read(path) for path in paths]

    assert asyncio.run(read("engine/__init__.py", "engine/only.py", "torch/version.py")) == [b"first", None, b"needle"]
    assert asyncio.run(read("both/one.txt", "both/two.txt")) == [b"first", b"needle"], "without __init__ they add up"
    assert asyncio.run(both.find("*.dist-info", "*/version.py", "engine/*")) == (
        "Six_Seven-1.dist-info",
        "engine/__init__.py",
        "torch/version.py",
    )
    found = asyncio.run(both.search("needle", "*/*.py", "*/*.txt", "*.py"))
    assert {hit.path for hit in found.hits} == {"torch/version.py", "both/two.txt"}
    assert both.bytes_read > 0


def interpreter(folder: Path, site: Path) -> str:
    """A Python with packages of its own in a folder, by a path file as an environment has them."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site}:/nowhere exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_the_interpreter_says_where_it_has_packages(tmp_path: Path) -> None:
    site = write(tmp_path / "site", {"torch/__init__.py": b"x"})
    first = write(tmp_path / "first", {"a/__init__.py": b""})
    view = asyncio.run(open_path(HERE, FolderView(HERE, str(first)), interpreter(tmp_path, site)))
    assert isinstance(view, PathView)
    assert [one.root for one in view.views] == [str(first), str(site)]
    assert asyncio.run(view.read("torch/__init__.py")) == b"x"
    assert asyncio.run(view.read("os.py")) is None, "what Python brings itself is no package"
    with pytest.raises(Unreadable, match="could not be asked"):
        asyncio.run(open_path(HERE, FolderView(HERE, str(first)), str(tmp_path / "no-python")))


def probed(tmp_path: Path, torch: dict[str, bytes], python: str = "") -> Finding:
    """vLLM in a folder; PyTorch beside its interpreter or not at all."""
    folder, site = tmp_path / "site-vllm", write(tmp_path / "site", {"x.py": b"", **torch})
    for name in ("vllm-0.32.0", "transformers-5.19.0"):
        for file in (FILES / name).rglob("*.txt"):
            write(folder, {str(file.relative_to(FILES / name).with_suffix("")): file.read_bytes()})
    write(folder, {f"vllm/{name}.abi3.so": GOOD for name in ("_C", "_moe_C")})
    candidate = Candidate("c", "vllm", Artefact("venv", str(folder), python or interpreter(tmp_path, site)), "/m")
    node = Node("h1", "local", facts=NodeFacts(gpus=(Gpu(0, "NVIDIA H200", "sm_90"),)))
    return asyncio.run(probe(candidate, Q35, HERE, node, lambda: NOW))


def test_a_pytorch_of_the_interpreter_is_found(tmp_path: Path) -> None:
    finding = probed(tmp_path, {"torch/lib/libtorch_cuda.so": GOOD, "torch/version.py": b"cuda = '13.0'\n"})
    assert (finding.fate, finding.code) == (Fate.OK, "architecture-known")


def test_a_pytorch_of_the_interpreter_without_code_for_the_gpu_is_a_no(tmp_path: Path) -> None:
    finding = probed(tmp_path, {"torch/lib/libtorch_cuda.so": library(simple("sm_120"))})
    assert (finding.fate, finding.code) == (Fate.HOPELESS, "kernels-missing")
    assert finding.evidence[0].source == f"{tmp_path}/site/torch/lib/libtorch_cuda.so", "it is told where"


def test_a_pytorch_that_is_nowhere_leaves_the_kernels_open_and_what_is_known_said(tmp_path: Path) -> None:
    finding = probed(tmp_path, {})
    assert finding.fate is Fate.UNKNOWN
    open_, _, known = finding.says.partition("; ")
    assert open_ == "whether vLLM 0.32.0 has code for sm_90 could not be told: PyTorch's kernels are not there"
    assert known.startswith("vLLM 0.32.0 knows Qwen3_5MoeForConditionalGeneration")


def test_an_interpreter_that_is_not_there_leaves_everything_open(tmp_path: Path) -> None:
    finding = probed(tmp_path, {}, python="/no/python3")
    assert finding.fate is Fate.UNKNOWN and "/no/python3 has packages of its own could not be asked" in finding.says
