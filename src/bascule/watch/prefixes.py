"""What stands before the words of a log line: time, level, rank, process; and the words themselves (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

LAYERS = 6  # docker's time, a compose service, torchrun's rank, the process, the logger: more was never seen
LONGEST = 8192  # characters of a line that are looked at

_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "C": "FATAL", "D": "DEBUG", "WARN": "WARNING"}
_DAYS = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)  # before each month; February counts 29
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_WHERE = r"(?P<where>[^\]\s]+:\d+)"
_CLOCK = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:[.,]\d{1,9})?)"
_DATE = r"\d{4}-(?P<mon>\d\d)-(?P<day>\d\d)"

# By the first character of the line (L a letter, 0 a digit), in the order in which they are tried. Groups: time (mon,
# day, h, m, s), level, process, where (file:line of the logger). Seconds since some start are no time of day: left out.
_FORMS = {
    "+": [r"\+ *\d+\.\d ?"],  # a recorder's seconds since the start
    "(": [r"\((?P<process>[^()]{0,60}\bpid=\d+[^()]{0,40})\) ?"],  # vLLM, Ray
    "[": [
        r"\[(?P<process>rank\d+)\]: ?",  # torch's hook for exceptions
        rf"\[{_DATE} {_CLOCK}(?P<process>(?: [A-Z]+\d+)*)\] ?",  # SGLang
        rf"\[{_DATE} {_CLOCK} (?P<level>[IWEF]) \d+ \d+\] ?",  # Ray's C++
        rf"\[(?P<level>[IWEFC])(?P<mon>\d{{1,2}})(?P<day>\d\d) {_CLOCK} (?:\d+ )?{_WHERE}\] ?",  # torch's C++
        r"\[(?P<process>gpu=\d+|DP\d+ TP\d+|TP\d+)\] ?",  # SGLang before 0.4
        r"\[ *\d+\.\d+\] ?",  # dmesg
    ],
    "L": [
        rf"{_LEVEL} (?P<mon>\d\d)-(?P<day>\d\d) {_CLOCK} (?:\[?{_WHERE}\] ?)?",  # vLLM
        rf"(?P<level>[IWEF])(?P<mon>\d\d)(?P<day>\d\d) {_CLOCK} \d+ {_WHERE}\] ?",  # torch's Python
        _LEVEL + r": {1,8}",  # uvicorn
        rf"(?P<month>{'|'.join(_MONTHS)}) +(?P<day>\d{{1,2}}) {_CLOCK} \S+ (?=[\w.-]+(?:\[\d+\])?: )",  # the journal
        r"kernel: ",
        r"(?P<process>[\w.-]+:\d+:\d+ \[\d+\]) (?:\S+:\d+ (?:\(\w+\) )?)?(?=NCCL (?P<level>INFO|WARN|TRACE) )",
        r"(?P<process>[A-Za-z][\w.-]*-\d+) +\| ",  # docker compose
    ],
    "0": [
        rf"{_DATE}T{_CLOCK}(?:Z|[+-]\d\d:?\d\d) ?",  # docker logs --timestamps
        rf"{_DATE} {_CLOCK}(?: - [\w.]+ -)? ?(?:[|-] )?(?:{_LEVEL}\b[ :|-]*)?",
        r"\d+\.\d\d\.\d{3}\.\d{3} (?P<level>[IWEDC]) ",  # llama.cpp
        r"(?P<process>[\w.-]+:\d+:\d+ \[\d+\]) (?:\S+:\d+ (?:\(\w+\) )?)?(?=NCCL (?P<level>INFO|WARN|TRACE) )",
    ],
}
_RECORDER = re.compile(r"\+ *\d+\.\d ?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) ?")
_COMPILED = {first: [re.compile(form) for form in forms] for first, forms in _FORMS.items()}


@dataclass(frozen=True, slots=True)
class Head:
    """A line taken apart. `at` is seconds since the year began: most formats leave the year out."""

    text: str
    at: float | None = None
    level: str = ""
    process: str = ""
    where: str = ""

    @property
    def is_bare(self) -> bool:
        """True when nothing stood before the words."""
        return not (self.level or self.process or self.where)


def take_apart(line: str) -> Head:
    """A line as it stands in a log -> its words and what stood before them."""
    line = line[:LONGEST]
    head = Head(_COLOUR.sub("", line) if "\x1b" in line else line)
    for _ in range(LAYERS):
        further = _without_one(head)
        if further is None:
            break
        head = further
    return head


def without_recorder(line: str) -> str:
    """The line as the engine wrote it: without the time that docker or a recorder put before each."""
    found = _RECORDER.match(line) if line[:1] in "+0123456789" else None
    return line[found.end() :] if found else line


def _without_one(head: Head) -> Head | None:
    first = head.text[:1]
    key = "L" if first.isalpha() else "0" if first.isdigit() else first
    for form in _COMPILED.get(key, ()):
        if (found := form.match(head.text)) and found.end() > 0:
            had = found.groupdict()
            level = had.get("level") or ""
            return replace(
                head,
                text=head.text[found.end() :],
                at=_seconds(had) if "h" in had else head.at,
                level=_LEVELS.get(level, level) or head.level,
                process=(had.get("process") or "").strip() or head.process,
                where=had.get("where") or head.where,
            )
    return None


def _seconds(had: dict[str, str | None]) -> float | None:
    month = int(had.get("mon") or 0) or _MONTHS.index(had.get("month") or "Jan") + 1
    if not 1 <= month <= len(_MONTHS):
        return None
    clock = int(had["h"] or 0) * 3600 + int(had["m"] or 0) * 60 + float((had["s"] or "0").replace(",", "."))
    return (_DAYS[month - 1] + int(had["day"] or 1) - 1) * 86400 + clock
