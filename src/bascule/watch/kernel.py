"""What the kernel's log of a node says of processes that it ended for want of memory (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

RECENT_S = 60.0  # before the log was read; a rank that was seen to end is asked about within seconds
_NOW = re.compile(r"== now (.+)")
_KILLED = re.compile(r"[Oo]ut of memory: Kill(?:ed)? process \d+ ")
_FORMS = (  # `dmesg -T`, then the journal, which leaves out the year
    (re.compile(r"\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\] (.+)"), "%a %b %d %H:%M:%S %Y"),
    (re.compile(r"(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ kernel: (.+)"), "%b %d %H:%M:%S"),
)


def out_of_memory(text: str) -> list[tuple[float, str]]:
    """The lines of the last RECENT_S seconds, each with the seconds that have passed since.

    `text` is what capture.sh prints of the kernel: first the node's time, by which the others are counted.
    """
    lines = text.splitlines()
    first = _NOW.match(lines[0]) if lines else None
    now = _time(first[1], "%a %b %d %H:%M:%S %Y") if first else None
    if now is None:
        return []
    return [(ago, line) for ago, line in _killed(lines, now) if -1.0 <= ago <= RECENT_S]


def _killed(lines: list[str], now: datetime) -> Iterator[tuple[float, str]]:
    for line in lines:
        for form, times in _FORMS:
            found = form.match(line)
            at = _time(found[1], times) if found and _KILLED.search(found[2]) else None
            if found and at:
                at = at if "%Y" in times else at.replace(year=now.year)
                yield (now - at).total_seconds(), found[2]


def _time(text: str, form: str) -> datetime | None:
    """A time without a zone; only differences count."""
    try:
        return datetime.strptime(" ".join(text.split()), form)
    except ValueError:
        return None
