"""What a node says is read strictly: the whole of it, or nothing."""

import io
import json
from contextlib import redirect_stdout, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.probe.kernels.fatbin import LIBRARIES, Code, FatBinary, Library, main
from bascule.probe.kernels.wire import Garbled, parse
from probe_kernels.elf_maker import library, simple

LINE = {
    "path": "a.so",
    "size": 9,
    "trouble": "",
    "binaries": [[[["ptx", 80, "", [8, 8]], ["cubin", 90, "a", None]], ["_Z1k"]]],
}


def lines(*raw: object, end: object = None) -> bytes:
    rows = [*raw, {"libraries": len(raw)} if end is None else end]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_a_library_comes_back_as_it_was():
    binary = FatBinary((Code("ptx", 80, "", (8, 8)), Code("cubin", 90, "a")), ("_Z1k",))
    assert parse(lines(LINE)) == (Library("a.so", 9, (binary,)),)
    assert parse(lines()) == ()


def test_what_the_script_prints_is_what_is_parsed(tmp_path):
    (tmp_path / "x.so").write_bytes(library(simple("sm_120a", kernels=(b"_Z1k",)), simple("compute_80")))
    with redirect_stdout(io.StringIO()) as printed:
        main(str(tmp_path), ["*.so"])
    (found,) = parse(printed.getvalue().encode())
    assert [binary.codes for binary in found.binaries] == [(Code("cubin", 120, "a"),), (Code("ptx", 80, "", (8, 8)),)]
    assert found.binaries[0].kernels == ("_Z1k",)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "no end"),
        (b"Welcome!\n", "no JSON"),
        (lines(LINE)[:-20], "no JSON"),
        (json.dumps(LINE).encode(), "no end"),
        (lines(LINE, end={"libraries": 2}), "1 of 2 libraries came"),
        (lines(LINE, end={"libraries": LIBRARIES + 1}), f"more than {LIBRARIES}"),
        (lines(LINE, end={"libraries": True}), "a number that is none"),
        (b"[" * 100_000 + b"\n", "no JSON"),
        (b"7" * 10_000 + b"\n", "no JSON"),
        (lines("text"), "tells of no library"),
        (lines({**LINE, "more": 1}), "tells of no library"),
        (lines({**LINE, "size": -1}), "a number that is none"),
        (lines({**LINE, "size": 1.5}), "a number that is none"),
        (lines({**LINE, "path": None}), "a text that is none"),
        (lines({**LINE, "binaries": {}}), "a list that is none"),
        (lines({**LINE, "binaries": [[[], [], []]]}), "of a wrong length"),
        (lines({**LINE, "binaries": [[[["spir-v", 80, "", None]], []]]}), "unknown kind"),
        (lines({**LINE, "binaries": [[[["cubin", 80, "x", None]], []]]}), "unknown kind"),
        (lines({**LINE, "binaries": [[[["cubin", 80, ["a"], None]], []]]}), "unknown kind"),
        (lines({**LINE, "binaries": [[[["ptx", 80, "", None]], []]]}), "unknown kind"),
        (lines({**LINE, "binaries": [[[["cubin", 80, "", [8, 8]]], []]]}), "unknown kind"),
        (lines({**LINE, "binaries": [[[["cubin", 5, "", None]], []]]}), "a number that is none"),
        (lines({**LINE, "binaries": [[[["cubin", 80, "", None]], [3]]]}), "a text that is none"),
    ],
)
def test_anything_else_is_refused(said, why):
    with pytest.raises(Garbled, match=why):
        parse(said)


def test_texts_for_messages_carry_no_control_characters():
    (found,) = parse(lines({**LINE, "path": "a\x1b[2J\n\ud800.so", "trouble": "\0"}))
    assert (found.path, found.trouble) == ("a?[2J??.so", "?")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=4)
    )
)
def test_no_value_in_place_of_the_binaries_makes_it_fail_otherwise(value):
    with suppress(Garbled):
        parse(lines({**LINE, "binaries": value}))
