"""Engine images for a lab, built from Debian and from engine environments: layers repeat between images as in life."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bascule.errors import BasculeError
from bascule.lab.hosts import inside
from bascule.lab.spec import Host

SUITE = "bookworm"  # its python3 is 3.11, for which the engine environments are made
PACKAGES = (
    "python3-minimal", "libpython3-stdlib", "libgomp1", "libstdc++6", "libnuma1", "iproute2", "procps",
)  # fmt: skip
SITE = "usr/local/lib/python3.11/dist-packages"
# Left out of every layer: what no start needs.
IGNORED = ("__pycache__", "pip", "pip-*", "torch/test", "torch/include", "torch/share")
MIDDLE = ("torch", "torch-*", "torchgen", "functorch", "numpy", "numpy-*", "numpy.libs", "sympy", "sympy-*")


@dataclass(frozen=True, slots=True)
class Layer:
    """A tar of an image, by its name in the cache; members are globs in the environment's packages."""

    name: str
    members: tuple[str, ...]
    without: tuple[str, ...] = ()


def base_layer(cache: Path) -> Path:
    """A slim Debian with Python as a tar, made once. Raises BasculeError."""
    path = cache / f"base-{SUITE}.tar"
    if not path.exists():
        if not shutil.which("mmdebstrap"):
            raise BasculeError("lab-needs-tools", "not installed: mmdebstrap", advice="apt-get install mmdebstrap")
        cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.tar")
        _run(("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(part)))
        part.rename(path)
    return path


def build(host: Host, folder: Path, environment: Path, tag: str, base: Path) -> None:
    """Build an image on a host: base, what many engines share, the engine; from a Python environment here.

    folder is the host's own folder, which it sees as /run/host.
    """
    context = folder / "build"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir()
    try:
        os.link(base, context / "base.tar")
    except OSError:
        shutil.copy(base, context / "base.tar")
    layers = list(layers_of(environment))
    for layer in layers:
        _pack(environment, layer, context / f"{layer.name}.tar")
    (context / "Dockerfile").write_text(dockerfile([layer.name for layer in layers]))
    _run(inside(host, ("docker", "build", "--quiet", "--tag", tag, "/run/host/build")))
    shutil.rmtree(context)


def layers_of(environment: Path) -> Iterator[Layer]:
    """The layers above the base, shared ones first."""
    packages = _packages(environment)
    if (packages / "torch").exists():
        yield Layer("middle", MIDDLE)
        yield Layer("engine", ("*",), (*MIDDLE,))
    else:
        yield Layer("engine", ("*",))


def dockerfile(layers: Sequence[str]) -> str:
    """The recipe of the image; its first process is what it is told to run."""
    adds = "".join(f"ADD {name}.tar /\n" for name in ("base", *layers))
    return f"FROM scratch\n{adds}ENV HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1\n"


def _packages(environment: Path) -> Path:
    found = sorted(environment.glob("lib/python3.11/site-packages"))
    if not found:
        raise BasculeError("lab-environment", f"{environment} is no environment of Python 3.11", advice="make engines")
    return found[0]


def _pack(environment: Path, layer: Layer, to: Path) -> None:
    """Tar the members, sorted and without times, so that an unchanged layer keeps its digest."""
    packages = _packages(environment)
    wanted = sorted({path.name for glob in layer.members for path in packages.glob(glob)})
    left_out = {path.name for glob in layer.without for path in packages.glob(glob)}
    members = [name for name in wanted if name not in left_out]
    excludes = [f"--exclude={pattern}" for pattern in IGNORED]
    same = ("--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner")
    _run(("tar", "-C", str(packages), "-cf", str(to), *same, *excludes, f"--transform=s,^,{SITE}/,S", *members))


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BasculeError("lab-command", f"`{' '.join(command)[:200]}` failed", seen=done.stderr.strip()[-400:])
