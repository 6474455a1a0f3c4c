"""Old starts judged again: real logs, with counters that were kept and without."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bascule.engines.catalogue import ENGINES
from bascule.replaying import EvidenceError, replay
from bascule.watch.clocks import time_of, timed
from bascule.watch.recording import Recording, guess, place
from bascule.watch.samples import Sample
from bascule.watch.samples_csv import to_csv
from watch_stall.starts import sampled

LOGS = Path(__file__).parents[1] / "logs"
HERE = Path(__file__).parent / "recorded"


def replayed(capsys, *paths, engine=None):
    assert replay(*paths, engine=engine, json=True) == 0
    return json.loads(capsys.readouterr().out)


def evidence(folder: Path, logs: list[Path], tables: list[list[Sample]]) -> Path:
    """A folder as a run keeps it: the log of each rank, and all samples; bytes of logs are counted by their times."""
    rows = []
    for rank, (log, samples) in enumerate(zip(logs, tables, strict=True)):
        (folder / f"rank{rank}.log").write_bytes(log.read_bytes())
        counted = _sizes(log)
        began = counted[0][0]
        for one in samples:
            size = max((end for at, end in counted if at - began <= one.at), default=0)
            rows.append(Sample(rank, one.at, {**one.values, "log_bytes": size}))
    (folder / "samples.csv").write_text(to_csv(rows))
    return folder


def _sizes(log: Path) -> list[tuple[float, int]]:
    lines, ends, end = log.read_text().split("\n"), [], 0
    for line in lines:
        end += len(line.encode()) + 1
        ends.append(end)
    times = [at for at, _ in timed(lines)]
    first = next(at for at in times if at is not None)
    return [(first if at is None else at, end) for at, end in zip(times, ends, strict=True)]


HANG = [LOGS / f"shared/sglang-0.5.15-hang.r{rank}.log" for rank in (0, 1)]
FLAT = {"gpu_bytes": 986 * 2**20, "gpu_percent": 0, "gpu_watts": 118}  # as was seen beside that hang, for 70 s


def test_the_recorded_hang_of_sglang_is_a_stall_in_its_message_queue_within_a_minute(tmp_path, capsys):
    busy = {**FLAT, "gpu_watts": 75, "cpu_s": 1.0, "+memory_bytes": 20e6}
    last = [_sizes(log)[-1][0] - _sizes(log)[0][0] for log in HANG]
    tables = [sampled(rank, max(last) + 70, (0, busy), (last[rank], FLAT)) for rank in (0, 1)]
    row = replayed(capsys, evidence(tmp_path, HANG, tables))
    assert (row["verdict"], row["phase"], row["rank"], row["moving"]) == ("STALLED", "queue", None, [])
    assert 50 <= row["since_s"] <= 60
    assert (
        row["next_step"] == "every rank reaches the message queue at the address in SGLANG_HOST_IP, then `Init … ends`"
    )
    assert "GPU busy 0 %" in row["says"]
    assert row["failure"] == "sglang-zmq-wrong-ip", "both stand still, and that is what is known to stop here"


def test_the_same_logs_without_counters_are_not_called_stalled(capsys):
    row = replayed(capsys, *HANG)
    assert (row["verdict"], row["phase"], row["rank"], row["failure"]) == ("UNKNOWN", "queue", None, None)
    assert row["says"].endswith("no counters were kept, so it can't be told whether anything moved")


def test_a_real_slow_start_is_never_stalled_while_it_computes(tmp_path, capsys):
    logs = [LOGS / f"shared/vllm-0.24-gpu-ok.r{rank}.log" for rank in (0, 1)]
    works = {"cpu_s": 1.0, "compilers": 1, "+memory_bytes": 1e4}
    row = replayed(capsys, evidence(tmp_path, logs, [sampled(rank, 330, (0, works)) for rank in (0, 1)]))
    assert (row["verdict"], row["phase"], row["rank"]) == ("READY", "ready", 0)
    idle = replayed(capsys, evidence(tmp_path, logs, [sampled(rank, 330) for rank in (0, 1)]))
    assert (idle["verdict"], idle["phase"]) == ("STALLED", "profile"), "with such counters it would have been one"


@pytest.mark.parametrize(
    ("folder", "rank", "cpu"), [("head-waits-for-rank1", 1, "CPU 0.8 s"), ("rank1-waits-for-head", 0, "CPU 0.0 s")]
)
def test_a_real_rank_that_waits_for_one_that_never_comes_is_stalled_within_a_minute(capsys, folder, rank, cpu):
    """vLLM 0.32.0, one of two ranks, sampled every two seconds from its start on."""
    row = replayed(capsys, HERE / folder)
    assert (row["verdict"], row["phase"], row["rank"], row["failure"]) == ("STALLED", "rendezvous", rank, None)
    assert 48 <= row["since_s"] <= 60
    assert cpu in row["says"]
    assert row["says"].startswith(f"rank {rank} never joined: nothing was ever seen of it; rank {1 - rank} is in rend")


def test_processes_counted_by_hand_show_which_rank_was_gone_first(tmp_path, capsys):
    logs = [HERE / f"cut-while-loading.r{rank}.log" for rank in (0, 1)]
    clock, *rows = (HERE / "cut-while-loading.watch.txt").read_text().splitlines()
    cut = time_of(f"INFO 11-30 {clock.split()[-1]} x") - _sizes(logs[0])[0][0]
    tables = [
        [Sample(rank, cut + float(found[1]), {"processes": float(found[2 + rank])}) for found in _counted(rows)]
        for rank in (0, 1)
    ]
    row = replayed(capsys, evidence(tmp_path, logs, tables))
    assert (row["verdict"], row["phase"], row["rank"]) == ("DEAD", "loaded", 1)


def _counted(rows):
    return [found for row in rows if (found := re.match(r"\+(\d+)s .*r0procs=(\d+) r1procs=(\d+)", row))]


@pytest.mark.parametrize(
    ("logs", "row"),
    [
        (["vllm/vllm-0.32-tp2-ok.r0", "vllm/vllm-0.32-tp2-ok.r1"], ("READY", "ready", 0, None)),
        (["shared/vllm-0.24-gpu-ok.r0", "shared/vllm-0.24-gpu-ok.r1"], ("READY", "ready", 0, None)),
        (["shared/sglang-0.5.15-ok.r0", "shared/sglang-0.5.15-ok.r1"], ("READY", "ready", 0, None)),
        (["llamacpp/llamacpp-ok"], ("READY", "ready", 0, None)),
        (["transformers/transformers-serve-ok"], ("READY", "ready", 0, None)),
        (["vllm/vllm-0.32-gloo-eth9.r1", "vllm/vllm-0.32-gloo-eth9.r0"], ("DEAD", "rendezvous", 1)),
        (["shared/vllm-0.32-alone.r0"], ("DEAD", "rendezvous", 0)),
        (["shared/vllm-0.24-fp8-block.r0", "shared/vllm-0.24-fp8-block.r1"], ("DEAD", "weights", 0, "fp8-block-tp")),
        (["shared/vllm-0.32-tp3"], ("DEAD", "config", 0, "heads-not-divisible")),
        (["shared/vllm-0.16-unknown-type"], ("DEAD", "config", 0, "model-type-unknown")),
        (["llamacpp/llamacpp-cut-gguf"], ("DEAD", "weights", 0, "model-not-loaded")),
        (["shared/vllm-0.32-unknown-flag"], ("DEAD", "import", 0, "unknown-flag")),
    ],
)
def test_logs_alone_tell_how_a_start_ended(capsys, logs, row):
    found = replayed(capsys, *(LOGS / f"{log}.log" for log in logs))
    assert tuple(found[key] for key in ("verdict", "phase", "rank", "failure"))[: len(row)] == row


def test_a_rank_that_the_others_count_on_and_nobody_recorded_is_told(tmp_path, capsys):
    head = (LOGS / "vllm/vllm-0.32-gloo-eth9.r0.log").read_text()
    (tmp_path / "x.r0.log").write_text(head[: head.index("\n", head.index("distributed_init_method=")) + 1])
    row = replayed(capsys, tmp_path / "x.r0.log")
    assert (row["verdict"], row["phase"], row["rank"]) == ("UNKNOWN", "rendezvous", None)
    assert "rank 1 never joined, or its log is not here" in row["says"]
    head_only = evidence(tmp_path, [tmp_path / "x.r0.log"], [sampled(0, 300)])
    row = replayed(capsys, head_only)
    assert (row["verdict"], row["phase"], row["rank"]) == ("STALLED", "rendezvous", 1)


def test_a_traceback_that_was_caught_is_no_end(tmp_path, capsys):
    log = tmp_path / "rank0.log"
    log.write_text("non-default args: {}\nValueError: caught\nStarting to load model x\n")
    assert replayed(capsys, log, engine="vllm")["verdict"] == "UNKNOWN"
    log.write_text("non-default args: {}\nStarting to load model x\nValueError: not caught\n")
    assert replayed(capsys, log, engine="vllm")["verdict"] == "DEAD"


def test_a_person_reads_a_sentence(capsys):
    replay(LOGS / "shared/vllm-0.32-tp3.log")
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("DEAD in `config`, by the phases of vllm: rank 0 says that it ends: Value error, Total")
    assert told[-1] == "  failure: heads-not-divisible"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("log", ["vllm/vllm-0.32-tp2-ok", "shared/vllm-0.24-gpu-ok", "shared/sglang-0.5.15-ok"])
def test_the_engine_is_known_by_its_log(log, rank):
    recording = Recording(rank, (LOGS / f"{log}.r{rank}.log").read_text())
    assert guess([recording], [one.lore for one in ENGINES.values()]).name == log.rpartition("/")[2].partition("-")[0]


def test_a_line_came_with_the_look_that_first_counted_it():
    samples = tuple(Sample(0, at, {"log_bytes": size}) for at, size in ((10.0, 0), (12.0, 6), (14.0, 6), (16.0, 12)))
    assert [line.at for line in place(Recording(0, "first\nother\nlate", samples))] == [12.0, 16.0, 16.0]
    stamped = tuple(Sample(0, one.at, {"log_bytes": one.values["log_bytes"] * 4}) for one in samples)
    assert [line.at for line in place(Recording(0, "first\nother\n", stamped))][:2] == [12.0, 16.0]


def test_a_log_with_the_line_ends_of_a_terminal_is_the_same(tmp_path, capsys):
    log = LOGS / "shared/vllm-0.32-alone.r0.log"
    (tmp_path / "rank0.log").write_bytes(log.read_bytes().replace(b"\r", b"").replace(b"\n", b"\r\n"))
    assert replayed(capsys, tmp_path) == replayed(capsys, log)
    assert replayed(capsys, log)["failure"] == "clients-missing"


def test_a_log_of_another_clock_begins_with_the_first_sample():
    lines = place(Recording(0, "a\nINFO 11-30 10:00:00 b\nINFO 11-30 10:00:04 c", (Sample(0, 500.0, {}),)))
    assert [line.at for line in lines] == [500, 500, 504]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "holds no rank0.log and no samples.csv"),
        ({"samples.csv": "no table"}, "holds no samples"),
        ({"samples.csv": "rank,at\n0,nan\n", "rank0.log": ""}, "holds no samples"),
    ],
)
def test_what_is_no_evidence_is_told_and_not_replayed(tmp_path, files, says):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(EvidenceError, match=says):
        replay(tmp_path)


def test_files_that_are_missing_and_engines_that_are_unknown_are_told(tmp_path):
    with pytest.raises(EvidenceError, match="can't be read"):
        replay(tmp_path / "gone.log")
    with pytest.raises(EvidenceError, match="nothing to replay"):
        replay()
    with pytest.raises(EvidenceError, match="no engine 'x' is known"):
        replay(LOGS / "llamacpp/llamacpp-ok.log", engine="x")


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff" * 5000, b"+++ 1e9 [" * 3000, b"\r\r\r\n\n", b"INFO 99-99 99:99:99"]
)
def test_any_bytes_are_judged_without_a_traceback(tmp_path, capsys, content):
    (tmp_path / "rank0.log").write_bytes(content)
    assert replayed(capsys, tmp_path)["verdict"] == "UNKNOWN"
