"""The files of evidence: samples as CSV, and the times that lines of logs carry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.watch.clocks import time_of, timed
from bascule.watch.samples import COUNTERS, GAUGES, Sample, Socket
from bascule.watch.samples_csv import NotSamples, from_csv, to_csv

names = st.text("abcxyz0189+_.-", min_size=1, max_size=15)
sockets = st.builds(
    Socket,
    st.sampled_from(["LISTEN", "SYN-SENT", "ESTABLISHED"]),
    st.sampled_from(["10.0.0.1:80", "[::1]:28028"]),
    st.sampled_from(["", "10.88.1.2:42085"]),
)
samples = st.builds(
    Sample,
    st.integers(0, 99),
    st.integers(0, 10**9).map(lambda ms: ms / 1000),
    st.dictionaries(st.sampled_from(COUNTERS + GAUGES), st.integers(0, 10**14).map(float), max_size=14),
    st.lists(sockets, max_size=3).map(tuple),
    st.lists(names, max_size=3).map(tuple),
)


@given(st.lists(samples, max_size=20))
def test_samples_come_back_as_they_were_written(written):
    read = from_csv(to_csv(written))
    assert sorted(read) == sorted({sample.rank for sample in written})
    for rank, rows in read.items():
        assert rows == sorted((s for s in written if s.rank == rank), key=lambda sample: sample.at)


def test_what_could_not_be_read_is_an_empty_cell_and_stays_missing():
    text = to_csv([Sample(1, 2.5, {"cpu_s": 0.0, "memory_bytes": 1.5e9})])
    assert text.splitlines()[0].startswith("rank,at,log_bytes,cpu_s,read_bytes,")
    assert text.splitlines()[1].startswith("1,2.500,,0,,")
    assert from_csv(text)[1][0].values == {"cpu_s": 0.0, "memory_bytes": 1.5e9}


def test_rows_can_be_added_and_columns_that_nobody_knows_are_passed_over():
    first = to_csv([Sample(0, 1.0, {"cpu_s": 1.0})])
    assert len(from_csv(first + to_csv([Sample(0, 2.0, {"cpu_s": 2.0})], header=False))[0]) == 2
    assert from_csv("at,rank,weather,cpu_s\n3,0,fine,7\n") == {0: [Sample(0, 3.0, {"cpu_s": 7.0})]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: no columns `rank` and `at`"),
        ("a,b\n1,2\n", "line 1: no columns `rank` and `at`"),
        ("rank,at\nx,1\n", "line 2: rank 'x' is no number"),
        ("rank,at,cpu_s\n0,1,2\n0,1,nan\n", "line 3: 'nan' is not finite"),
        ("rank,at,cpu_s\n0,1,many\n", "line 2: could not convert string to float: 'many'"),
        ("rank,at\n0,\n", "line 2: could not convert string to float: ''"),
        ("rank,at\n0,1e999\n", "line 2: '1e999' is not finite"),
        ("rank,at,cpu_s\n0,1," + "x" * 200_000, "line 1: field larger than field limit (131072)"),
        ("x" * 200_000, "line 0: field larger than field limit (131072)"),
    ],
)
def test_what_is_no_table_of_samples_is_told(text, says):
    with pytest.raises(NotSamples) as told:
        from_csv(text)
    assert str(told.value) == says


@pytest.mark.parametrize(
    ("line", "other", "apart"),
    [
        ("[2026-11-30 19:55:24 TP0] x", "[2026-11-30 19:56:25 TP1] x", 61),
        ("(Worker pid=1) INFO 11-30 19:18:16 [x.py:1] x", "INFO 11-30 20:18:16 [y.py:1] x", 3600),
        ("[W1130 19:42:47.500000000 utils.cpp:68] x", "W1130 19:42:48.253000 31620 x.py:53] x", 0.753),
        ("2026-11-30T19:55:24.250000000Z x", "2026-11-30 19:55:25,500 - INFO - x", 1.25),
        ("INFO 11-30 19:18:16 x", "[2026-11-30 19:18:17 TP0] x", 1),
        ("0.00.044.706 I cmn x", "1.02.045.706 I srv x", 62.001),
    ],
)
def test_lines_tell_their_time(line, other, apart):
    assert time_of(other) - time_of(line) == pytest.approx(apart, abs=1e-6)


@pytest.mark.parametrize(
    "line", ["", "  warn(", "INFO 13-45 99:99:99 x", "vm:1:1 [0] NCCL INFO x", "x" * 500 + "2026-11-30 19:55:24"]
)
def test_lines_without_a_time_have_none(line):
    assert time_of(line) is None


def test_times_never_go_back_and_lines_without_one_have_that_of_the_line_before():
    lines = ["first", "INFO 11-30 10:00:05 a", "trace", "INFO 11-30 10:00:03 b", "INFO 11-30 10:00:07 c"]
    times = [at for at, _ in timed(lines)]
    assert times[0] is None
    assert [at - times[1] for at in times[1:]] == [0, 0, 0, 2]


def test_a_start_over_new_year_goes_on():
    before, after = (at for at, _ in timed(["INFO 12-31 23:59:59 a", "INFO 01-01 00:00:01 b"]))
    assert after - before == 2


def test_recorded_seconds_are_put_on_the_clock_of_the_lines_and_taken_off():
    rows = list(timed(["+  18.5 warn(", "+  28.1 (APIServer pid=1) INFO 11-30 19:42:16 x", "+  30.1 y"]))
    assert [text for _, text in rows] == ["warn(", "(APIServer pid=1) INFO 11-30 19:42:16 x", "y"]
    assert [at - time_of(rows[1][1]) for at, _ in rows] == pytest.approx([-9.6, 0, 2])
    assert [text for _, text in timed(["2026-11-30T19:55:24.25Z listening http://a:1"])] == ["listening http://a:1"]
