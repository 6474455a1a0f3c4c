"""Every node holds the engine and the same model, or the start is not made: a rank that lacks a file fails late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bascule.core.nouns import Artefact, Candidate, Fate, Finding, Node, Step
from bascule.distribute.present import Holding, check, compare
from bascule.remote.local import LocalRunner
from bascule.remote.runner import Result

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class Elsewhere:
    """A node whose root is a folder of this machine: the same path means another place on each node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inner = LocalRunner(Node("here", "local"))

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        words = [word.replace("ROOT", str(self.root)) for word in argv]
        result = await self.inner.run(words, stdin=stdin, within=within)
        return replace(result, stdout=result.stdout.replace(str(self.root).encode(), b"ROOT"))


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """Two machines that hold the same engine and model."""
    for name in ("a", "b"):
        (tmp_path / name / "opt/vllm").mkdir(parents=True)
        model = tmp_path / name / "my models/q"
        model.mkdir(parents=True)
        (model / "config.json").write_text('{"a": 1}')
        (model / "model 1.safetensors").write_bytes(b"12345")
    return tmp_path / "a", tmp_path / "b"


def found(roots: tuple[Path, Path], model: str = "ROOT/my models/q") -> Finding:
    candidate = Candidate("c", "vllm", Artefact("venv", "ROOT/opt/vllm"), model)
    nodes = [Node("a", "local"), Node("b", "local")]
    runners = dict(zip("ab", map(Elsewhere, roots), strict=True))
    return asyncio.run(check(candidate, nodes, runners))


def test_two_nodes_that_hold_the_same(roots: tuple[Path, Path]) -> None:
    finding = found(roots)
    assert (finding.step, finding.fate, finding.code) == (Step.DISTRIBUTE, Fate.OK, "all-there")
    lines = finding.evidence[0].excerpt.splitlines()
    assert lines[:2] == ["8 ./config.json", "5 ./model 1.safetensors"]
    assert lines[2].endswith(" 8 config.json"), "its checksum"


def no_engine(root: Path) -> None:
    (root / "opt/vllm").rmdir()


def no_model(root: Path) -> None:
    (root / "my models/q").rename(root / "elsewhere")


def a_file_less(root: Path) -> None:
    (root / "my models/q/model 1.safetensors").unlink()


def a_file_cut_short(root: Path) -> None:
    (root / "my models/q/model 1.safetensors").write_bytes(b"1234")


def a_file_of_another_name(root: Path) -> None:
    (root / "my models/q/model 1.safetensors").rename(root / "my models/q/other 1.safetensors")


def another_config_of_the_same_size(root: Path) -> None:
    (root / "my models/q/config.json").write_text('{"a": 2}')


def a_link_that_leads_nowhere(root: Path) -> None:
    a_file_less(root)
    (root / "my models/q/model 1.safetensors").symlink_to("/nowhere")


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (no_engine, "artefact-missing", "b has no ROOT/opt/vllm"),
        (no_model, "weights-missing", "b has no model at ROOT/my models/q"),
        (a_file_less, "weights-differ", "the model differs between a and b: 5 ./model 1.safetensors"),
        (a_file_cut_short, "weights-differ", "the model differs between a and b: 4 ./model 1.safetensors"),
        (a_file_of_another_name, "weights-differ", "the model differs between a and b: 5 ./model 1.safetensors"),
        (another_config_of_the_same_size, "weights-differ", "8 config.json"),
        (a_link_that_leads_nowhere, "weights-differ", "5 ./model 1.safetensors"),
    ],
)
@pytest.mark.parametrize("damaged", ["a", "b"])
def test_each_difference_is_told(
    roots: tuple[Path, Path], damage: Callable[[Path], None], code: str, words: str, damaged: str
) -> None:
    damage(roots["ab".index(damaged)])
    finding = found(roots)
    assert (finding.fate, finding.code) == (Fate.HOPELESS, code)
    if damaged == "b" or code.endswith("missing"):
        assert words.replace("b has", f"{damaged} has") in finding.says


def test_a_link_to_the_weights_is_as_good_as_the_weights(roots: tuple[Path, Path]) -> None:
    weights = roots[1] / "my models/q/model 1.safetensors"
    weights.rename(roots[1] / "blob")
    weights.symlink_to("../../blob")
    assert found(roots).fate is Fate.OK


def test_what_a_download_left_behind_does_not_matter(roots: tuple[Path, Path]) -> None:
    left = roots[0] / "my models/q/.cache/huggingface"
    left.mkdir(parents=True)
    (left / "x.metadata").write_text("2026-11-30")
    assert found(roots).fate is Fate.OK


def test_a_model_that_is_one_file(roots: tuple[Path, Path]) -> None:
    for root in roots:
        (root / "q.gguf").write_bytes(b"GGUF")
    assert found(roots, "ROOT/q.gguf").fate is Fate.OK
    (roots[1] / "q.gguf").write_bytes(b"GGU")
    assert found(roots, "ROOT/q.gguf").says == "the model differs between a and b: 3 ROOT/q.gguf"
    (roots[1] / "q.gguf").unlink()
    assert found(roots, "ROOT/q.gguf").says == "b has no model at ROOT/q.gguf"


CANDIDATE = Candidate("c", "vllm", Artefact("venv", "/v"), "/m")


def test_the_order_of_a_listing_does_not_matter() -> None:
    holdings = [Holding("a", True, ("1 x", "2 y")), Holding("b", True, ("2 y", "1 x"))]
    assert compare(CANDIDATE, holdings, NOW).fate is Fate.OK


@dataclass
class Hanging:
    """A node whose file system doesn't answer."""

    status: int
    complaint: bytes

    async def run(self, argv: Sequence[str], *, stdin: str = "", within: float = 30) -> Result:
        return Result(tuple(argv), self.status, b"artefact yes\n", self.complaint)


@pytest.mark.parametrize(
    ("status", "complaint", "why"),
    [(124, b"", "it took more than 60 s"), (2, b"find: Stale file handle\n", "find: Stale file handle")],
)
def test_what_could_not_be_read_is_no_no(status: int, complaint: bytes, why: str) -> None:
    finding = asyncio.run(check(CANDIDATE, [Node("a", "a")], {"a": Hanging(status, complaint)}))
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "weights-unread")
    assert finding.says == f"what a holds could not be read: {why}"
