"""Logs that are taken up near their end: of a service that has run for months nobody reads the beginning."""

from __future__ import annotations

import asyncio
import time

from bascule.core.nouns import RECENT
from bascule.launch.venv import VenvRuntime
from bascule.remote.docker import parse_glimpses
from bascule.remote.local import LocalRunner


def observed(ranks, cursor):
    (glimpse,) = asyncio.run(VenvRuntime().observe(LocalRunner(ranks.node), ranks.node, {ranks.names[0]: cursor}))
    return glimpse


def test_the_end_of_a_long_log_is_read_and_then_what_follows(ranks):
    ranks.start("seq -w 20000; echo end; while [ ! -e ../go ]; do sleep 0.1; done; echo more; sleep 100")
    ranks.wait_for("end")
    first = observed(ranks, RECENT)
    assert len(first.gained) == 65536
    assert first.gained.endswith(b"20000\nend\n")
    assert first.cursor == str(20000 * 6 + 4)
    (ranks.folder / "go").touch()
    ranks.wait_for("more")
    assert observed(ranks, first.cursor).gained == b"more\n"


def test_a_short_log_is_read_whole(ranks):
    ranks.start("echo one; echo two; sleep 100")
    ranks.wait_for("two")
    assert observed(ranks, RECENT).gained == b"one\ntwo\n"


def test_the_newest_lines_of_a_container_are_taken_up():
    log = b"2026-12-01T10:00:00.100000000Z one\n2026-12-01T10:00:00.200000000Z two\n"
    (glimpse,) = parse_glimpses(b"=== s.1.1.r0 running 0 false %s %d\n%s\n" % (RECENT.encode(), len(log), log))
    assert (glimpse.gained, glimpse.cursor) == (b"one\ntwo\n", "2026-12-01T10:00:00Z,2")


def test_a_status_for_which_the_disk_had_no_room_is_not_known(ranks):
    ranks.start("echo over")
    status, until = ranks.folder / ranks.names[0] / "exit", time.monotonic() + 30
    while not status.exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    status.write_text("")
    assert observed(ranks, "").exit_code is None
