"""What the kernel's log of a node says of processes that it ended for want of memory (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

RECENT_S = 60.0  # before the log was read; a rank that was seen to end is asked about within seconds
_NOW = re.compile(r"== now (.+)")
_KILLED = re.compile(r"[Oo]ut of memory: Kill(?:ed)? process (\d+) \((.*?)\)(?: |,|$)")
_KERNELS_PIDS = "== pids pid:[4026531836]"  # PROC_PID_INIT_INO of linux/proc_ns.h: what the kernel counts by is seen
_FORMS = (  # `dmesg -T`, then the journal, which leaves out the year
    (re.compile(r"\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\] (.+)"), "%a %b %d %H:%M:%S %Y"),
    (re.compile(r"(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ kernel: (.+)"), "%b %d %H:%M:%S"),
)


def out_of_memory(text: str, known: Mapping[int, str]) -> list[tuple[float, str]]:
    """The lines of the last RECENT_S seconds about a rank's own processes, each with the seconds that passed since.

    `text` is what capture.sh prints of the kernel: first the node's time, by which the others are counted. `known` are
    the processes that the rank ever had, with their names. In a pid namespace of its own (a node that is a container)
    the kernel's numbers are others: there the names have to do.
    """
    lines = text.splitlines()
    first = _NOW.match(lines[0]) if lines else None
    now = _time(first[1], "%a %b %d %H:%M:%S %Y") if first else None
    if now is None:
        return []
    by_number = _KERNELS_PIDS in lines[:2]
    return [
        (ago, line)
        for ago, line, pid, name in _killed(lines, now)
        if -1.0 <= ago <= RECENT_S and (pid in known if by_number else name in known.values())
    ]


def _killed(lines: list[str], now: datetime) -> Iterator[tuple[float, str, int, str]]:
    for line in lines:
        for form, times in _FORMS:
            found = form.match(line)
            killed = _KILLED.search(found[2]) if found else None
            at = _time(found[1], times) if found and killed else None
            if found and killed and at:
                at = at if "%Y" in times else at.replace(year=now.year)
                yield (now - at).total_seconds(), found[2], int(killed[1]), killed[2]


def _time(text: str, form: str) -> datetime | None:
    """A time without a zone; only differences count."""
    try:
        return datetime.strptime(" ".join(text.split()), form)
    except ValueError:
        return None
