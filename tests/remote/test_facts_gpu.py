"""GPUs of many kinds, drivers that are broken or old, and whose processes hold their memory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bascule.core.machine import Gpu, GpuProcess, NodeFacts
from bascule.core.nouns import Node, RankPlan
from bascule.launch.venv import VenvRuntime
from bascule.remote.facts import parse_facts, read_facts
from bascule.remote.local import LocalRunner

FACTS = Path(__file__).parents[1] / "facts"
MIB = 1024**2
ROW = "0, NVIDIA H200, GPU-a, 143771, 143155, 570.133.20, Disabled, 9.0"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
LOST = "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost."
LOST_ROW = "0, NVIDIA H200, GPU-a, [GPU is lost], [GPU is lost], 570.1, Disabled, 9.0"
ON_THE_BUS = "/sys/bus/pci/devices/0000:41:00.0"
YOUNG = 'DRIVER version      : Deprecated, see "KMD version" instead\nCUDA UMD version    : 13.3'


def facts_of(name: str) -> NodeFacts:
    return parse_facts((FACTS / f"{name}.txt").read_text())


def test_eight_gpus_of_which_one_is_cut() -> None:
    facts = facts_of("h200-infiniband")
    assert [gpu.index for gpu in facts.gpus or ()] == list(range(8))
    assert {(gpu.name, gpu.sm) for gpu in facts.gpus or ()} == {("NVIDIA H200", "sm_90")}
    assert [gpu.index for gpu in facts.gpus or () if gpu.mig] == [7]
    assert (facts.gpus or ())[2] == Gpu(
        2, "NVIDIA H200", "sm_90", 143771 * MIB, 71921 * MIB, "GPU-c23487d9-aa56-3f16-f553-ad5d4e860742"
    )
    assert (facts.driver, facts.cuda, facts.unified) == ("570.133.20", "12.8", False)


def test_a_gpu_whose_memory_is_the_machines_own() -> None:
    facts = facts_of("dgx-spark")
    uuid = "GPU-2dee1e25-b3b5-007e-2b55-79f2d0f2ebe1"
    assert facts.gpus == (Gpu(0, "NVIDIA GB10", "sm_121", None, None, uuid, mig=False),)
    assert (facts.driver, facts.cuda, facts.unified) == ("580.142", "13.0", True)


def test_a_driver_that_does_not_tell_the_compute_capability() -> None:
    facts = facts_of("h200-without-iproute2")
    assert [(gpu.sm, gpu.memory_bytes) for gpu in facts.gpus or ()] == [(None, 143771 * MIB)] * 2
    assert facts.unknown["gpus.sm"] == "this nvidia-smi does not tell compute_cap of GPU 0, 1"
    assert (facts.driver, facts.cuda) == ("470.256.02", "11.4")


@pytest.mark.parametrize(
    ("printed", "gpus", "why"),
    [
        ("status none", (), ""),
        ("status 6\nNo devices were found", (), ""),
        ("status 0\nNo devices were found", (), ""),
        ("", None, "nothing was printed"),
        ("status 0", None, "nothing was printed"),
        ("status 124", None, "nvidia-smi did not answer within 10 s"),
        (f"status 255\n{MISMATCH}", None, MISMATCH),
        (f"status 15\n{LOST}", None, LOST),
        (f"status 0\n{LOST_ROW}", None, LOST_ROW),
        (f"status none\n{ON_THE_BUS}", None, f"nvidia-smi is not installed, and the kernel has a GPU at {ON_THE_BUS}"),
    ],
)
def test_no_gpu_is_told_from_not_known(printed: str, gpus: tuple[Gpu, ...] | None, why: str) -> None:
    facts = parse_facts(f"=== gpus\n{printed}\n")
    assert (facts.gpus, facts.unknown.get("gpus", "")) == (gpus, why)
    assert (facts.driver is None) == (gpus is None)


@pytest.mark.parametrize(
    ("printed", "cuda"),
    [
        ("status 0\nNVIDIA-SMI version  : 580.142\nCUDA Version        : 13.0", "13.0"),
        (f"status 0\n{YOUNG}", "13.3"),
        ("status 0\n| NVIDIA-SMI 610.57.04   KMD Version: 610.57.04   CUDA UMD Version: 13.3 |", "13.3"),
        ("status 0\n| NVIDIA-SMI 470.256.02   Driver Version: 470.256.02   CUDA Version: N/A  |", None),
        ("status 9", None),
        ("status none", ""),
    ],
)
def test_the_cuda_that_a_driver_runs(printed: str, cuda: str | None) -> None:
    facts = parse_facts(f"=== cuda\n{printed}\n")
    assert facts.cuda == cuda
    assert ("cuda" in facts.unknown) == (cuda is None)


def test_whose_the_processes_are() -> None:
    processes = facts_of("h200-infiniband").gpu_processes or ()
    assert [(one.pid, one.rank) for one in processes] == [
        (8123, ""),
        (51001, "glm.41.2.r0"),  # by the container in its control group
        (61002, "glm.41.2.r1"),  # by its session
        (77777, None),  # its /proc could not be read
    ]
    assert processes[0] == GpuProcess("GPU-c23487d9-aa56-3f16-f553-ad5d4e860742", 8123, "python3", 71234 * MIB, rank="")


@pytest.mark.parametrize(
    ("line", "memory"), [("GPU-a, 7, [N/A], python3", None), ("GPU-a, 7, 12, /opt/a, b/python3", 12 * MIB)]
)
def test_a_process_whose_memory_is_not_told_and_a_name_with_a_comma(line: str, memory: int | None) -> None:
    found = parse_facts(f"=== gpu_processes\nstatus 0\n{line}\nowners\nprocess 7 7 7\ngroup 7 0::/\n").gpu_processes
    assert found == (GpuProcess("GPU-a", 7, line.split(", ", 3)[3], memory, rank=""),)


def smi(folder: Path, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(f'#!/bin/sh\ncase "$*" in\n{body}\nesac\n')
    info = '{"ServerVersion":"0","ContainersRunning":0,"ContainersPaused":0}'
    (folder / "docker").write_text(f"#!/bin/sh\necho '{info}'\n")  # nobody waits for the real one here
    for tool in ("nvidia-smi", "docker"):
        (folder / tool).chmod(0o755)


def read(monkeypatch: pytest.MonkeyPatch, folder: Path, node: Node) -> NodeFacts:
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return asyncio.run(read_facts(LocalRunner(node), node)).facts


def test_the_command_leaves_out_the_fields_that_an_old_driver_does_not_know(tmp_path: Path, monkeypatch) -> None:
    smi(
        tmp_path / "bin",
        """*compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2 ;;
        *mig.mode*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;;
        --query-gpu*) echo "0, Tesla V100, GPU-a, 32510, 32000, 418.226.00" ;;
        --query-compute*) ;;
        --version) echo "Invalid combination of input arguments."; exit 1 ;;
        "") echo "| NVIDIA-SMI 418.226.00   Driver Version: 418.226.00   CUDA Version: 10.1 |" ;;""",
    )
    facts = read(monkeypatch, tmp_path / "bin", Node("here", "local"))
    assert facts.gpus == (Gpu(0, "Tesla V100", None, 32510 * MIB, 32000 * MIB, "GPU-a"),)
    assert (facts.driver, facts.cuda, facts.gpu_processes) == ("418.226.00", "10.1", ())
    assert "gpus.sm" in facts.unknown


def test_a_tool_that_is_broken_is_asked_once(tmp_path: Path, monkeypatch) -> None:
    smi(tmp_path / "bin", f'*) echo call >>{tmp_path}/calls; echo "couldn\'t communicate with the driver"; exit 9 ;;')
    facts = read(monkeypatch, tmp_path / "bin", Node("here", "local"))
    assert (facts.gpus, facts.unknown["gpus"]) == (None, "couldn't communicate with the driver")
    assert facts.unknown["gpu_processes"] == "nvidia-smi ended with 9"
    assert (tmp_path / "calls").read_text() == "call\n"


def test_a_rank_that_lives_and_what_it_computes_are_found(tmp_path: Path, monkeypatch) -> None:
    smi(tmp_path / "bin", "*) exit 9 ;;")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    node = Node("here", "local", run_dir=str(tmp_path / "ranks"))
    runner, runtime = LocalRunner(node), VenvRuntime()
    node = asyncio.run(read_facts(runner, node))
    assert node.facts.ranks == ()
    plan = RankPlan(0, "here", ("sh", "-c", "sleep 300 & wait"), {})
    started = asyncio.run(runtime.start(runner, node, "svc.3.1.r0", plan, {"service": "svc"}))
    assert started.ok, started.stderr
    try:
        leader = int((tmp_path / "ranks/svc.3.1.r0/pid").read_text().split()[0])
        names = [path.name for path in Path("/proc").iterdir()]
        sleeper = next(pid for pid in map(int, filter(str.isdigit, names)) if _is_sleeper(pid, leader))
        smi(
            tmp_path / "bin",
            f"""--query-gpu*) echo "{ROW}" ;;
            --query-compute*) echo "GPU-a, {sleeper}, 5000, sleep"; echo "GPU-a, {os.getpid()}, 700, pytest" ;;
            --version) echo "CUDA Version : 12.8" ;;""",
        )
        facts = read(monkeypatch, tmp_path / "bin", node)
        assert facts.ranks == ("svc.3.1.r0",)
        owners = {one.pid: one.rank for one in facts.gpu_processes or ()}
        assert owners == {sleeper: "svc.3.1.r0", os.getpid(): ""}
    finally:
        asyncio.run(runtime.stop(runner, node, ["svc.3.1.r0"], 2))
    ended = asyncio.run(read_facts(runner, node)).facts
    assert ended.ranks == (), "the folder is there, the rank is not"


def _is_sleeper(pid: int, leader: int) -> bool:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
    except OSError:
        return False
    return name == "sleep" and int(rest.split()[3]) == leader
