"""The lines of one log that say that something went wrong, with each traceback kept whole (pure).

Several processes write into one log. A traceback is followed by its process, and by the place that logged it where
every line has one; what another process says in between is not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from bascule.watch.prefixes import Head, take_apart

OPEN_AT_ONCE = 64  # tracebacks of as many processes
FRAMES_KEPT = 40  # the innermost
LINES_KEPT = 24  # of what the exceptions of one record say
STRAY = 12  # lines that fit nothing before a traceback is taken to have been cut off

# Words that a block of text must have for its lines to be looked at one by one.
ALARMS = ("rror", "xception", "Traceback", "ERROR", "CRITICAL", "FATAL", "atal", "NCCL WARN", "WARN", "Killed", "Abort",
          "Segmentation", "what():", "Interrupt", " E ", "terminate called")  # fmt: skip

_TRACE = "Traceback (most recent call last):"
_CHAIN = re.compile(r"(?:During handling of the above exception|The above exception was the direct cause)")
_NAMED = re.compile(r"(?:[A-Za-z_][\w]*\.)*[A-Za-z_]\w*(?::(?: |$)|$)")
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure)\b(?::|$)|\s*Value error, |\s*what\(\): "
    r"|Fatal Python error: |\[rank\d+\]: (?:[A-Za-z_]\w*\.)*\w+Error: |Exception: "
)
_MARKED = re.compile(
    r"(?<!\w)(?:ERROR|CRITICAL|FATAL|Segmentation fault|Killed|Aborted)(?!\w)|(?<![A-Za-z])(?:[Ee]rror|fatal)\s*: "
    r"|Error response from daemon|NCCL WARN|terminate called after"
)
_NO_ERROR = re.compile(r"UserWarning|FutureWarning|DeprecationWarning|\(ignored\)|^\s*raise\b|willRetry=1")
_QUIET = ("DEBUG", "INFO", "WARNING", "TRACE")
_LOUD = ("ERROR", "CRITICAL", "FATAL")
_FRAME = re.compile(r"\s|[\^|+~]")


class Kind(Enum):
    """How an error was said."""

    RAISED = auto()  # an exception, or what ends a process
    MARKED = auto()  # a line that calls itself an error
    LINE = auto()  # any other


@dataclass(frozen=True, slots=True)
class Line:
    """A line by its number in the file, from 1, without what stands before its words."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """Something that was said, over one line or many. `said` has the exceptions of a chain, the first cause first."""

    kind: Kind
    said: tuple[Line, ...]
    head: Head  # of its first line
    frames: tuple[Line, ...] = ()
    title: str = ""  # what stood above the traceback

    @property
    def first(self) -> Line:
        """The line that tells most: the first cause, or the detail below a validation error."""
        first = self.said[0]
        detail = self.said[1] if len(self.said) > 1 else first
        return detail if "validation error" in first.text and "error, " in detail.text else first

    @property
    def is_quiet(self) -> bool:
        """True when it was logged as a warning or less, and nothing was raised to the end of a process."""
        return self.head.level in _QUIET and "NCCL WARN" not in self.said[0].text


class _At(Enum):
    FRAMES = auto()
    SAID = auto()
    CHAIN = auto()


@dataclass
class _Block:
    """A traceback that is still being written."""

    head: Head
    began: int
    title: str = ""
    bare: bool | None = None  # whether its lines come without prefix; told by the second one
    state: _At = _At.FRAMES
    said: list[Line] = field(default_factory=list)
    frames: list[Line] = field(default_factory=list)
    strays: int = 0

    def takes(self, number: int, head: Head) -> bool:
        """Take up a line if it is part of this traceback."""
        text = head.text
        if self.state is _At.SAID:
            return self._takes_more(number, text)
        if self.state is _At.CHAIN:
            if text.startswith(_TRACE):
                self.state = _At.FRAMES
            return not text.strip() or self.state is _At.FRAMES
        if not text.strip() or _FRAME.match(text):
            self.frames = [*self.frames[1 - FRAMES_KEPT :], Line(number, text)]
            return True
        if _NAMED.match(text):
            self._says(number, text)
            self.state = _At.SAID
            return True
        self.strays += 1
        return self.bare is False or self.strays < STRAY

    def _takes_more(self, number: int, text: str) -> bool:
        if _CHAIN.match(text):
            self.state = _At.CHAIN
        elif text.startswith(_TRACE) or (_RAISED.match(text) and not text[0].isspace()):
            return False
        elif text.strip() and self.head.where:
            self._says(number, text)  # every line has the prefix: all are of one message
        elif text.strip() and text[0].isspace():
            self._says(number, text)
        elif text.strip():
            return False
        return True

    def _says(self, number: int, text: str) -> None:
        if len(self.said) < LINES_KEPT:
            self.said.append(Line(number, text))

    def record(self) -> Record:
        """What it was; one that was cut off before its exception tells its last frame."""
        last = [*(line for line in self.frames if line.text.strip()), Line(self.began, _TRACE)]
        said = tuple(self.said) or (last[-2] if len(last) > 1 else last[-1],)
        return Record(Kind.RAISED, said, self.head, tuple(self.frames), self.title)


class Folder:
    """Takes up the lines of a log in order, and gives back what was said once it is complete."""

    def __init__(self) -> None:
        self._open: dict[str, _Block] = {}
        self._loose = ""  # the process whose traceback may go on in lines without prefix
        self._titles: dict[str, tuple[int, Record]] = {}

    @property
    def is_open(self) -> bool:
        """True while a traceback, or a line that may be its title, waits for what comes next."""
        return bool(self._open or self._titles)

    def feed(self, number: int, raw: str, at: float | None = None) -> list[Record]:
        """One more line; `at` where it is known from elsewhere when it was said."""
        head = take_apart(raw) if at is None else replace(take_apart(raw), at=at)
        key = self._key(head)
        block = self._open.get(key)
        if block is not None:
            block.bare = head.is_bare if block.bare is None else block.bare
            if (
                block.bare == head.is_bare
                and head.where == ("" if block.bare else block.head.where)
                and block.takes(number, head)
            ):
                return []
        if block is not None and (block.bare == head.is_bare or block.state is not _At.FRAMES):
            return [self._open.pop(key).record(), *self._begin(key, number, head)]
        return self._begin(key, number, head)

    def close(self) -> list[Record]:
        """What is left when the log ends."""
        titles = [record for _, record in self._titles.values()]
        blocks = [block.record() for block in self._open.values()]
        self._open, self._titles = {}, {}
        return [*titles, *blocks]

    def _key(self, head: Head) -> str:
        """The process; a line without prefix goes on with the traceback that was begun last, if that may be."""
        if head.is_bare and (loose := self._open.get(self._loose)) and loose.bare is not False:
            return self._loose
        return head.process

    def _begin(self, key: str, number: int, head: Head) -> list[Record]:
        at, title = self._titles.pop(head.process, (0, None))
        record = _record(number, head)
        if head.text.endswith(_TRACE) or head.text.startswith(_TRACE):
            done = []
            joined = title if title and _is_title(title, at, number, head) else None
            if title and not joined:
                done = [title]
            if len(self._open) >= OPEN_AT_ONCE:
                done.append(self._open.pop(next(iter(self._open))).record())
            words = joined.said[0].text if joined else head.text.removesuffix(_TRACE)
            self._open[head.process] = _Block(joined.head if joined and head.is_bare else head, number, words)
            self._loose = head.process
            return done
        done = [title] if title else []
        if record.kind is Kind.RAISED and head.process not in self._open:
            said = Line(number, head.text)
            self._open[head.process] = _Block(head, number, bare=head.is_bare, state=_At.SAID, said=[said])
            self._loose = head.process
            return done
        if record.kind is not Kind.LINE or "Exception ignored in" in head.text:
            if len(self._titles) >= OPEN_AT_ONCE:
                done.append(self._titles.pop(next(iter(self._titles)))[1])
            self._titles[head.process] = (number, record)
            return done
        return [*done, record]


def fold(lines: Sequence[tuple[int, str]]) -> Iterator[Record]:
    """Everything that a whole log says."""
    folder = Folder()
    for number, raw in lines:
        yield from folder.feed(number, raw)
    yield from folder.close()


def _is_title(title: Record, at: int, number: int, head: Head) -> bool:
    """`ERROR … [x.py:1] It failed.` above its traceback: the same logger said both, or the lines touch."""
    return (title.head.where == head.where and bool(head.where)) or number == at + 1


def _record(number: int, head: Head) -> Record:
    return Record(_kind(head), (Line(number, head.text),), head)


def _kind(head: Head) -> Kind:
    if not head.text.strip() or _NO_ERROR.search(head.text):
        return Kind.LINE
    if head.level not in _QUIET and _RAISED.match(head.text):
        return Kind.RAISED
    if head.level in _LOUD or (_MARKED.search(head.text) and (head.level not in _QUIET or "NCCL WARN" in head.text)):
        return Kind.MARKED
    return Kind.LINE
