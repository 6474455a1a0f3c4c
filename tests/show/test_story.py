"""What a person reads: a run told from its recorded events, brief while it happens and whole in `bascule why`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bascule.journal import Event
from bascule.show.story import Narrator
from bascule.show.tables import story_lines

RUN_17 = [
    Event(raw["run"], datetime.fromisoformat(raw["at"]), raw["kind"], raw["data"])
    for raw in json.loads((Path(__file__).parent / "run17.json").read_text())
]


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def told(*events: Event) -> list[str]:
    narrator = Narrator()
    return [f"{say.label:<10} {say.text}".rstrip() for event in events for say in narrator.tell(event)]


def event(kind: str, **data: Any) -> Event:
    return Event(17, datetime(2026, 11, 30, 9, tzinfo=UTC), kind, data)


def test_a_run_as_it_happens() -> None:
    assert told(*RUN_17) == [
        "           qwen on spark-1, spark-2   run 17",
        "node       spark-1   spark-1   aarch64 · 20 cores · 120 GiB · NVIDIA GB10",
        "node       spark-2   aurora@spark-2.lan   aarch64 · 20 cores",
        "model      /models/q   Qwen3_5MoeForConditionalGeneration · 1,234,567.9 MB",
        "candidates 2",
        "1          vllm-0-14              no       does not know Qwen3_5MoeForConditionalGeneration (first in 0.17.0)",
        "                                           vllm/model_executor/models/registry.py:71",
        "2          vllm-0-17              yes      knows Qwen3_5MoeForConditionalGeneration",
        "                                           vllm/model_executor/models/registry.py:523",
        "2          vllm-0-17   /opt/engines/vllm-0.17.1",
        "  start    spark-1  rank 0  import",
        "  start    spark-2  rank 1  import",
        "  start    spark-1  rank 0  config",
        "  watch    FAILED  gloo-interface-missing: spark-2 has no interface eth9, which GLOO_SOCKET_IFNAME names",
        "     try   look at `ip addr` there",
        "    seen   spark-2  log of rank 1  09:01:35  RuntimeError: Unable to find address for: eth9",
        "  stopped  rank 0 on spark-1, rank 1 on spark-2   (this attempt failed)",
        "  change   GLOO_SOCKET_IFNAME=enp1s0f0np0 on spark-2   (start 2)",
        "  start    spark-1  rank 0  import",
        "  ready    4 min 12 s",
        "  verify   9 of 9 checks passed: sums right, reasoning apart, no tags in the content",
        "serving    http://10.0.0.1:8000/v1   model qwen",
        "speed      27.3 tok/s at batch 1 · first token after 0.43 s",
    ]


def test_a_run_told_whole_repeats_every_decision_with_its_evidence() -> None:
    assert story_lines(RUN_17) == [
        "+    0.0             qwen on spark-1, spark-2   run 17",
        "          asked      qwen.yaml   2026-11-30 09:00:00",
        "+    1.4  node       spark-1   spark-1   aarch64 · 20 cores · 120 GiB · NVIDIA GB10",
        "          node       spark-2   aurora@spark-2.lan   aarch64 · 20 cores",
        "                     spark-2   memory_bytes could not be read: /proc/meminfo has no MemTotal",
        "                     spark-2   gpus could not be read: NVIDIA-SMI has failed",
        "+    1.5  model      /models/q   Qwen3_5MoeForConditionalGeneration · 1,234,567.9 MB",
        "+    1.6  candidates 2",
        "+    2.0  1          vllm-0-14              no       does not know Qwen3_5MoeForConditionalGeneration"
        " (first in 0.17.0)",
        "                                                     vllm/model_executor/models/registry.py:71",
        "              seen   spark-1  vllm/model_executor/models/registry.py:71  09:00:01"
        '  _TEXT_GENERATION_MODELS = { ⏎ "AfmoeForCausalLM": …',
        "+    2.0  2          vllm-0-17              yes      knows Qwen3_5MoeForConditionalGeneration",
        "                                                     vllm/model_executor/models/registry.py:523",
        "              seen   spark-1  vllm/model_executor/models/registry.py:523  09:00:01"
        '  "Qwen3_5MoeForConditionalGeneration": ("qwen3_5", …)',
        "+    2.1  2          vllm-0-17   /opt/engines/vllm-0.17.1",
        "            because  knows Qwen3_5MoeForConditionalGeneration",
        "+    2.4    preflight the ports are free, the nodes have room",
        "              seen   spark-1  /proc/net/tcp, df  09:00:02  3 listeners, none on 8000, 29500",
        "+    2.5    rank     0 on spark-1: VLLM_HOST_IP=10.0.0.1 HF_TOKEN='***'"
        " /opt/engines/vllm-0.17.1/bin/python -m vllm --port 8000",
        "            rank     1 on spark-2: VLLM_HOST_IP=10.0.0.2"
        " /opt/engines/vllm-0.17.1/bin/python -m vllm --headless",
        "+    3.0    start    spark-1  rank 0  import",
        "+    3.0    start    spark-2  rank 1  import",
        "+   30.0    start    spark-1  rank 0  config",
        "+   96.0    watch    FAILED  gloo-interface-missing: spark-2 has no interface eth9,"
        " which GLOO_SOCKET_IFNAME names",
        "               try   look at `ip addr` there",
        "              seen   spark-2  log of rank 1  09:01:35  RuntimeError: Unable to find address for: eth9",
        "+   99.0    stopped  rank 0 on spark-1, rank 1 on spark-2   (this attempt failed)",
        "+   99.1    change   GLOO_SOCKET_IFNAME=enp1s0f0np0 on spark-2   (start 2)",
        "+  100.0    start    spark-1  rank 0  import",
        "+  351.6    ready    4 min 12 s",
        "              seen   spark-1  log of rank 0  09:05:51  INFO:     Application startup complete.",
        "+  356.0    verify   9 of 9 checks passed: sums right, reasoning apart, no tags in the content",
        "              seen   spark-1  POST http://10.0.0.1:8000/v1/chat/completions  09:05:55"
        "  question: 'What is 17 + 25?' · reasoning: '7+5\\n=12' · content: '42'",
        "+  356.1  serving    http://10.0.0.1:8000/v1   model qwen",
        "+  360.0  speed      27.3 tok/s at batch 1 · first token after 0.43 s",
        "+  360.1  ended      exit 0 after 360.1 s",
    ]


RANKS = [{"rank": 0, "node": "a"}, {"rank": 1, "node": "b"}]
CANDIDATE = {"name": "c", "artefact": {"kind": "venv", "ref": "/v"}}


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        (event("gave-up", because="there is no candidate"), ["gave up    there is no candidate"]),
        (
            event("stopped", ranks=RANKS[:1], because="this attempt failed", left=["b: a rank on b did not end"]),
            [
                "  stopped  rank 0 on a   (this attempt failed)",
                "  LEFT     b: a rank on b did not end; `bascule down` tries again",
            ],
        ),
        (
            event("interrupted", ranks=RANKS, left=[], because="interrupted"),
            ["interrupted", "  stopped  rank 0 on a, rank 1 on b   (interrupted)"],
        ),
        (
            event("interrupted", ranks=[], left=[], because="interrupted"),
            ["interrupted", "           nothing was running"],
        ),
        (
            event("adopted", candidate=CANDIDATE, generation="3.2", ranks=RANKS),
            ["adopted    c: rank 0 on a, rank 1 on b, started by run 3.2"],
        ),
        (event("down", ranks=RANKS), ["down       stopped rank 0 on a, rank 1 on b"]),
        (event("down", ranks=[]), ["down       nothing was running"]),
        (event("speed", speed=None), []),
        (event("try", candidate=CANDIDATE, because="once more: it was busy"), ["1          c   /v"]),
        (event("something-new", x=1), []),
    ],
)
def test_each_event_has_its_words(what: Event, lines: list[str]) -> None:
    assert told(what) == lines


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (251.9, "4 min 11 s")]
)
def test_a_start_is_timed_in_the_unit_one_would_say(seconds: float, words: str) -> None:
    tried = event("try", candidate=CANDIDATE, because="it is first")
    up = {"step": "watch", "fate": "ok", "code": "engine-up", "says": "it serves", "evidence": [], "advice": ""}
    ready = Event(17, tried.at + timedelta(seconds=seconds), "finding", {"candidate": CANDIDATE, "finding": up})
    assert told(tried, ready)[-1] == f"  ready    {words}"


def test_evidence_fits_on_a_line() -> None:
    seen = {"node": "a", "source": "log of rank 0", "seen_at": "2026-11-30T09:00:00+00:00", "excerpt": "x\n" * 400}
    bad = {"step": "verify", "fate": "hopeless", "code": "wrong-answer", "says": "43", "evidence": [seen], "advice": ""}
    lines = told(event("finding", candidate=CANDIDATE, finding=bad))
    assert lines[0] == "  verify   WRONG  wrong-answer: 43"
    assert lines[1].startswith("    seen   a  log of rank 0  09:00:00  x ⏎ x ⏎ ")
    assert lines[1].endswith("…")
    assert len(lines[1]) < 290
