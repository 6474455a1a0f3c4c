"""Real libraries of released wheels: what the reader finds is what NVIDIA's cuobjdump finds.

Some 120 MB are downloaded once, into $XDG_CACHE_HOME/bascule-tests or ~/.cache/bascule-tests.
"""

import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from bascule.probe.kernels.fatbin import read_library

pytestmark = pytest.mark.slow

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bascule-tests"
# aarch64 and x86_64; CUDA 11.8 to 13.2; stored, LZ4 and zstd; cubins of all suffixes and PTX.
WHEELS = {
    "bitsandbytes==0.50.2": ("manylinux_2_24_aarch64", "bitsandbytes/*.so"),
    "lmdeploy==0.14.0": ("manylinux2014_x86_64", "lmdeploy/lib/*.so"),
}


def pip(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the download was refused: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


@pytest.fixture(scope="module")
def cuobjdump() -> Path:
    folder = CACHE / "cuobjdump"
    if not list(folder.glob("nvidia/*/bin/cuobjdump")):
        pip("install", "--quiet", "--no-deps", "--target", str(folder), "nvidia-cuda-cuobjdump==13.*")
    return next(folder.glob("nvidia/*/bin/cuobjdump"))


def unpacked(wheel: str) -> list[Path]:
    platform, glob = WHEELS[wheel]
    folder = CACHE / wheel
    if not folder.exists():
        words = ("--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.12", "--platform", platform)
        pip("download", *words, "--dest", str(CACHE / "wheels"), wheel)
        (file,) = (CACHE / "wheels").glob(f"{wheel.replace('==', '-')}-*.whl")
        making = folder.with_name(f"{folder.name}.{os.getpid()}")
        with zipfile.ZipFile(file) as archive:
            archive.extractall(making, [name for name in archive.namelist() if Path(name).match(glob)])
        making.rename(folder)
    return sorted(folder.glob(glob))


def listed(cuobjdump: Path, library: Path) -> Counter[tuple[str, str]] | None:
    """What cuobjdump lists: kind and architecture of each entry; None when it can't read the library."""
    words = [cuobjdump, "--list-elf", "--list-ptx", library]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "fatal" in done.stderr:
        return None
    return Counter(re.findall(r"^(ELF|PTX) file +\d+: .*\.(sm_\w+)\.(?:cubin|ptx)$", done.stdout, re.MULTILINE))


def found(library: Path) -> Counter[tuple[str, str]]:
    """The same by our reader; cuobjdump leaves out the suffix f."""
    with library.open("rb") as file:
        read = read_library(library.name, file, library.stat().st_size)
    assert read.trouble == ""
    kinds = {"cubin": "ELF", "ptx": "PTX"}
    codes = (code for binary in read.binaries for code in binary.codes)
    return Counter((kinds[code.kind], f"sm_{code.sm}{code.suffix.replace('f', '')}") for code in codes)


@pytest.mark.parametrize("wheel", WHEELS)
def test_every_library_is_read_as_cuobjdump_reads_it(wheel, cuobjdump):
    libraries = unpacked(wheel)
    ours = {path.name: found(path) for path in libraries}
    theirs = {path.name: listed(cuobjdump, path) for path in libraries}
    refused = {name for name, counts in theirs.items() if counts is None}
    assert refused <= {"libbitsandbytes_cuda121.so"}  # cuobjdump 13.5 says "Invalid ELF" of it
    assert sum(counts.total() for counts in ours.values()) > 20
    assert {name: counts for name, counts in ours.items() if name not in refused} == {
        name: counts for name, counts in theirs.items() if name not in refused
    }


def test_names_of_kernels_are_those_of_the_library():
    (turbomind,) = (path for path in unpacked("lmdeploy==0.14.0") if path.name.startswith("_turbomind"))
    with turbomind.open("rb") as file:
        read = read_library(turbomind.name, file, turbomind.stat().st_size)
    names = [name for binary in read.binaries for name in binary.kernels]
    assert len(names) > 100
    assert all(re.fullmatch(r"_Z\w+|\w+", name) for name in names)
    assert any("turbomind" in name for name in names)
