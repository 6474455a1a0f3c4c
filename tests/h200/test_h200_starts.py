"""Starts of real engines on a real GPU judged again: what stood still, what was only slow, and why one failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bascule.core.machine import Address
from bascule.replaying import replay
from bascule.watch.samples import Sample
from bascule.watch.samples_csv import from_csv
from bascule.watch.serving import Served, State, judge
from bascule.watch.sockets import Seat, unreachable
from watch_catalogue.logs_of import diagnosis, text_of

STARTS = Path(__file__).parent / "starts"
DRILLS = Path(__file__).parent / "drills"
SERVED = [
    "vllm-one",
    "vllm-two-ranks",
    "vllm-two-ranks-again",
    "sglang-cured",
    "sglang-plain",
    "vllm-after-sglang",
    "vllm-122b-two-ranks",
    "vllm-profiled",
    "vllm-compiles",
    "sglang-moe",
]
HANG = STARTS / "sglang-wrong-address"
SEATS = (
    Seat(0, "h1", "10.77.0.1", (Address("fab1", "10.77.0.1", 24), Address("lan1", "10.88.1.2", 24))),
    Seat(1, "h2", "10.77.0.2", (Address("fab2", "10.77.0.2", 24), Address("lan2", "10.88.2.2", 24))),
)


def replayed(capsys, *paths):
    assert replay(*paths, json=True) == 0
    return json.loads(capsys.readouterr().out)


def logs(start: str) -> list[Path]:
    return sorted((STARTS / start).glob("rank*.log"))


def counted(path: Path) -> list[Sample]:
    return [sample for samples in from_csv(path.read_text()).values() for sample in samples]


@pytest.mark.parametrize("start", SERVED)
def test_a_start_that_served_was_never_taken_for_stalled_or_dead(capsys, start):
    row = replayed(capsys, STARTS / start)
    assert (row["verdict"], row["phase"], row["rank"], row["failure"]) == ("READY", "ready", 0, None)
    one = diagnosis(*map(text_of, logs(start)))
    assert (one.kind, one.failure, one.primary) == ("healthy", None, None)


@pytest.mark.parametrize("start", ["vllm-one", "vllm-two-ranks", "vllm-122b-two-ranks", "vllm-compiles"])
def test_with_frozen_counters_each_of_these_slow_starts_would_have_been_stalled(capsys, tmp_path, start):
    """They say nothing for a minute and more: it is the counters that speak for them."""
    header, *rows = (STARTS / start / "samples.csv").read_text().splitlines()
    names = header.split(",")
    still, kept = {}, [header]
    for row in rows:
        cells = row.split(",")
        first = still.setdefault(cells[0], cells)
        kept.append(
            ",".join(
                new if name in ("rank", "at", "log_bytes") else "0" if name == "runnable" else old
                for name, new, old in zip(names, cells, first, strict=False)
            )
        )
    (tmp_path / "samples.csv").write_text("\n".join(kept))
    for log in logs(start):
        (tmp_path / log.name).write_bytes(log.read_bytes())
    assert replayed(capsys, tmp_path)["verdict"] == "STALLED"


def test_the_hang_is_a_stall_of_both_ranks_in_the_message_queue_within_a_minute(capsys):
    row = replayed(capsys, HANG)
    assert (row["verdict"], row["phase"], row["rank"], row["moving"]) == ("STALLED", "queue", None, [])
    assert 50 <= row["since_s"] < 60
    assert row["failure"] == "sglang-zmq-wrong-ip"
    assert "GPU busy 0 %" in row["says"]


def test_caches_that_another_start_fills_do_not_hide_the_hang(capsys):
    """On the day they did, for 51 s: vLLM compiled beside it, into the same folder."""
    row = replayed(capsys, STARTS / "sglang-wrong-address-beside-a-compile")
    assert (row["verdict"], row["phase"], row["moving"]) == ("STALLED", "queue", [])
    assert 50 <= row["since_s"] < 60


def test_eleven_minutes_of_compilers_without_a_line_are_slow_and_never_a_stall(capsys):
    """FlashInfer's kernel for gated delta nets, from the last line before it to the next after it."""
    samples = counted(STARTS / "vllm-compiles" / "samples.csv")
    silent = [one for one in samples if 60 <= one.at - samples[0].at <= 600]
    assert sum(one.values["compilers"] > 0 for one in silent) > 0.9 * len(silent)
    assert {name for one in silent for name in one.busiest} >= {"cicc"}


