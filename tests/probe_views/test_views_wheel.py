"""Wheels: what a hostile one may try, and what a folder of them shows."""

import asyncio
import io
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bascule.core.reading import Unreadable
from bascule.probe.verdict import Word
from bascule.probe.views.base import TEXT_LIMIT
from bascule.probe.views.wheel import open_wheel, wheels_in
from probe.probe_cases import NOBODY, Q35_TEXT
from probe_views.views_cases import files_of, library, report, wheel

NAME = "vllm/one.py"


def raw(path: Path, name: str, data: bytes = b"x = 1\n", **fields) -> Path:
    """A wheel of one entry whose index says something of its own."""
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.compress_type = fields.pop("compress_type", zipfile.ZIP_DEFLATED)
        for key, value in fields.items():
            setattr(info, key, value)
        archive.writestr(info, data)
    return path


def read(path: Path, name: str = NAME) -> bytes | None:
    return asyncio.run(open_wheel(path).read(name))


BAD_NAMES = ["../x.py", "vllm/../../x.py", "/etc/x.py", "vllm//x.py", "./x", "a\\b.py", "a\nb", ".."]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_lead_out_of_a_wheel(tmp_path, name):
    with pytest.raises(Unreadable, match="leads out of it, or has no plain name"):
        open_wheel(raw(tmp_path / "x.whl", name))
    assert [path.name for path in tmp_path.iterdir()] == ["x.whl"]


def test_a_link_in_a_wheel_is_not_followed(tmp_path):
    path = raw(tmp_path / "x.whl", NAME, b"/etc/passwd", external_attr=0o120777 << 16)
    with pytest.raises(Unreadable, match="is a link"):
        read(path)
    assert asyncio.run(open_wheel(path).find("vllm/*")) == (NAME,)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_that_is_there_twice(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr(NAME, "x = 1")
        archive.writestr(NAME, "x = 2")
    with pytest.raises(Unreadable, match=r"is there twice, in x\.whl"):
        read(tmp_path / "x.whl")


def test_an_entry_that_is_a_file_and_a_folder(tmp_path):
    with pytest.raises(Unreadable, match="is a file and a folder"):
        read(wheel(tmp_path / "x.whl", {"vllm": b"", NAME: b""}), "vllm")


def patched(path: Path, at: bytes, offset: int, value: bytes) -> Path:
    """Change the header that begins so (b'PK\\x01\\x02': of the index; b'PK\\x03\\x04': before the data)."""
    data = bytearray(path.read_bytes())
    place = data.index(at) + offset
    data[place : place + len(value)] = value
    path.write_bytes(data)
    return path


INDEX = b"PK\x01\x02"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((INDEX, 8, b"\x01\x00"), "is encrypted"),
        ((INDEX, 10, b"\x0e\x00"), "compressed by method 14"),
        ((INDEX, 16, b"\0\0\0\0"), "Bad CRC-32"),
        ((INDEX, 24, struct.pack("<I", 0xFFFFFFFE)), "Bad CRC-32|ends after 6 of|invalid"),
        ((INDEX, 24, struct.pack("<I", 3)), "Bad CRC-32"),
        ((INDEX, 42, struct.pack("<I", 5)), "Bad magic number"),
        ((INDEX, 42, struct.pack("<I", 0xFFFFFFFE)), "Bad magic|Truncated|Invalid|file header"),
        ((b"PK\x05\x06", 12, struct.pack("<I", 0x7FFFFFFF)), "index has|Bad magic|not a zip|Bad offset"),
        ((b"PK\x05\x06", 8, b"\xff\xff\xff\xff"), "zip"),
        ((b"PK\x03\x04", 26, b"\x01\x00"), "differ|File name"),
    ],
)
def test_a_wheel_whose_headers_lie(tmp_path, change, why):
    path = patched(raw(tmp_path / "x.whl", NAME), *change)
    try:
        found = read(path)
    except Unreadable as trouble:
        assert why == "zip" or any(part in str(trouble) for part in why.split("|")), trouble
    else:
        assert why == "zip", found


def test_zip64_sizes_are_not_trusted(tmp_path):
    sizes = struct.pack("<HHQQ", 1, 16, 1 << 60, 1 << 60)
    path = raw(tmp_path / "x.whl", NAME, compress_type=zipfile.ZIP_STORED, extra=sizes)
    patched(path, INDEX, 20, b"\xff" * 8)
    with pytest.raises(Unreadable):
        read(path)


