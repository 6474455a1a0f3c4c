"""Lines that came look by look, as a follower sees them: logs of two ranks on one H200, with vLLM 0.24.0."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path

import pytest

from bascule.core.nouns import Fate
from bascule.watch.diagnose import LogLine, diagnose
from watch.real_logs import BEGAN, PLACES

STARTS = Path(__file__).parents[1] / "h200" / "starts"
LOGS = Path(__file__).parents[1] / "watch_catalogue" / "logs"
ENDED = "rank 1 on b ended with status 1, rank 0 on a ended with status 1"


def as_seen(folder: Path) -> list[LogLine]:
    """Each line at the first look of the recording in which the log was so long."""
    with (folder / "samples.csv").open() as file:
        looks = [(int(row["rank"]), float(row["at"]), int(row["log_bytes"] or 0)) for row in csv.DictReader(file)]
    found, last = [], max(at for _, at, _ in looks) + 2.0  # the last words come after the last look at the counters
    for rank in (0, 1):
        size = 0
        for raw in (folder / f"rank{rank}.log").read_bytes().splitlines(keepends=True):
            size += len(raw)
            at = min((at for one, at, there in looks if one == rank and there >= size), default=last)
            found.append(LogLine(BEGAN + timedelta(seconds=at), rank, "ab"[rank], raw.decode().rstrip("\n")))
    return sorted(found, key=lambda line: line.at)


@pytest.mark.parametrize("start", ["vllm-tower-in-fp8", "vllm-tower-in-fp8-again"])
def test_the_first_error_is_found_although_its_traceback_is_complete_only_when_the_log_ends(start: str) -> None:
    finding = diagnose(as_seen(STARTS / start), ENDED, PLACES, [1, 0])
    assert (finding.code, finding.fate, finding.scope) == ("fp8-block-tp", Fate.HOPELESS, "candidate")
    assert finding.evidence[0].excerpt.endswith(
        "ValueError: Weight input_size_per_partition = 576 is not divisible by weight quantization block_k = 128."
    )
    assert finding.advice


def test_an_error_after_a_peer_was_told_to_end_is_none_of_its_start() -> None:
    """The guard of the test above: times still count, and what comes late stays a consequence."""
    lines = [
        LogLine(BEGAN, 0, "a", "INFO: received signal=SIGTERM"),
        LogLine(BEGAN + timedelta(seconds=9), 1, "b", "ValueError: the moon is full"),
        LogLine(BEGAN + timedelta(seconds=9), 1, "b", "INFO bye"),
    ]
    assert "the moon" not in diagnose(lines, ENDED, PLACES, [0]).says
    assert "the moon" in diagnose(lines[1:], ENDED, PLACES, [1]).says


def test_a_warning_is_not_told_as_the_reason_of_a_rank_that_was_killed_while_idle() -> None:
    lines = [
        LogLine(BEGAN, rank, "ab"[rank], text)
        for rank in (0, 1)
        for text in (LOGS / f"h200-killed-while-idle.r{rank}.log").read_text().splitlines()
    ]
    finding = diagnose(lines, "rank 1 on b ended without leaving a status (killed)", PLACES, [1])
    assert finding.code == "rank-died"
    assert finding.says.startswith(
        "rank 1 on b ended without leaving a status (killed), without an error line; the last line of rank 1: "
    )
