"""engines/build.py: which torch it accepts, when it builds anew, and what it leaves behind when it fails."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "engines" / "build.py"
X86 = {"platform_system": "Linux", "platform_machine": "x86_64", "python_version": "3.11"}
ARM = {**X86, "platform_machine": "aarch64"}
PLAIN = ["filelock", 'optree>=0.13.0; extra == "optree"']
# As PyPI's torch 2.13.0 for Linux says it.
CUDA = [
    *PLAIN,
    'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"',
    'cuda-bindings<14,>=13.0.3; platform_system == "Linux" and python_version < "3.15"',
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"',
    'triton==3.7.1; platform_system == "Linux" and python_version < "3.15"',
]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("engines_build", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses looks its module up
    spec.loader.exec_module(module)
    return module


build = _load()


def report(version: str, file: str, needs: list[str], machine: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "torch", "version": version, "requires_dist": needs}
    item = {"download_info": {"url": f"https://index.example/packages/{file}"}, "metadata": metadata}
    return {"version": "1", "install": [item], "environment": machine}


def wheel(version: str, machine: str = "x86_64") -> str:
    return f"torch-{version}-cp311-cp311-manylinux_2_28_{machine}.whl"


@pytest.mark.parametrize(
    ("version", "file", "needs", "machine"),
    [
        pytest.param("2.13.0+cpu", wheel("2.13.0%2Bcpu"), PLAIN, X86, id="cpu in version and file"),
        pytest.param("2.13.0", wheel("2.13.0%2Bcpu"), PLAIN, X86, id="cpu in the file name only"),
        pytest.param("2.13.0+cpu", "", CUDA, X86, id="cpu in the version wins"),
        pytest.param("2.13.0", wheel("2.13.0", "aarch64"), PLAIN, ARM, id="aarch64 without CUDA"),
        pytest.param(
            "2.13.0",
            wheel("2.13.0", "aarch64"),
            ['nvidia-nccl-cu13==2.29.7; platform_system == "Linux" and platform_machine == "x86_64"'],
            ARM,
            id="CUDA for another machine",
        ),
        pytest.param(
            "2.13.0", "torch.whl", ["nvidia-x; platform_system == 'Linux'"], {"platform_system": "Darwin"}, id="macOS"
        ),
    ],
)
def test_a_cpu_build_is_accepted(version: str, file: str, needs: list[str], machine: dict[str, str]) -> None:
    assert build.why_not_cpu(report(version, file, needs, machine)) == ""


@pytest.mark.parametrize(
    ("version", "needs", "machine", "says"),
    [
        pytest.param(
            "2.13.0", CUDA, X86, "needs cuda-toolkit, cuda-bindings, nvidia-cudnn-cu13 and 1 more", id="PyPI x86_64"
        ),
        pytest.param("2.13.0", CUDA, ARM, "needs cuda-toolkit", id="PyPI aarch64 with CUDA"),
        pytest.param("2.13.0+cu130", [], X86, "build cu130", id="local version cu130"),
        pytest.param("2.13.0+rocm7.1", [], X86, "build rocm7.1", id="local version rocm"),
        pytest.param(
            "2.13.0", ['nvidia-y; sys_platform < "x" or extra == "y"'], X86, "nvidia-y", id="a marker beyond us counts"
        ),
    ],
)
def test_another_build_is_refused(version: str, needs: list[str], machine: dict[str, str], says: str) -> None:
    assert says in build.why_not_cpu(report(version, wheel(version), needs, machine))


def test_a_report_without_torch_is_refused() -> None:
    assert build.why_not_cpu({"install": []}) == "pip's report names no torch"


def test_the_refusal_tells_what_to_set() -> None:
    with pytest.raises(build.BuildError) as caught:
        build.check_torch("torch==2.13.0", report("2.13.0", wheel("2.13.0"), CUDA, X86))
    assert caught.value.code == "cuda-torch"
    assert "torch-2.13.0-cp311" in caught.value.seen
    assert "BASCULE_TORCH_INDEX" in caught.value.advice


def test_the_index_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASCULE_TORCH_INDEX", "https://index.example/cpu")
    assert build.torch_index() == ("--extra-index-url", "https://index.example/cpu")
    monkeypatch.setenv("BASCULE_TORCH_INDEX", "")
    assert build.torch_index() == ()


def test_a_disk_that_is_too_small_is_named(tmp_path: Path) -> None:
    build.check_space(3000, 3_000_000_000, tmp_path)
    with pytest.raises(build.BuildError, match=r"takes 3\.0 GB and .* has 2\.9 GB free"):
        build.check_space(3000, 2_900_000_000, tmp_path)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A recipe whose filling only leaves the mark of an environment."""

    def fill(_recipe: Any, home: Path) -> None:
        (home / "bin").mkdir(parents=True)
        (home / "bin/python").symlink_to(sys.executable)
        (home / "pyvenv.cfg").touch()

    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(build, "_fill", fill)
    monkeypatch.setattr(build, "_check_python", lambda _version: None)
    (tmp_path / "tiny.txt").write_text("tiny==1\n")
    return build.Recipe("tiny", 1, ())