def test_a_bomb_is_read_to_the_limit_and_no_further(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.whl", "w", zipfile.ZIP_DEFLATED) as archive, archive.open(NAME, "w") as file:
        for _ in range(20):
            file.write(bytes(1 << 20))
    with pytest.raises(Unreadable, match=f"more than {TEXT_LIMIT} bytes"):
        read(tmp_path / "x.whl")
    view = open_wheel(tmp_path / "x.whl")
    before = view.bytes_read
    assert asyncio.run(view.head(NAME, 10)) == bytes(10)
    assert view.bytes_read - before < 20_000
    with pytest.raises(Unreadable, match="in one line or string"):
        asyncio.run(view.search("x", "vllm/*"))
    assert asyncio.run(view.words("x", "vllm/*")).files == 1  # a string of no bytes, many times


def test_a_large_index_is_refused(tmp_path):
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, 9 << 20, 0, 0)
    (tmp_path / "x.whl").write_bytes(bytes(9 << 20) + end)
    with pytest.raises(Unreadable, match="its index has 9437184 bytes"):
        open_wheel(tmp_path / "x.whl")


def test_deep_folders_are_refused(tmp_path):
    with pytest.raises(Unreadable, match="more than 32 folders"):
        open_wheel(wheel(tmp_path / "x.whl", {"a/" * 40 + "x.py": b""}))


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06", b"no zip" * 100])
def test_what_is_no_wheel(tmp_path, data):
    (tmp_path / "x.whl").write_bytes(data)
    with pytest.raises(Unreadable, match="not a zip file"):
        open_wheel(tmp_path / "x.whl")


def test_a_wheel_or_folder_that_is_not_there(tmp_path):
    for make in (open_wheel, wheels_in):
        with pytest.raises(Unreadable, match="No such file"):
            make(tmp_path / "none")
    with pytest.raises(Unreadable, match="no wheel"):
        wheels_in(tmp_path)
    for number in range(1001):
        (tmp_path / f"{number}.whl").touch()
    with pytest.raises(Unreadable, match="more than 1000 wheels"):
        wheels_in(tmp_path)


def test_wheels_side_by_side_are_like_an_environment(tmp_path):
    engine = wheel(tmp_path / "vllm.whl", files_of("vllm-0.32.0"))
    alone = report(open_wheel(engine), Q35_TEXT).questions["config"]
    assert alone.seen[0].path.endswith("METADATA")  # all that tells of a transformers
    wheel(tmp_path / "transformers.whl", files_of("transformers-5.19.0"))
    found = report(wheels_in(tmp_path), Q35_TEXT)
    assert found.questions["config"].seen[0].path == "transformers/models/auto/auto_mappings.py"
    assert found.overall.word is Word.YES
    assert report(wheels_in(tmp_path), NOBODY).overall.word is Word.NO


def test_two_releases_in_one_folder_are_not_mixed(tmp_path):
    wheel(tmp_path / "a.whl", {"vllm/one.py": b"1", "vllm/two.py": b"2"})
    wheel(tmp_path / "b.whl", {"vllm/one.py": b"3"})
    view = wheels_in(tmp_path)
    assert asyncio.run(view.read("vllm/two.py")) == b"2"
    with pytest.raises(Unreadable, match=r"is there twice, in a\.whl and b\.whl"):
        asyncio.run(view.read("vllm/one.py"))


def test_a_library_that_can_not_be_read_says_why(tmp_path):
    good, bad = library(["x"]), zlib.compress(b"x")
    path = wheel(tmp_path / "x.whl", {"vllm/a.so": good, "vllm/b.so": bad})
    data = path.read_bytes()
    at = data.rindex(INDEX) + 16
    path.write_bytes(data[:at] + b"\0\0\0\0" + data[at + 4 :])
    found = asyncio.run(open_wheel(path).libraries("vllm/*.so", "none/*.so"))
    assert [one.path for one in found] == ["vllm/a.so", "vllm/b.so"]
    assert "Bad CRC-32" in found[1].trouble


def whole() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files_of("vllm-0.14.0"), "vllm/a.so": library(["x"])}.items():
            archive.writestr(name, data)
    return out.getvalue()


WHOLE = whole()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=4)), max_size=6),
    st.integers(0, 60) | st.just(0),
)
def test_a_damaged_wheel_is_read_or_unreadable(tmp_path, changes, cut):
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place : place + len(value)] = value
    (tmp_path / "x.whl").write_bytes(data[: len(data) - cut])
    try:
        view = open_wheel(tmp_path / "x.whl")
        asyncio.run(view.libraries("vllm/*.so"))
        report(view, Q35_TEXT)
    except Unreadable as trouble:
        assert trouble.why
