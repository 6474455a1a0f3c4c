"""The memory: nothing is changed or lost in it, two bascules may write at once, and no secret is in it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bascule.core.nouns import Artefact, Candidate, RankPlan, Setting
from bascule.errors import BasculeError
from bascule.journal import Event, Journal


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    run = journal.begin(service="s", nodes=["a"])
    journal.record(run, "try", candidate=Candidate("c", "vllm", Artefact("venv", "/v"), "/m"), because="it is first")
    journal.record(journal.begin(service="t"), "other")
    events = Journal(tmp_path).events(run)
    assert [event.kind for event in events] == ["run-started", "try"]
    assert events[0].data == {"service": "s", "nodes": ["a"]}
    assert events[1].data["candidate"]["artefact"] == {"kind": "venv", "ref": "/v", "python": ""}
    assert abs((datetime.now(UTC) - events[1].at).total_seconds()) < 60


def test_the_newest_run_comes_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert [journal.begin(service=name) for name in "ab"] == [1, 2]
    journal.record(1, "run-ended", status=0)
    assert [(event.run, event.data["service"]) for event in journal.starts()] == [(2, "b"), (1, "a")]


def test_listeners_hear_what_is_written(tmp_path: Path) -> None:
    journal, heard = Journal(tmp_path), list[Event]()
    journal.listen(heard.append)
    run = journal.begin(service="s")
    journal.record(run, "phase", rank=0)
    assert [(event.run, event.kind, event.data) for event in heard] == [
        (1, "run-started", {"service": "s"}),
        (1, "phase", {"rank": 0}),
    ]


@pytest.mark.parametrize(
    "change", ["UPDATE event SET kind = 'x'", "DELETE FROM event", "REPLACE INTO event VALUES (1,1,'','','')"]
)
def test_the_database_itself_refuses_to_change_the_past(tmp_path: Path, change: str) -> None:
    journal = Journal(tmp_path)
    journal.begin(service="s")
    before = journal.events(1)
    with sqlite3.connect(tmp_path / "journal.db") as database, pytest.raises(sqlite3.IntegrityError):
        database.execute(change)
    assert journal.events(1) == before


def test_a_reader_does_not_stop_the_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(service="s")
    reader = sqlite3.connect(tmp_path / "journal.db", timeout=0, isolation_level=None)
    assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM event").fetchone() == (1,)
    journal.record(1, "phase")
    assert reader.execute("SELECT count(*) FROM event").fetchone() == (1,), "its own moment"
    reader.close()


MANY = """
import sys
from pathlib import Path
from bascule.journal import Journal
sys.stdin.readline()
journal = Journal(Path(sys.argv[1]))
for _ in range(40):
    run = journal.begin(service="s")
    journal.record(run, "phase")
    print(run)
"""


def test_processes_that_write_at_once_get_runs_of_their_own(tmp_path: Path) -> None:
    """They open a journal that isn't there yet, at the same moment."""
    folder = tmp_path / "new"
    command = [sys.executable, "-c", MANY, str(folder)]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    told = [writer.communicate(timeout=60)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    assert sorted(int(run) for runs in told for run in runs) == list(range(1, 161))
    assert all([event.kind for event in Journal(folder).events(run)] == ["run-started", "phase"] for run in (1, 160))


def test_a_begin_that_fails_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(TypeError):
        journal.begin(service=object())
    assert journal.starts() == []
    assert journal.begin(service="s") == 1


def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    journal, secret = Journal(tmp_path), "hf_s3cr3t"
    settings = (Setting("env", "HF_TOKEN", secret), Setting("flag", "--api-key", secret))
    candidate = Candidate("c", "vllm", Artefact("venv", "/v"), "/m", settings)
    words = ("vllm", "--api-key", secret, f"--hf-token={secret}")
    rank = RankPlan(0, "a", words, {"HF_TOKEN": secret, "X": "plain"}, candidate.artefact)
    journal.record(
        journal.begin(service="s"), "launch", candidate=candidate, ranks=[rank], deep=[{"A_PASSWORD": secret}]
    )
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"plain" in stored
    assert secret.encode() not in stored


@pytest.mark.parametrize("broken", ["no folder", "no database"])
def test_a_journal_that_can_not_be_opened_is_told(tmp_path: Path, broken: str) -> None:
    folder = tmp_path / "state"
    if broken == "no folder":
        folder.write_text("a file where the folder should be")
    else:
        folder.mkdir()
        (folder / "journal.db").write_text("this is no database, but long enough to be taken for one" * 100)
    with pytest.raises(BasculeError, match=f"the journal in {folder} can't be opened") as caught:
        Journal(folder)
    assert (caught.value.code, caught.value.exit_status, caught.value.advice) == ("journal", 1, "set XDG_STATE_HOME")
    assert caught.value.seen


def test_it_lies_in_the_state_folder(state: Path) -> None:
    Journal().begin(service="s")
    assert (state / "bascule/journal.db").exists()


def test_evidence_has_a_folder_for_each_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.evidence_dir(3) == journal.evidence_dir(3) == tmp_path / "evidence/3"
    assert journal.evidence_dir(4).is_dir()
