"""Real folders with real (trimmed) engine files, and the probe run on them through the LocalRunner."""

import asyncio
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bascule.core.nouns import Artefact, Candidate, Finding, Model, Node, Setting
from bascule.probe.gather import probe
from bascule.probe.packages import installed
from bascule.probe.readers import READERS
from bascule.probe.verdict import Question, Report, judge
from bascule.probe.views.folder import FolderView
from bascule.remote.local import LocalRunner
from probe.probe_cases import FILES, NOW


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """Put trimmed distributions side by side into a plain folder, or into a venv."""

    def into(*names: str, venv: bool = False) -> Path:
        top = tmp_path / "env with a space"
        root = top / "lib/python3.11/site-packages" if venv else top
        root.mkdir(parents=True)
        for name in names:
            for file in (FILES / name).rglob("*.txt"):
                place = root / file.relative_to(FILES / name).with_suffix("")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
        return top

    return into


@pytest.fixture
def ask() -> Callable[..., Finding]:
    """Run the probe."""

    def run(engine: str, ref: Path | str, model: Model, path: str = "/m", settings=(), runner=None) -> Finding:
        candidate = Candidate(
            "c", engine, Artefact("venv", str(ref)), path, tuple(Setting("flag", n, "") for n in settings)
        )
        runner = runner or LocalRunner(Node("h1", "local"))
        return asyncio.run(probe(candidate, model, runner, Node("h1", "local"), lambda: NOW))

    return run


@pytest.fixture
def report() -> Callable[..., Report]:
    """What a reader and the policy make of a folder of packages."""

    def run(engine: str, root: Path, model: Model, settings=(), nodes=(), gpu="") -> Report:
        candidate = Candidate("c", engine, Artefact("venv", str(root)), "/m", tuple(settings), tuple(nodes))
        return asyncio.run(_report(engine, root, Question(candidate, model, gpu=gpu)))

    return run


async def _report(engine: str, root: Path, question: Question) -> Report:
    reader, view = READERS[engine], FolderView(LocalRunner(Node("h1", "local")), str(root))
    package = await installed(view, reader.distributions)
    label = f"{reader.title} {package.version}" if package else reader.title
    question = dataclasses.replace(question, label=label)
    return judge(question, await reader.look(view, question, package))
