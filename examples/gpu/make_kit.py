#!/usr/bin/env python3
"""Packs an engine for a GPU machine that has torch and reaches no package index, in parts that can be carried.

usage: make_kit.py NAME --have FILE --into FOLDER     NAME: a table of kits.toml; needs uv, tar, xz and split

FILE lists the packages that are there already, a name a line (`pip list --format=freeze` there gives them). On the
machine: `cat part.* | xz -dc -T0 | tar xf - -C SITE`, and SITE is a recipe's `pythonpath`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLATFORM = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_34")


def main(words: Sequence[str] | None = None) -> int:
    """Resolve, leave out, install, pack; prints the size of each part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name")
    parser.add_argument("--have", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--part", type=int, default=50, help="MiB of a part")
    parser.add_argument("--level", type=int, default=6, help="of xz")
    parser.add_argument("--uv", default="uv")
    options = parser.parse_args(words)
    kits = tomllib.loads((HERE / "kits.toml").read_text())
    kit, left_out = kits[options.name], kits["left_out"]
    there = {normal(re.split("[=<>@ ]", line)[0]) for line in options.have.read_text().splitlines() if line.strip()}
    with tempfile.TemporaryDirectory(dir=options.into.parent) as folder:
        site = Path(folder) / "site"
        pins = chosen(resolved(kit["requires"], options.uv), there, left_out["packages"], kit.get("more", ()))
        install(pins, site, options.uv)
        thin_out(site, left_out["files"])
        pack(site, options.into, options.part, options.level)
    for part in sorted(options.into.glob("part.*")):
        print(f"{part}  {part.stat().st_size / 2**20:.1f} MiB")
    return 0


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower().strip()


def resolved(requires: Sequence[str], uv: str) -> list[str]:
    """Pins of these and all that they need, for the machine's Python."""
    words = (uv, "pip", "compile", "-q", *PLATFORM, "--no-header", "--no-annotate", "-")
    done = subprocess.run(words, input="\n".join(requires), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error[kit-unresolved]: {' '.join(requires)}\n  seen: {done.stderr.strip()[-600:]}")
    return done.stdout.split()


def chosen(pins: Sequence[str], there: set[str], left_out: Sequence[str], more: Sequence[str]) -> list[str]:
    """The pins that must be carried: what is there or can be left out is not, `more` is in any case."""
    own = {normal(pin.partition("==")[0]) for pin in more}
    kept = [pin for pin in pins if not pin.startswith(tuple(left_out))]
    return [*(pin for pin in kept if normal(pin.partition("==")[0]) not in there | own), *more]


def install(pins: Sequence[str], site: Path, uv: str) -> None:
    """Put the wheels of these pins into a folder."""
    words = (uv, "pip", "install", "-q", "--target", str(site), *PLATFORM, "--no-deps", "--link-mode", "copy", *pins)
    subprocess.run(words, check=True)


def thin_out(site: Path, patterns: Sequence[str]) -> None:
    """Remove what is compiled anew, and the files that nobody opens there."""
    for cache in [*site.rglob("__pycache__")]:
        shutil.rmtree(cache)
    for pattern in patterns:
        for path in [*site.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def pack(site: Path, into: Path, part: int, level: int) -> None:
    """One archive in blocks, so that several cores unpack it, cut into parts; older parts are removed."""
    into.mkdir(parents=True, exist_ok=True)
    for old in into.glob("part.*"):
        old.unlink()
    script = 'set -e; tar cf - -C "$1" . | xz -T0 "-$2" | split -b "$3M" -d -a 1 - "$4/part."'
    words = ("bash", "-o", "pipefail", "-c", script, "pack", str(site), str(level), str(part), str(into))
    subprocess.run(words, check=True)


if __name__ == "__main__":
    sys.exit(main())
