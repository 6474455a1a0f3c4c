#!/usr/bin/env python3
"""Where the time of a token goes: PyTorch's profiler for two seconds of an answer, its kernels summed by name.

usage: token_time.py URL MODEL FOLDER     FOLDER: torch_profiler_dir of the engine that serves at URL (…/v1)

The last line is one JSON object: `tokens` while the profiler ran, `window_ms` from the first kernel to the last,
`busy` the share of it in which any kernel ran, `kernels` of one token, and the `heaviest` names with microseconds and
calls a token.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from drill import Request

SECONDS, BEFORE, NAMES = 2.0, 40, 14


def main(words: Sequence[str] | None = None) -> int:
    """Ask, profile, sum up."""
    url, model, folder = words or sys.argv[1:]
    answer = Request(url, model, 1500)
    answer.wait_for(BEFORE, 120)
    _post(f"{url.removesuffix('/v1')}/start_profile")
    begin = answer.tokens
    time.sleep(SECONDS)
    tokens = answer.tokens - begin
    _post(f"{url.removesuffix('/v1')}/stop_profile")
    answer.enough = True
    traces = sorted(Path(folder).rglob("*.json.gz"), key=lambda path: path.stat().st_size)
    with gzip.open(traces[-1], "rt") as file:
        print(json.dumps({"tokens_told": tokens, "trouble": answer.trouble, **summed(json.load(file)["traceEvents"])}))
    return 0


def summed(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The kernels of a trace, whose times are microseconds; a token is one choice."""
    kernels = [one for one in events if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    begin, end = min(one["ts"] for one in kernels), max(one["ts"] + one["dur"] for one in kernels)
    by_name: dict[str, list[float]] = {}
    for one in kernels:
        by_name.setdefault(_short(one["name"]), []).append(one["dur"])
    tokens = _passes(by_name)
    heaviest = sorted(by_name.items(), key=lambda row: -sum(row[1]))[:NAMES]
    return {
        "window_ms": round((end - begin) / 1e3, 1),
        "tokens": tokens,
        "us_a_token": round((end - begin) / tokens, 1),
        "busy": round(_union(kernels) / (end - begin), 3),
        "kernels": round(len(kernels) / tokens, 1),
        "heaviest": [
            {"name": name, "us": round(sum(times) / tokens, 1), "calls": round(len(times) / tokens, 1)}
            for name, times in heaviest
        ],
    }


def _passes(by_name: dict[str, list[float]]) -> int:
    """How often the greedy choice over the vocabulary ran, which is once a token; else the rarest frequent kernel."""
    chosen = [len(times) for name, times in by_name.items() if re.search("argmax|ArgMax", name)]
    return max(chosen) if chosen else min(len(times) for times in by_name.values() if len(times) > 1)


def _union(kernels: Sequence[dict[str, Any]]) -> float:
    """Microseconds in which at least one ran."""
    busy, until = 0.0, 0.0
    for one in sorted(kernels, key=lambda one: one["ts"]):
        busy += max(0.0, one["ts"] + one["dur"] - max(until, one["ts"]))
        until = max(until, one["ts"] + one["dur"])
    return busy


def _short(name: str) -> str:
    """Without what templates and arguments add."""
    return re.sub(r"^void ", "", re.split(r"[<(]", name, maxsplit=1)[0])[:80] or name[:80]


def _post(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=200):
        pass


if __name__ == "__main__":
    sys.exit(main())
