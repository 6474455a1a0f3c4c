"""What is carried to a GPU machine and what is started there: kits leave out what they may, recipes can be meant."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import time
from pathlib import Path
from types import ModuleType

import pytest

from bascule.discover.candidates import from_recipe
from bascule.engines.base import has_dummy_weights
from bascule.engines.catalogue import ENGINES
from bascule.recipe.load import load

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPES = sorted([*(EXAMPLES / "gpu").glob("*.yaml"), EXAMPLES / "qwen3.5-122b-fp8-two-h200.yaml"])


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "gpu" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_start_is_meant_for_made_up_weights_and_says_its_gpus(path: Path) -> None:
    recipe = load(path)
    candidates = from_recipe(recipe, path.parent)
    assert candidates and all(node.gpus for node in recipe.nodes)
    for one in candidates:
        assert has_dummy_weights(one, ENGINES[one.engine].lore)
        assert one.artefact.python == "python3"


def test_services_on_one_machine_do_not_meet_on_a_port() -> None:
    on_one_gpu = [load(path) for path in RECIPES if path.parent.name == "gpu"]
    ports = [port for one in on_one_gpu if one.nodes[0].host == "local" for port in (one.port, one.rendezvous_port)]
    assert len({port for port in ports if port != 29500}) == len([port for port in ports if port != 29500])


def test_a_kit_carries_what_is_not_there_and_what_must_be_another_version() -> None:
    kit = script("make_kit")
    pins = [
        "torch==2.11.0",
        "nvidia-nccl-cu13==2.28",
        "vllm==0.24.0",
        "Pillow==12.0",
        "transformers==5.24.0",
        "jiter==1",
    ]
    there = {"torch", "pillow", "transformers"}
    assert kit.chosen(pins, there, ["nvidia-"], ["py-spy==0.4.3"]) == ["vllm==0.24.0", "jiter==1", "py-spy==0.4.3"]
    told = kit.chosen(pins, there, ["nvidia-"], ["transformers==5.12.1"])
    assert told == ["vllm==0.24.0", "jiter==1", "transformers==5.12.1"]


def test_only_named_files_and_compiled_python_are_thrown_out(tmp_path: Path) -> None:
    for name in ("a/x.so", "a/y.so", "a/__pycache__/x.pyc", "b/lib/z.a", "b/lib/z.so", "c/deep/er/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    script("make_kit").thin_out(tmp_path, ["a/x.so", "b/lib/*.a", "c/deep/*", "d/nothing"])
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["a/y.so", "b/lib/z.so"]


def test_a_drill_freezes_all_of_a_rank_and_nothing_else() -> None:
    drill = script("drill")
    rank = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        until = time.monotonic() + 20
        while len(drill._session(rank.pid)) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        everyone = drill._session(rank.pid)
        assert len(everyone) == 3
        drill._signal(rank.pid, signal.SIGSTOP)
        while {_state(pid) for pid in everyone} != {"T"} and time.monotonic() < until:
            time.sleep(0.05)
        assert {_state(pid) for pid in everyone} == {"T"}
        assert _state(other.pid) != "T"
        drill._signal(rank.pid, signal.SIGKILL)
        assert rank.wait(20) == -signal.SIGKILL
    finally:
        other.kill()
        other.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rank.pid, signal.SIGKILL)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_time_of_a_token_is_summed_from_kernels() -> None:
    """Two tokens of 100 us each: a product of 30, two that overlap from 40 to 70, the choice at 80."""
    events = [{"name": "cpu", "cat": "cpu_op", "ts": 0, "dur": 1e6}]
    for at in (0, 100):
        rows = (
            ("void gemm<64>(int)", 0, 30),
            ("void norm<1>()", 40, 20),
            ("void norm<2>()", 50, 20),
            ("argmax()", 80, 10),
        )
        events += [{"name": name, "cat": "kernel", "ts": at + ts, "dur": dur} for name, ts, dur in rows]
    told = script("token_time").summed(events)
    assert (told["tokens"], told["window_ms"], told["us_a_token"], told["kernels"]) == (2, 0.2, 95.0, 4.0)
    assert told["busy"] == round(140 / 190, 3)
    assert told["heaviest"][0] == {"name": "norm", "us": 40.0, "calls": 2.0}
