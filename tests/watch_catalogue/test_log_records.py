"""Lines taken apart and tracebacks kept whole, whoever wrote them and whatever another process said in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.watch.prefixes import take_apart
from bascule.watch.records import Kind, Record, fold
from watch_catalogue.logs_of import diagnosis

DAY = 86400


@pytest.mark.parametrize(
    ("line", "level", "process", "text"),
    [
        ("(Worker_TP0 pid=100) INFO 01-02 00:00:09 [a.py:1930] says", "INFO", "Worker_TP0 pid=100", "says"),
        ("[2026-01-02 00:00:09 DP0 TP1 EP0] says", "", "DP0 TP1 EP0", "says"),
        ("[2026-01-02 00:00:09] says", "", "", "says"),
        ("[W102 00:00:09.123456789 TCPStore.cpp:358] [c10d] says", "WARNING", "", "[c10d] says"),
        ("[rank1]:[E102 00:00:09.1 a.cpp:8] says", "ERROR", "rank1", "says"),
        ("W0102 00:00:09.731000 32202 torch/x.py:53] says", "WARNING", "", "says"),
        ("[2026-01-02 00:00:09,123 E 1 1] gcs.h:1: says", "ERROR", "", "gcs.h:1: says"),
        ("2026-01-02T00:00:09.123Z INFO:     says", "INFO", "", "says"),
        ("2026-01-02 00:00:09,123 - a.b - ERROR - says", "ERROR", "", "says"),
        ("Jan  2 00:00:09 host kernel: says", "", "", "says"),
        ("ERROR 01-02 00:00:09 engine.py:366] says", "ERROR", "", "says"),
    ],
)
def test_a_prefix_tells_time_level_and_process(line: str, level: str, process: str, text: str) -> None:
    head = take_apart(line)
    assert (head.level, head.process, head.text) == (level, process, text)
    assert head.at is not None and int(head.at) == DAY + 9


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("node-a:1:20 [0] misc/ib.cc:217 (wrap) NCCL WARN Call", "WARNING", "NCCL WARN Call"),
        ("[1] include/shm.h:28 NCCL WARN x", "", "[1] include/shm.h:28 NCCL WARN x"),
        ("+ 103.4 0.00.005.493 E llama: x", "ERROR", "llama: x"),
        ("r0-1  | ERROR:    x", "ERROR", "x"),
        ("[rank0]: Traceback (most", "", "Traceback (most"),
        ("\x1b[36m(A pid=1)\x1b[0m x", "", "x"),
        ("12 apples", "", "12 apples"),
        ("", "", ""),
    ],
)
def test_a_prefix_without_a_time_of_day_is_taken_off_too(line: str, level: str, text: str) -> None:
    head = take_apart(line)
    assert (head.level, head.text, head.at) == (level, text, None)


def records(text: str) -> list[Record]:
    every = fold(list(enumerate(text.split("\n"), 1)))
    return sorted((one for one in every if one.kind is not Kind.LINE), key=lambda one: one.first.number)


VLLM = """\
(Worker pid=7) ERROR 01-01 00:00:00 [m.py:9] It failed to start.
(Worker pid=7) ERROR 01-01 00:00:00 [m.py:9] Traceback (most recent call last):
(Worker pid=7) ERROR 01-01 00:00:00 [m.py:9]   File "a.py", line 1, in f
(API pid=1) INFO 01-01 00:00:00 [x.py:1] I am another process
  warnings.warn(and a third)
(Worker pid=7) ERROR 01-01 00:00:00 [m.py:9]     raise Odd("x")
(Worker pid=7) ERROR 01-01 00:00:00 [m.py:9] acme.Odd: x
(Worker pid=7) ERROR 01-01 00:00:00 [m.py:9] and more of x
(Worker pid=7) INFO 01-01 00:00:00 [m.py:12] done"""


def test_a_traceback_with_prefixes_is_one_record_with_its_title() -> None:
    (one,) = records(VLLM)
    assert (one.kind, one.first.number, one.first.text) == (Kind.RAISED, 7, "acme.Odd: x")
    assert (one.title, one.said[1].text) == ("It failed to start.", "and more of x")
    assert [frame.number for frame in one.frames] == [3, 6]


SGLANG = """\
[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
[2026-01-01 00:00:01 TP1] another rank
ValueError: second
[2026-01-01 00:00:01] Received sigquit from a child process."""


def test_of_a_chain_the_first_cause_counts_and_lines_without_prefix_go_on_with_it() -> None:
    one = records(SGLANG)[0]
    assert [(line.number, line.text) for line in one.said] == [(3, "KeyError: 'first'"), (10, "ValueError: second")]
    assert one.title == "Scheduler hit an exception: "
    found = diagnosis(SGLANG)
    assert found.primary and (found.primary.line, found.cascades) == (3, 1)


def test_a_validation_error_is_told_by_its_detail() -> None:
    text = "Traceback (most recent call last):\n  File\nValidationError: 1 validation error for X\n  Value error, odd"
    (one,) = records(text)
    assert (one.first.number, one.first.text) == (4, "  Value error, odd")


def test_two_processes_write_their_tracebacks_into_each_other() -> None:
    a, b = (VLLM.replace("pid=7", f"pid={pid}").replace("acme.Odd: x", f"acme.Odd: {pid}") for pid in (8, 9))
    mixed = "\n".join(line for pair in zip(a.split("\n"), b.split("\n"), strict=True) for line in pair)
    assert [one.first.text for one in records(mixed)] == ["acme.Odd: 8", "acme.Odd: 9"]


def test_a_traceback_that_is_cut_off_tells_its_last_frame() -> None:
    (one,) = records("Traceback (most recent call last):\n  File 1\n  File 2")
    assert (one.first.number, one.first.text) == (3, "  File 2")


@pytest.mark.parametrize(
    "line",
    [
        "/venv/x.py:13: UserWarning: Failed to load: ValueError: no",
        '    raise ValueError("the line of code")',
        "PackageNotFoundError: x (ignored)",
        "(W pid=1) WARNING 01-01 00:00:00 [x.py:1] this can cause OSError: [Errno 24] Too many open files",
        "INFO 01-01 00:00:00 [x.py:1] error: none",
        "(W pid=1) ERROR 01-01 00:00:00 [x.py:1] ",
    ],
)
def test_a_warning_or_a_line_of_code_is_no_error(line: str) -> None:
    assert records(line) == []
    assert diagnosis(line).failure is None


@pytest.mark.parametrize(
    "line",
    ["what():  odd", "Fatal Python error: Segmentation fault", "x.OddError: y", "KeyboardInterrupt", "AssertionError"],
)
def test_what_ends_a_process_is_an_error(line: str) -> None:
    assert [one.kind for one in records(line)] == [Kind.RAISED]


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from((VLLM + SGLANG).split("\n"))), max_size=40))
def test_anything_can_be_read(lines: list[str]) -> None:
    one = diagnosis("\n".join(lines))
    numbers = "\n".join(lines).count("\n") + 1
    assert one.primary is None or 1 <= one.primary.line <= numbers
