"""Real engines in a wheel, an archive and a pipe: the same answers as in their folders."""

import asyncio
import tarfile
import zipfile
from pathlib import Path

import pytest

from bascule.core.nouns import Model, Node
from bascule.probe.views.archive import open_archive
from bascule.probe.views.folder import FolderView
from bascule.probe.views.wheel import open_wheel
from bascule.remote.local import LocalRunner
from probe.probe_cases import GLM, NOBODY, Q35_TEXT
from probe_views.views_cases import SITE, report

ENGINES = Path(__file__).parents[2] / ".engines"
QWEN2 = Model("/m", (), "qwen2")

pytestmark = pytest.mark.engine


def place_of(engine: str) -> Path:
    if not (ENGINES / engine).is_dir():
        pytest.skip(f"no .engines/{engine}")
    return next((ENGINES / engine).glob("lib/python3*/site-packages"))


def wanted(site: Path) -> list[Path]:
    """The engine, transformers and what each distribution says of itself; the rest has nothing that a reader asks."""
    tops = ("vllm", "transformers", "xllamacpp", "xllamacpp.libs")
    files = [file for top in tops for file in (site / top).rglob("*") if file.suffix == ".py" or ".so" in file.name]
    return [*files, *site.glob("*.dist-info/*"), *site.glob("*.pth")]


@pytest.mark.parametrize(
    ("engine", "folder", "package", "model"),
    [
        ("vllm", "vllm-0.32.0", "vllm", Q35_TEXT),
        ("vllm", "vllm-0.32.0", "vllm", NOBODY),
        ("vllm", "vllm-0.14.0", "vllm", Q35_TEXT),
        ("transformers", "vllm-0.32.0", "transformers", GLM),
        ("llamacpp", "llamacpp", "xllamacpp", QWEN2),
        ("llamacpp", "llamacpp", "xllamacpp", NOBODY),
    ],
)
@pytest.mark.parametrize("way", ["wheel", "flat"])
def test_real_engines(tmp_path, engine, folder, package, model, way):
    same_as_a_folder(tmp_path, (engine, folder, package, model), way)


def test_a_packed_archive_of_a_real_engine(tmp_path):
    same_as_a_folder(tmp_path, ("vllm", "vllm-0.14.0", "vllm", Q35_TEXT), "flat gzip")


def same_as_a_folder(tmp_path, case, way):
    engine, folder, package, model = case
    site = place_of(folder)
    files = [file for file in wanted(site) if file.is_file() and (package == "xllamacpp" or file.suffix != ".so")]
    archive = tmp_path / "archive"
    if way == "wheel":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
            for file in files:
                out.write(file, file.relative_to(site))
        view = open_wheel(archive)
    else:
        with tarfile.open(archive, "w:gz" if "gzip" in way else "w") as out:
            for file in files:
                out.add(file, f"{SITE}/{file.relative_to(site)}")
        view = open_archive(archive, package)
    expected = report(FolderView(LocalRunner(Node("h1", "local")), str(site)), model, engine)
    found = report(view, model, engine)
    assert (found.label, found.overall) == (expected.label, expected.overall)
    assert found.questions == expected.questions


def test_libraries_of_a_real_engine(tmp_path):
    site = place_of("vllm-0.32.0")
    archive = tmp_path / "archive"
    with tarfile.open(archive, "w") as out:
        for file in (site / "vllm").glob("*.so"):
            out.add(file, f"{SITE}/vllm/{file.name}")
    folder = FolderView(LocalRunner(Node("h1", "local")), str(site))

    async def both():
        return await open_archive(archive, "vllm").libraries("vllm/*.so"), await folder.libraries("vllm/*.so")

    found, expected = asyncio.run(both())
    assert found == tuple(sorted(expected, key=lambda one: one.path))
    assert len(found) > 0
