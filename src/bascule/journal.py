"""The memory: an append-only SQLite file of events (WAL), with evidence files beside it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bascule import settings
from bascule.core.plain import to_plain
from bascule.errors import BasculeError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  at TEXT NOT NULL,        -- UTC, ISO 8601
  kind TEXT NOT NULL,
  data TEXT NOT NULL       -- JSON
) STRICT;
CREATE INDEX IF NOT EXISTS event_by_run ON event (run, id);
CREATE TRIGGER IF NOT EXISTS event_is_never_changed BEFORE UPDATE ON event
  BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER IF NOT EXISTS event_is_never_removed BEFORE DELETE ON event
  BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER IF NOT EXISTS event_is_never_replaced BEFORE INSERT ON event WHEN NEW.id IN (SELECT id FROM event)
  BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was seen, decided or done in a run."""

    run: int
    at: datetime
    kind: str
    data: dict[str, Any]


class Journal:
    """Events of all runs on this controller; several processes may write at once."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or settings.state_dir()
        self._listeners: list[Callable[[Event], None]] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.folder / "journal.db", timeout=10, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as trouble:
            raise BasculeError(
                "journal",
                f"the journal in {self.folder} can't be opened",
                seen=str(trouble),
                advice="set XDG_STATE_HOME",
            ) from trouble

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call listener with every event that this process records from now on."""
        self._listeners.append(listener)

    def begin(self, **data: Any) -> int:
        """Open a new run and give back its number."""
        with self._writing():
            run = int(self._db.execute("SELECT coalesce(max(run), 0) + 1 FROM event").fetchone()[0])
            event = self._insert(run, "run-started", data)
        self._tell(event)
        return run

    def record(self, run: int, kind: str, **data: Any) -> None:
        """Append one event; dataclasses are written as plain data, secrets masked."""
        self._tell(self._insert(run, kind, data))

    def events(self, run: int, *kinds: str) -> list[Event]:
        """All events of a run, or those of these kinds, in order."""
        only = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        rows = self._db.execute(
            f"SELECT run, at, kind, data FROM event WHERE run = ?{only} ORDER BY id",  # question marks alone
            (run, *kinds),
        )
        return [_event(*row) for row in rows]

    def starts(self) -> list[Event]:
        """The first event of every run, newest first."""
        rows = self._db.execute("SELECT run, at, kind, data FROM event WHERE kind = 'run-started' ORDER BY run DESC")
        return [_event(*row) for row in rows]

    def evidence_dir(self, run: int) -> Path:
        """The folder for files of this run."""
        path = self.folder / "evidence" / str(run)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _insert(self, run: int, kind: str, data: dict[str, Any]) -> Event:
        event = Event(run, datetime.now(UTC), kind, to_plain(data))
        self._db.execute(
            "INSERT INTO event (run, at, kind, data) VALUES (?, ?, ?, ?)",
            (run, event.at.isoformat(timespec="milliseconds"), kind, json.dumps(event.data)),
        )
        return event

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _event(run: int, at: str, kind: str, data: str) -> Event:
    return Event(run, datetime.fromisoformat(at), kind, json.loads(data))