def test_its_sockets_name_the_address_that_can_not_be_reached_and_the_one_to_tell():
    (found,) = unreachable(counted(HANG / "samples.csv"), SEATS)
    assert (found.advertised, found.interface) == ("10.88.1.2:33043", "lan1")
    assert (found.by_rank, found.to_rank, found.listening) == (0, 1, True)
    assert (found.instead, found.proof) == ("10.77.0.1", "connected")


@pytest.mark.parametrize("start", ["sglang-cured", "sglang-plain"])
def test_where_the_address_is_right_the_sockets_prove_nothing(start):
    samples = counted(STARTS / start / "samples.csv")
    assert sum(sample.sockets is not None for sample in samples) >= 4
    assert unreachable(samples, SEATS) == ()


def test_nccl_had_nothing_to_tell_of_the_hang_and_python_stood_in_the_queue():
    for host in ("h1", "h2"):
        assert "RUNNING      OK" in (HANG / "capture" / f"{host}.ras.txt").read_text()
        assert "MessageQueue.wait_until_ready" in (HANG / "capture" / f"{host}.stacks.txt").read_text()


@pytest.mark.parametrize("start", ["vllm-tower-in-fp8", "vllm-tower-in-fp8-again"])
def test_the_first_error_is_named_and_not_what_follows_from_it(capsys, start):
    one = diagnosis(*map(text_of, logs(start)))
    assert one.failure and (one.failure.id, one.kind) == ("fp8-block-tp", "crash")
    assert one.primary and one.primary.text.startswith("ValueError: Weight input_size_per_partition = 576 is not div")
    assert one.cascades >= 1
    row = replayed(capsys, *logs(start))
    assert (row["verdict"], row["phase"], row["failure"]) == ("DEAD", "weights", "fp8-block-tp")


@pytest.mark.parametrize("start", ["vllm-tower-in-fp8", "vllm-tower-in-fp8-again"])
def test_without_its_line_only_a_consequence_is_left_and_is_called_one(start):
    texts = ["\n".join(row for row in text_of(log).split("\n") if "not divisible" not in row) for log in logs(start)]
    one = diagnosis(*texts)
    assert (one.failure.id if one.failure else None) != "fp8-block-tp"
    assert one.kind != "healthy"


def test_packages_that_do_not_go_together_are_told_by_the_engines_own_words(capsys):
    one = diagnosis(*map(text_of, logs("sglang-mixed")))
    assert one.primary and "'qwen3_asr' is already used by a Transformers config" in one.primary.text
    assert (one.primary.phase, one.remedies) == ("import", ()), "no setting cures it"
    assert replayed(capsys, *logs("sglang-mixed"))["verdict"] == "DEAD"


def test_a_model_without_its_processor_is_named(capsys):
    row = replayed(capsys, *logs("sglang-no-processor"))
    assert (row["verdict"], row["phase"], row["failure"]) == ("DEAD", "config", "processor-missing")


# --- a rank frozen while it serves ---


def served_until(now: float) -> list[Served]:
    """What was known of the two ranks at a time."""
    table = from_csv((DRILLS / "rank-1-frozen.csv").read_text())
    return [Served(rank, [one for one in seen if one.at <= now], seen_at=now) for rank, seen in table.items()]


def test_the_frozen_rank_is_told_with_the_third_look_that_saw_it():
    outlook = judge(served_until(1344.0), [], None, 1344.0)
    assert (outlook.state, outlook.rank) == (State.STOPPED, 1)
    assert outlook.says.startswith("rank 1: 4 of its 4 processes are stopped by a signal")
    early = [judge(served_until(now), [], None, now).state for now in (1338.0, 1340.0, 1342.0)]
    assert early == [State.SERVING] * 3


def test_meanwhile_health_was_green_and_the_gpu_said_that_it_works():
    rows = [json.loads(line) for line in (DRILLS / "drill.jsonl").read_text().splitlines()]
    frozen = next(row["at"] for row in rows if row["what"] == "frozen")
    thawed = next(row["at"] for row in rows if row["what"] == "thawed")
    meanwhile = [row for row in rows if row["what"] == "meanwhile" and frozen < row["at"] < thawed]
    assert {(row["health"], row["tokens"], row["gpu"][0].split(", ")[1]) for row in meanwhile} == {("200", 8, "100")}
    told = next(row["at"] for row in rows if '"state": "stopped"' in row.get("line", "").replace('\\"', '"'))
    assert told - frozen < 6
