"""One rank's log, read once from its beginning to its end: where it came to, and what went wrong on the way (pure).

A log may have hundreds of megabytes. A line in which no word of any failure, error or phase stands is only counted, and
so are all lines like it. What is kept of a log is bounded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from bascule.engines.base import READY, Phase
from bascule.watch.catalogue import SAYS_IT, Failure, all_words, engine_marks, literals, said_by, shortest
from bascule.watch.phases import advance, begin
from bascule.watch.prefixes import take_apart, without_recorder
from bascule.watch.records import ALARMS, Folder, Kind, Line, Record
from bascule.watch.told import Step, Told, Trouble

KEPT = 100  # troubles of one sort; the first ones matter
COLD = 20_000  # shapes of lines that are remembered as saying nothing
BACK = 32  # lines in which the time of a line without one is looked for
YEAR_TURNS = 180 * 86400.0  # seconds that a clock must fall back for the year to have changed
_YEAR = 366 * 86400.0

_WORKER = re.compile(
    r"headless multiproc executor|['\"]?node_rank['\"]?[=:] ?[1-9]|--node-rank[= ][1-9]|--headless"
    r"|\brank=[1-9]\d* local_rank=0\b"
)
_NO_NUMBERS = dict.fromkeys(map(ord, "0123456789abcdef"))
_ANSWER = re.compile(r"(?:data: )?\{.*\"choices\"")
_NOISE = re.compile(
    r"\s+\S|\[EOF|.*(?:\bUserWarning\b|FutureWarning|DeprecationWarning|leaked (?:semaphore|shared_memory) objects)"
)
_HERE = ("node_rank", "node-rank", "headless", "local_rank=0", '"choices"')


def guess_engine(lines: Iterable[str]) -> str | None:
    """Whose log it is, by the marks that most of its lines have; None when none has any."""
    counts = dict.fromkeys(engine_marks(), 0)
    for line in lines:
        for engine, mark in engine_marks().items():
            counts[engine] += bool(mark.search(line[:2000]))
    best = max(counts, key=lambda engine: counts[engine])
    return best if counts[best] else None


class Scan:
    """Takes up a log in order."""

    def __init__(self, name: str, engine: str | None, phases: Sequence[Phase]) -> None:
        self._name, self._engine = name, engine
        failures = said_by(engine)
        self._say = [one for one in failures if one.mode in SAYS_IT and one.kind not in ("cascade", "benign")]
        self._consequence = [one for one in failures if one.kind == "cascade"]
        self._benign = [one for one in failures if one.kind == "benign"]
        self._answer = [one for one in failures if one.mode == "response"]
        self._repeat = [one for one in failures if one.mode == "repeat"]
        self._when = {pattern.pattern: pattern for one in failures for pattern in one.when.patterns}
        asked = [word for pattern in self._when for word in literals(pattern)]
        one_is_enough = [one for one in failures if one.mode not in ("newest", "response")]
        self._words = shortest((*ALARMS, *all_words(one_is_enough), *asked, *_HERE))
        self._cold: dict[str, bool] = {}
        self._progress = begin(phases, 0.0) if phases else None
        self._ahead = self._words_ahead()
        self._folder = Folder()
        self._number, self._is_worker = 0, False
        self._steps: list[Step] = []
        self._lists: dict[str, list[Trouble]] = {"troubles": [], "consequences": [], "degraded": [], "stops": []}
        self._cascades, self._notices = 0, 0
        self._notice: Trouble | None = None
        self._newest: Line | None = None
        self._said: dict[str, int] = {}
        self._back: deque[str] = deque(maxlen=BACK)
        self._began: float | None = None
        self._last_at: float | None = None
        self._newest_at: float | None = None
        self._given: float | None = None

    def block(self, text: str) -> None:
        """Some whole lines, joined by newlines, without the last newline."""
        lines = text.split("\n")
        quiet = (0, "")
        for line, shape in zip(lines, text.translate(_NO_NUMBERS).split("\n"), strict=True):
            counts = self._cold.get(shape)
            if counts is None:
                counts = self._look(line, shape)
            if counts is not None and self._number >= BACK and not self._folder.is_open:
                self._number += 1
                self._back.append(line)
                quiet = (self._number, line) if counts else quiet
                continue
            self._hear(*quiet)
            quiet = (0, "")
            self.line(line)
        self._hear(*quiet)

    def line(self, raw: str, at: float | None = None) -> None:
        """One line; `at` where it is known from elsewhere when it was said."""
        self._number += 1
        self._given = at
        raw = raw.removesuffix("\r")
        for text in raw.split("\r") if "\r" in raw else (raw,):
            if text or text is raw:
                self._piece(text)

    def told(self) -> Told:
        """What it was, at the end."""
        for record in self._folder.close():
            self._take(record)
        lists = {name: tuple(sorted(some, key=lambda one: one.line.number)) for name, some in self._lists.items()}
        return Told(
            self._name,
            self._engine,
            self._progress,
            tuple(self._steps),
            self._is_worker,
            lists["troubles"],
            self._cascades,
            lists["consequences"],
            next(iter(lists["stops"]), None),
            lists["degraded"],
            self._newest and Line(self._newest.number, take_apart(self._newest.text).text),
            self._newest_at if self._notice else self._time_before(len(self._back)),
            self._notice,
            self._notices,
            self._began,
            self._said,
        )

    def _piece(self, text: str) -> None:
        self._back.append(text)
        if self._began is None and self._number <= 10 * BACK:
            self._began = self._time(text)
        if self._counts(text):
            self._hear(self._number, text)
        if self._moves(text):
            self._advance(text)
        hot = self._is_hot(text)
        if hot:
            self._listen(text)
        if hot or self._folder.is_open:
            for record in self._folder.feed(self._number, text, self._given):
                self._take(record)

    def _look(self, line: str, shape: str) -> bool | None:
        """Remember a line in which nothing stands that matters, by its shape: whether it counts as the newest one.

        Lines that differ in numbers and ids alone have one shape. None for a line that may matter.
        """
        if self._is_hot(line) or self._moves(line):
            return None
        counts = self._counts(line)
        if len(self._cold) < COLD:
            self._cold[shape] = counts
        return counts

    def _is_hot(self, text: str) -> bool:
        return any(word in text for word in self._words)

    def _moves(self, text: str) -> bool:
        return any(word in text for word in self._ahead)

    def _words_ahead(self) -> tuple[str, ...]:
        """The words of the phases to come; every text has the empty one, for a phase that has none."""
        if self._progress is None:
            return ()
        rest = self._progress.phases[self._progress.index + 1 :]
        return tuple(word for phase in rest if phase.begins for word in literals(phase.begins.pattern) or ("",))

    def _advance(self, text: str) -> None:
        if self._progress is None:
            return
        before = self._progress.index
        self._progress = advance(self._progress, without_recorder(text), 0.0)
        if self._progress.index != before:
            self._steps.append(Step(self._progress.index, self._number, self._when_said(), take_apart(text).process))
            self._ahead = self._words_ahead() if self._progress.phase != READY else ()

    def _listen(self, text: str) -> None:
        """What other rules want to know of the log."""
        for source, pattern in self._when.items():
            if pattern.search(text):
                self._said[source] = self._number
        self._is_worker = self._is_worker or bool(_WORKER.search(text))

    @staticmethod
    def _counts(text: str) -> bool:
        return bool(text.strip()) and not _NOISE.match(without_recorder(text))

    def _hear(self, number: int, text: str) -> None:
        """The newest line; those that only repeat themselves are counted apart."""
        if not text:
            return
        for failure in self._repeat:
            if failure.found_in(text):
                line = Line(number, take_apart(text).text)
                if self._notice is None:
                    self._newest_at = self._time_before(len(self._back) - 1)
                self._notice = Trouble(line, self._when_said(), self._step, "", False, True, failure)
                self._notices += 1
                return
        self._newest, self._notice, self._notices = Line(number, text), None, 0

    @property
    def _step(self) -> int:
        return self._progress.index if self._progress else 0

    def _take(self, record: Record) -> None:
        failure, line, groups = self._recognise(record)
        kind = failure.kind if failure else ""
        if kind == "benign" or (failure is None and (record.kind is Kind.LINE or record.is_quiet)):
            return
        raised = record.kind is Kind.RAISED
        trouble = Trouble(
            line, self._at_of(record), self._step, record.head.process, raised, record.is_quiet, failure, groups
        )
        if kind == "cascade":
            self._cascades += 1
        quiet = kind == "degraded" and record.is_quiet
        sort = {"cascade": "consequences", "stopped": "stops"}.get(kind, "degraded" if quiet else "troubles")
        if len(self._lists[sort]) < KEPT:
            self._lists[sort].append(trouble)

    def _recognise(self, record: Record) -> tuple[Failure | None, Line, Mapping[str, str]]:
        title = [Line(record.said[0].number, record.title)] if record.title else []
        for lines, failures in (
            ([*record.said, *title], self._say),
            (record.frames, [one for one in self._say if one.mode == "frame"]),
            ([*record.said, *title], self._consequence),
            ([*record.said, *title], self._benign),
            ([line for line in record.said if _ANSWER.match(line.text)], self._answer),
        ):
            if found := _first(lines, failures):
                failure, line, groups = found
                inside = lines is record.frames or line in title
                return failure, record.first if inside else line, groups
        return None, record.first, {}

    def _at_of(self, record: Record) -> float | None:
        """When its first line was said: a record is complete, and comes here, only lines later."""
        own = record.head.at if self._given is not None else self._of_this_year(record.head.at)
        return own if own is not None else self._when_said()

    def _when_said(self) -> float | None:
        """The time of the line that was taken up last, or of the nearest one before it that has one."""
        return self._time_before(len(self._back))

    def _time_before(self, place: int) -> float | None:
        """The time of the nearest line that has one, of those that were kept up to this place."""
        if self._given is not None:
            return self._given
        kept = list(self._back)[:place]
        return next((at for text in reversed(kept) if (at := self._time(text)) is not None), self._last_at)

    def _time(self, text: str) -> float | None:
        if self._given is not None:
            return self._given
        at = self._of_this_year(take_apart(text).at)
        self._last_at = self._last_at if at is None else at
        return at

    def _of_this_year(self, at: float | None) -> float | None:
        """The time, counted on where the year has turned since the log began."""
        turned = at is not None and self._began is not None and at < self._began - YEAR_TURNS
        return at + _YEAR if turned and at is not None else at


def _first(lines: Sequence[Line], failures: Sequence[Failure]) -> tuple[Failure, Line, Mapping[str, str]] | None:
    """The failure of the first line that has one; in one line what is weak comes last."""
    for line in lines:
        found = [(failure, match) for failure in failures if (match := failure.found_in(line.text))]
        if found:
            failure, match = min(found, key=lambda pair: pair[0].weak)
            return failure, line, {name: text for name, text in match.groupdict().items() if text}
    return None
