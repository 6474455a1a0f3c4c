"""How long to wait when a server says "later" (pure), and how much of an allowance it says is left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

TRIES = 3
LATER = (429, 500, 502, 503, 504)
_PER_WINDOW = re.compile(r"(\d{1,12})(?:;w=(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many more manifests may be fetched; Docker Hub says so (docs.docker.com/docker-hub/usage/pulls, 2026-12)."""

    most: int
    left: int
    window_s: int  # 0: not told

    def __str__(self) -> str:
        window = f" in {self.window_s / 3600:g} h" if self.window_s else ""
        return f"{self.left} of {self.most} pulls left{window}"


def pause(status: int, headers: Mapping[str, str], turn: int, now: float) -> float | None:
    """Seconds to wait after the answer to try number `turn` (from 1); None: no further try. `now` since the epoch."""
    if status not in LATER or turn >= TRIES:
        return None
    asked = retry_after(headers, now)
    if asked is not None:
        return asked
    return float(2 ** (turn - 1)) * (1.0 if status == 429 else 0.5)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a server asks to wait: a number, a date, or Docker Hub's time since the epoch; None: it doesn't."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal() and len(text) < 8:
        return float(text)
    epoch = headers.get("x-retry-after", "").strip()
    if epoch.isdecimal() and len(epoch) < 12:
        return max(0.0, float(epoch) - now)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now)


def allowance(headers: Mapping[str, str]) -> Allowance | None:
    """What Docker Hub's `ratelimit-limit: 100;w=21600` and `ratelimit-remaining` say; None where there are none."""
    most = _PER_WINDOW.fullmatch(headers.get("ratelimit-limit", "").strip())
    left = _PER_WINDOW.fullmatch(headers.get("ratelimit-remaining", "").strip())
    return Allowance(int(most[1]), int(left[1]), int(most[2] or 0)) if most and left else None
