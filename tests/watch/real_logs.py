"""Real logs of real engines, as they lie in tests/logs; some were recorded with the seconds since the start."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bascule.core.layout import Place
from bascule.watch.diagnose import LogLine

LOGS = Path(__file__).parents[1] / "logs"
BEGAN = datetime(2026, 11, 30, tzinfo=UTC)
PLACES = (Place("a", "10.0.0.1", "eth0"), Place("b", "10.0.0.2", "eth1"))

_GPU = "import config rendezvous collective queue joined weights loaded"
_CPU = "import config rendezvous queue joined weights loaded profile"
HEALTHY = {  # log -> the phases it goes through
    "vllm/vllm-0.32-tp2-ok.r0": f"{_CPU} http ready",
    "vllm/vllm-0.32-tp2-ok.r1": _CPU,
    "shared/vllm-0.24-gpu-ok.r0": f"{_GPU} compile profile warm-up graphs http ready",
    "shared/vllm-0.24-gpu-ok.r1": f"{_GPU} compile profile warm-up graphs",
    "shared/sglang-0.5.15-ok.r0": f"{_GPU} http ready",
    "shared/sglang-0.5.15-ok.r1": _GPU,
    "llamacpp/llamacpp-ok": "weights loaded ready",
    "transformers/transformers-serve-ok": "import weights http ready",
}


def engine_of(log: str) -> str:
    """The engine that wrote a log."""
    return log.rpartition("/")[2].partition("-")[0]


def read(log: str) -> list[str]:
    """The lines of a log without the recorder's `+SSS.S `."""
    suffix = "" if log.endswith(".txt") else ".log"
    lines = (LOGS / f"{log}{suffix}").read_text().splitlines()
    return [re.sub(r"^\+ *\d+\.\d ?", "", line) for line in lines]


def said(*ranks: Sequence[str]) -> list[LogLine]:
    """What ranks 0, 1, … on nodes a, b, … said, one after another."""
    texts = [(rank, text) for rank, lines in enumerate(ranks) for text in lines]
    return [LogLine(BEGAN + timedelta(seconds=at), rank, "ab"[rank], text) for at, (rank, text) in enumerate(texts)]