def test_what_is_built_is_not_built_again(recipe: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build.build_all([recipe], tmp_path / "into")
    (tmp_path / "into/tiny/kept").touch()
    build.build_all([recipe], tmp_path / "into")
    assert (tmp_path / "into/tiny/kept").exists()
    assert "tiny: there already" in capsys.readouterr().err


def test_new_pins_or_a_new_place_build_again(recipe: Any, tmp_path: Path) -> None:
    home = tmp_path / "into/tiny"
    build.build_all([recipe], home.parent)
    moved = home.rename(tmp_path / "moved")
    assert not build.is_built(recipe, moved)
    moved.rename(home)
    assert build.is_built(recipe, home)
    recipe.pins.write_text("tiny==2\n")
    assert not build.is_built(recipe, home)


def test_a_python_that_is_gone_builds_again(recipe: Any, tmp_path: Path) -> None:
    home = tmp_path / "into/tiny"
    build.build_all([recipe], home.parent)
    (home / "bin/python").unlink()
    (home / "bin/python").symlink_to(tmp_path / "removed")
    assert not build.is_built(recipe, home)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, build.BuildError("pip-failed", "no network")])
def test_a_stopped_build_leaves_nothing(recipe: Any, tmp_path: Path, monkeypatch: Any, stop: Any) -> None:
    home = tmp_path / "into/tiny"
    build.build_all([recipe], home.parent)
    recipe.pins.write_text("tiny==2\n")

    def half(_recipe: Any, home: Path) -> None:
        home.mkdir()
        (home / "pyvenv.cfg").touch()
        raise stop

    monkeypatch.setattr(build, "_fill", half)
    with pytest.raises(type(stop) if isinstance(stop, Exception) else stop):
        build.build_all([recipe], home.parent)
    assert not home.exists()


def test_a_folder_of_someone_else_is_left_alone(recipe: Any, tmp_path: Path) -> None:
    other = tmp_path / "into/tiny"
    other.mkdir(parents=True)
    (other / "thesis.txt").touch()
    with pytest.raises(build.BuildError, match="is no Python environment"):
        build.build_all([recipe], tmp_path / "into")
    assert (other / "thesis.txt").exists()


def test_another_python_is_refused() -> None:
    with pytest.raises(build.BuildError, match=r"for Python 3\.11 and this is 3\.13"):
        build._check_python((3, 13))


def test_a_failed_command_shows_its_last_lines() -> None:
    argv = [sys.executable, "-c", "import sys; print('one'); sys.exit('no route to index')"]
    with pytest.raises(build.BuildError) as caught:
        build.call(argv, "pip-failed", "look at the network")
    assert caught.value.code == "pip-failed"
    assert caught.value.seen == "one\nno route to index"


def test_the_alias_is_a_wheel_that_python_understands(tmp_path: Path) -> None:
    path = build.write_alias(tmp_path, "vllm", "0.32.0+cpu")
    assert path.name == "vllm-0.32.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "site")
    ask = "import importlib.metadata as m, json; d = m.distribution('vllm')"
    ask += "; print(json.dumps([d.version, [str(f) for f in d.files]]))"
    done = subprocess.run(
        [sys.executable, "-c", ask], env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, check=True
    )
    version, files = json.loads(done.stdout)
    assert version == "0.32.0+cpu"
    assert [Path(file).name for file in files] == ["METADATA", "WHEEL", "RECORD"]


def test_an_unknown_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build.main(["vllm-9"])
    assert caught.value.code == 2
    assert "no engine named vllm-9; there are vllm-0.32.0, vllm-0.14.0, llamacpp" in capsys.readouterr().err


def test_every_recipe_has_exact_pins() -> None:
    for recipe in build.RECIPES:
        lines = recipe.pins.read_text().splitlines()
        assert lines, recipe.name
        assert all("==" in line for line in lines), recipe.name
