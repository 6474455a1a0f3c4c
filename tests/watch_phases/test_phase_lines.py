"""What single lines say of a start: the phase they begin, how far a bar is, and whether they say anything new."""

from __future__ import annotations

import pytest

from bascule.engines.catalogue import ENGINES
from bascule.watch.phases import Progress, advance, begin

NOTICE = (
    "(EngineCore pid=8071) INFO 11-30 19:{}:32 [shm_broadcast.py:705] "
    "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes hang"
)


def after(engine: str, *lines: str) -> Progress:
    progress = begin(ENGINES[engine].lore.phases, 0)
    for at, line in enumerate(lines, start=1):
        progress = advance(progress, line, at)
    return progress


@pytest.mark.parametrize(
    ("engine", "line", "phase"),
    [
        ("vllm", "(APIServer pid=1) INFO 01-01 00:00:00 [utils.py:1] non-default args: {'model': 'x'}", "config"),
        ("vllm", "INFO 01-01 00:00:00 [ray_utils.py:1] No current placement group found. Creating one.", "placement"),
        ("vllm", "INFO [parallel_state.py:1] world_size=2 rank=1 distributed_init_method=tcp://a:1", "rendezvous"),
        ("vllm", "INFO [pynccl.py:148] vLLM is using nccl==2.30.7", "collective"),
        ("vllm", "a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 commId 0x1 - Init START", "collective"),
        ("vllm", "a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 commId 0x1 - Init COMPLETE", "queue"),
        (
            "vllm",
            "Using ['PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0' out of potential backends: []",
            "queue",
        ),
        ("vllm", "WARNING Custom allreduce is disabled because this process group spans across nodes.", "queue"),
        ("vllm", "INFO [cuda.py:480] Using FLASH_ATTN attention backend out of potential backends: ['X']", "weights"),
        ("vllm", "Multi-thread loading shards:  25% Completed | 1/4 [00:01<00:03,  1.0it/s]", "weights"),
        ("vllm", "INFO [default_loader.py:1] Loading weights took 549.60 seconds", "loaded"),
        ("vllm", "INFO [monitor.py:40] Starting torch.compile", "compile"),
        ("vllm", "INFO [backends.py:1] Compiling a graph for compile range (1, 2048) takes 41.10 s", "compile"),
        ("vllm", "INFO [gpu_worker.py:773] Available KV cache memory: 31.4 GiB", "profile"),
        ("vllm", "DeepGEMM warmup (GEMM):   3%|3 | 10/300 [00:01<00:30]", "warm-up"),
        ("vllm", "Tuning fp4_gemm:   0%|          | 0/17 [00:00<?, ?profile/s]", "warm-up"),
        ("vllm", "Capturing CUDA graphs (decode, FULL):  25%|##5       | 1/4 [00:00<00:02,  1.18it/s]", "graphs"),
        ("vllm", "INFO [api_server.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000", "http"),
        ("sglang", "[2026-01-01 00:00:00 TP0] Init parallel begin.", "rendezvous"),
        ("sglang", "[2026-01-01 00:00:00 TP0] Init nccl begin.", "rendezvous"),
        ("sglang", "[2026-01-01 00:00:00 TP1] Connecting to tcp://192.0.2.1:4000", "queue"),
        ("sglang", "[2026-01-01 00:00:00 TP0] Init parallel ends. elapsed=3.20 s", "joined"),
        ("sglang", "Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:10<00:15]", "weights"),
        ("sglang", "[2026-01-01 00:00:00 TP0] Memory pool end. avail mem=11.08 GB", "loaded"),
        ("sglang", "[x] Entering DeepGEMM JIT Pre-Compile session. It may take a long time", "warm-up"),
        ("sglang", "[x] Capture cuda graph begin. This can take up to several minutes. avail mem=9 GB", "graphs"),
        ("sglang", "[x] Capture decode CUDA graph begin. backend=full, avail mem=9 GB", "graphs"),
        ("sglang", "[x] max_total_num_tokens=18111016, chunked_prefill_size=8192", "http"),
        ("transformers", "Loading checkpoint shards:  50%|#####     | 1/2 [00:01<00:01]", "weights"),
    ],
)
def test_a_line_begins_its_phase(engine: str, line: str, phase: str) -> None:
    assert after(engine, line).phase == phase


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        (
            "vllm",
            "Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup. This is equivalent to",
        ),
        ("vllm", "INFO [deep_gemm.py:1] DeepGEMM E8M0 disabled on current configuration."),
        ("sglang", "[x] Capture cuda graph failed: CUDA out of memory"),
        ("sglang", "[x] server_args=ServerArgs(max_total_num_tokens=None, load_format='dummy')"),
    ],
)
def test_words_of_a_phase_alone_do_not_begin_it(engine: str, line: str) -> None:
    assert after(engine, line).phase in ("import", "config")


