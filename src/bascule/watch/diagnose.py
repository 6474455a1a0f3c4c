"""What a failed start died of, as the finding that the policy acts on (pure but for the time of an empty log)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal

from bascule.core.layout import Place
from bascule.core.nouns import Evidence, Fate, Finding, Setting, Step
from bascule.engines.base import read_lore
from bascule.watch.catalogue import Failure, fill
from bascule.watch.judge import HANGS, HEALTHY, SLOW, STOPPED, Diagnosis, judge
from bascule.watch.scan import Scan, guess_engine
from bascule.watch.told import Told

EXCERPT = 400  # characters of a line that are quoted
BEGINNING = 1000  # lines in which it is looked whose log it is
_SILENT = (HEALTHY, STOPPED, HANGS, SLOW, "degraded")  # nobody said an error: the last words are all there is


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line as it was seen: when, by which rank, on which node."""

    at: datetime
    rank: int
    node: str
    text: str


def diagnose(lines: Sequence[LogLine], died: str, places: Sequence[Place], dead: Sequence[int] = ()) -> Finding:
    """The Finding about ranks that ended; `died` says what was seen of the processes themselves.

    Where nobody said an error, the last words of the `dead` are quoted, the first one's first.
    """
    diagnosis, line = _said(lines)
    if line and diagnosis.failure and not diagnosis.failure.cascade:
        return _finding(diagnosis.failure, diagnosis, line, places)
    if line:
        only = ", and only consequences were said" if diagnosis.failure else ""
        return _died(f"{died}{only}: {_short(line.text)}", _evidence(line))
    own = (line for rank in dead for line in reversed(lines) if line.rank == rank)
    last = next((line for line in (*own, *reversed(lines)) if line.text.strip()), None)
    if last is None:
        return _died(f"{died}, without a word", Evidence("", "state of the ranks", datetime.now().astimezone(), died))
    return _died(
        f"{died}, without an error line; the last line of rank {last.rank}: {_short(last.text)}", _evidence(last)
    )


def _died(says: str, seen: Evidence) -> Finding:
    return Finding(Step.WATCH, Fate.UNKNOWN, "rank-died", says, (seen,))


def what_was_said(lines: Sequence[LogLine], places: Sequence[Place]) -> Finding | None:
    """The first error of all ranks that is no consequence, when the catalogue knows it; None: nobody said one."""
    diagnosis, line = _said(lines)
    if line is None or diagnosis.failure is None or diagnosis.failure.cascade:
        return None
    return _finding(diagnosis.failure, diagnosis, line, places)


def diagnose_silence(lines: Sequence[LogLine], places: Sequence[Place]) -> Finding | None:
    """What a start that is proven to stand still is known to hang of, by where its logs stopped; None: not known."""
    diagnosis = judge([_told(rank, own) for rank, own in _by_rank(lines)])
    line = _line_of(lines, diagnosis)
    if line is None or diagnosis.failure is None or diagnosis.failure.cascade:
        return None
    return _finding(diagnosis.failure, diagnosis, line, places)


def weaknesses(lines: Sequence[LogLine], lacks: Collection[str] = ()) -> tuple[Failure, ...]:
    """What works in a start that came up, but worse than it could, as sockets where there is RDMA.

    lacks: hardware that none of its nodes has, by the words of the catalogue; doing without it is no weakness.
    """
    found = judge([_told(rank, own) for rank, own in _by_rank(lines)]).degraded
    return tuple(one for one in found if one.needs not in lacks)


def _said(lines: Sequence[LogLine]) -> tuple[Diagnosis, LogLine | None]:
    """The diagnosis, and the line that says the error; None where silence alone speaks."""
    diagnosis = judge([_told(rank, own) for rank, own in _by_rank(lines)])
    return diagnosis, _line_of(lines, diagnosis) if diagnosis.kind not in _SILENT else None


def _by_rank(lines: Sequence[LogLine]) -> Iterator[tuple[int, list[LogLine]]]:
    for rank in sorted({line.rank for line in lines}):
        yield rank, [line for line in lines if line.rank == rank]


def _told(rank: int, lines: Sequence[LogLine]) -> Told:
    engine = guess_engine(line.text for line in islice(lines, BEGINNING))
    scan = Scan(str(rank), engine, read_lore(engine).phases if engine else ())
    for line in lines:
        scan.line(line.text, line.at.timestamp())
    return scan.told()


def _line_of(lines: Sequence[LogLine], diagnosis: Diagnosis) -> LogLine | None:
    """The line as it was seen; a rank's lines are numbered from 1."""
    primary = diagnosis.primary
    if primary is None:
        return None
    own = (line for line in lines if str(line.rank) == primary.file)
    return next(islice(own, primary.line - 1, None), None)


def _finding(failure: Failure, diagnosis: Diagnosis, line: LogLine, places: Sequence[Place]) -> Finding:
    place = next((place for place in places if place.node == line.node), None)
    words = {
        **diagnosis.groups,
        "node": line.node,
        "interface": (place and place.interface) or "",
        "address": place.address if place else "",
        "head": places[0].address if places else "",
    }
    change = _change(failure, words, line.node) if failure.fate is Fate.ADJUST else None
    fate = failure.fate if failure.fate is not Fate.ADJUST or change else Fate.UNKNOWN
    says = fill(failure.says, words) if failure.says else failure.cause.partition(". ")[0].rstrip(".")
    advice = "" if change else "; else ".join(remedy.told(words) for remedy in failure.remedies[:2])
    return Finding(Step.WATCH, fate, failure.id, says, (_evidence(line),), change, advice, failure.scope)


def _change(failure: Failure, words: Mapping[str, str], node: str) -> Setting | None:
    """The one setting to change; None when the first remedy is none, or a fact for it is missing."""
    remedy = next(iter(failure.remedies), None)
    if remedy is None or not remedy.is_a_setting:
        return None
    kind: Literal["env", "flag"] = "env" if remedy.kind == "env" else "flag"
    where = node if remedy.node == "affected" else None
    if remedy.unset:
        return Setting(kind, remedy.name, None, where)
    value = fill(remedy.value or "", words)
    return Setting(kind, remedy.name, value, where) if value or not remedy.value else None


def _evidence(line: LogLine) -> Evidence:
    return Evidence(line.node, f"log of rank {line.rank}", line.at, _short(line.text))


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"
