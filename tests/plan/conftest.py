"""Two hosts with a dockerd each, engines on both, and the model and an image on the first one alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bascule.lab import hosts
from bascule.lab.spec import USERS, Lab
from candidates.conftest import hub, real  # noqa: F401 - fixtures
from candidates.installed import install
from lab_parts import lab_of
from probe_views.views_cases import digest, files_of, layer, saved, under

ROOT = Path(__file__).parents[2]
BASCULE = Path(sys.executable).with_name("bascule")
NAME, NET = "plantest", 81
HOME = "/home/op"
MODEL, ENGINE = f"{HOME}/models/adder", f"{HOME}/engines/new"
NEW = ("vllm-0.32.0", "transformers-5.19.0")


@dataclass
class Bench:
    """The lab, and the command as its controller calls it."""

    lab: Lab
    state: Path

    def home(self, number: int) -> Path:
        return self.lab.host_folder(self.lab.hosts[number - 1]) / HOME.lstrip("/")

    def inside(self, number: int, *words: str, data: bytes = b"") -> str:
        words = hosts.inside(self.lab.hosts[number - 1], words)
        return subprocess.run(words, input=data, capture_output=True, check=True).stdout.decode().strip()

    def run(self, *words: str | Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "XDG_STATE_HOME": str(self.state),
            "BASCULE_SSH": f"ssh -F {self.lab.folder}/ssh_config",
            "NO_COLOR": "1",
        }
        argv = [str(word) for word in (BASCULE, *words)]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def recipe(self, *candidates: str, extra: str = "") -> Path:
        """Both hosts over the fabric, h1 first."""
        nodes = "".join(f"  - {{name: {one.name}, address: {one.address('fabric')}}}\n" for one in self.lab.hosts)
        rows = "".join(f"  - {{{row}}}\n" for row in candidates)
        path = self.state / "recipe.yaml"
        path.write_text(f"service: adder\nmodel: {MODEL}\n{extra}nodes:\n{nodes}candidates:\n{rows}")
        return path

    def planned(self, *candidates: str) -> dict:
        return json.loads(self.run("plan", self.recipe(*candidates), "--json").stdout)


@pytest.fixture(scope="package")
def filled(tmp_path_factory):
    with lab_of(tmp_path_factory, NAME, 2, NET) as made:
        bench = Bench(made, tmp_path_factory.mktemp("unused"))
        for number in (1, 2):
            install(bench.home(number) / "engines/new", *NEW)
        shutil.copytree(ROOT / "models/adder", bench.home(1) / "models/adder")
        for number in (1, 2):
            own(bench.home(number))
        load(bench, "engine-image:1", layer(under(files_of(*NEW))))
        yield made


@pytest.fixture
def bench(filled, tmp_path):
    return Bench(filled, tmp_path)


def own(folder: Path) -> None:
    uid = USERS["op"]
    for place, _, names in os.walk(folder):
        for name in (".", *names):
            os.lchown(f"{place}/{name}", uid, uid)


def load(bench: Bench, tag: str, whole: bytes) -> None:
    """An image of one layer, on h1."""
    root = {"type": "layers", "diff_ids": [digest(whole)]}
    config = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sh"]}, "rootfs": root}
    bench.inside(1, "docker", "load", data=saved([whole], newer=False, config=json.dumps(config).encode()))
    bench.inside(1, "docker", "tag", "engine:1", tag)