@pytest.mark.parametrize(
    ("engine", "line", "fraction"),
    [
        ("vllm", "Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:01<00:02]", 0.4),
        ("vllm", "Capturing CUDA graphs (PIECEWISE):   0%| | 0/5Capturing CUDA graphs (PIECEWISE):  60%|#| 3/5", 0.6),
        ("sglang", "Multi-thread loading shards: 100% Completed | 8/8 [00:02<00:00]", 1.0),
        ("transformers", "Loading weights:  12%|#  | 9/72 [00:00<00:00]", 0.12),
        ("vllm", "INFO [default_loader.py:1] Loading weights took 5 seconds, 40% of them waiting", None),
    ],
)
def test_a_bar_tells_how_far_a_phase_is(engine: str, line: str, fraction: float | None) -> None:
    assert after(engine, line).fraction == fraction


def test_a_bar_of_another_phase_is_not_told() -> None:
    loading = "Loading safetensors checkpoint shards: 100% Completed | 5/5"
    assert after("vllm", loading, "INFO Model loading took 1 GiB memory and 5 seconds").fraction is None
    late = after("vllm", "INFO Model loading took 1 GiB memory and 5 seconds", loading)
    assert (late.phase, late.fraction) == ("loaded", None)


def test_a_bar_at_the_end_of_a_very_long_line_is_seen() -> None:
    drawn = "".join(f"Loading safetensors checkpoint shards: {n:3d}% Completed | {n}/100" for n in range(81))
    assert after("vllm", drawn).fraction == 0.8


def test_notices_and_repetitions_are_nothing_new() -> None:
    spoke = after("vllm", "INFO 11-30 19:00:00 [x.py:1] Warming something", NOTICE.format("01"), NOTICE.format("02"))
    assert (spoke.spoke_at, spoke.last_line_at) == (1, 3)
    again = after("vllm", "INFO 11-30 19:00:00 [x.py:1] same", "other", "INFO 11-30 19:00:07 [x.py:1] same")
    assert again.spoke_at == 2, "only its time is new"
    new = after("vllm", "INFO 11-30 19:00:00 [x.py:1] step 1", "INFO 11-30 19:00:00 [x.py:1] step 2")
    assert new.spoke_at == 2


@pytest.mark.parametrize(
    "line",
    [
        "[W1130 19:28:45.2 TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host a:1 - retrying",
        "frame #3: <unknown function> + 0x163b752 (0x7f9441a3b752 in libtorch_cpu.so)",
        'INFO:     127.0.0.1:40514 - "GET /health HTTP/1.1" 200 OK',
        "INFO [ray_utils.py:1] Waiting for creating a placement group of specs for 20 seconds. specs=[]",
    ],
)
def test_what_comes_by_itself_is_nothing_new(line: str) -> None:
    assert after("vllm", "No current placement group found", line).spoke_at == 1


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("non-default args: {'master_port': 29500, 'nnodes': 2, 'tensor_parallel_size': 2}", 2),
        ("server_args=ServerArgs(" + "x=1, " * 1000 + "nnodes=4, node_rank=0)", 4),
        ("world_size=16 rank=0", None),
        ("{'nnodes': 99999999999999999999}", None),
        ("nnodes=9999", 1024),
    ],
)
def test_the_engine_tells_how_many_nodes_there_are(line: str, nodes: int | None) -> None:
    assert after("vllm", line).nodes == nodes
