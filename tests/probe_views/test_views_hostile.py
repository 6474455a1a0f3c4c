"""Archives and layers that are damaged, or made to harm."""

import asyncio
import gzip
import io
import tarfile
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bascule.core.reading import Unreadable
from bascule.probe.views.archive import open_archive
from bascule.probe.views.stack import Budget, Layer
from bascule.probe.views.streams import Meter, Segment
from bascule.probe.views.tar import Kind, Member, members
from probe.probe_cases import Q35_TEXT
from probe_views.views_cases import (
    SITE,
    files_of,
    layer,
    layout,
    library,
    packed,
    report,
    saved,
    tar_of,
    under,
)

OLD, NEW = files_of("vllm-0.14.0", "transformers-4.57.6"), files_of("vllm-0.32.0", "transformers-5.19.0")


def opened(tmp_path, layers, package="vllm", config=None):
    (tmp_path / "image.tar").write_bytes(saved(layers, True, config))
    return open_archive(tmp_path / "image.tar", package)


def ask(coroutine):
    return asyncio.run(coroutine)


def header(letter: bytes, size: int) -> bytes:
    """One header with a size as no writer would write it."""
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    block[156:157] = letter
    text = b"%o" % size if 0 <= size < 1 << 33 else b""
    number = (b"\xff" if size < 0 else b"\x80") + (abs(size) % (1 << 88)).to_bytes(11, "big")
    block[124:136] = text.ljust(12, b"\0") if text else number
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def endless(data: bytes) -> bytes:
    """An archive without its end mark."""
    data = data.rstrip(b"\0")
    return data + bytes(-len(data) % 512)


def damaged(data: bytes, place: int) -> bytes:
    return data[:place] + b"\xff" + data[place + 1 :]


def bombed() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(header(b"0", (1 << 33) - 1))]
    parts += [packer.compress(bytes(1 << 20)) for _ in range(430)]
    return b"".join(parts) + packer.flush()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: layer({"../../etc/x": b""}), "leads out of the image"),
        (lambda: layer({"usr/../../x": b""}), "leads out of the image"),
        (lambda: layer({f"{SITE}/vllm/{'x' * 5000}": b""}), "a path of more than 4096 bytes"),
        (lambda: endless(layer(under(NEW))), "without its end mark"),
        (lambda: layer(under(NEW))[:5000], "the archive ends"),
        (lambda: damaged(layer(under(NEW)), 512), "no tar archive"),
        (lambda: header(b"L", 1 << 33), "a name or an extended header has no end"),
        (lambda: (header(b"L", 1) + b"x" + bytes(511)) * 9, "a name or an extended header has no end"),
        (lambda: header(b"0", -1), "no tar archive"),
        (lambda: header(b"0", 1 << 80), "the archive ends"),
        (lambda: header(b"x", 12) + b"99 path=abc\n" + bytes(500), "an extended header is damaged"),
        (lambda: header(b"x", 12) + b"12 size=-12\n" + bytes(500) + header(b"0", 0), "is no number"),
        (lambda: b"BZh" + bytes(600), "compressed by bzip2"),
        (lambda: b"\x28\xb5\x2f\xfd" + bytes(600), "zstd can't unpack it"),
        (lambda: packed(layer(under(NEW)), "zstd")[:-20], "zstd can't unpack it|without its end|the archive ends"),
        (lambda: gzip.compress(layer(under(NEW)))[:-20], "ended before the end-of-stream"),
        (lambda: b"\x1f\x8b" + bytes(20), "method"),
        (bombed, "unpack to more than 300 times as many"),
        (lambda: b"", "without its end mark"),
    ],
)
def test_what_a_hostile_or_damaged_layer_may_try(tmp_path, make, why):
    view = opened(tmp_path, [make()])
    with pytest.raises(Unreadable, match=why):
        report(view, Q35_TEXT)
    assert [path.name for path in tmp_path.iterdir()] == ["image.tar"]


def test_devices_are_no_files(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in ((f"{SITE}/vllm/fifo.py", tarfile.FIFOTYPE), (f"{SITE}/vllm/null.py", tarfile.CHRTYPE)):
            info = tarfile.TarInfo(name)
            info.type = kind
            archive.addfile(info)
    view = opened(tmp_path, [out.getvalue()])
    for name in ("fifo", "null"):
        with pytest.raises(Unreadable, match="is a device"):
            ask(view.read(f"vllm/{name}.py"))


def test_a_file_that_a_layer_has_twice_is_neither(tmp_path):
    twice = endless(layer({f"{SITE}/vllm/a.py": b"1"})) + layer({f"{SITE}/vllm/a.py": b"2"})
    with pytest.raises(Unreadable, match="twice in its layer"):
        ask(opened(tmp_path, [twice]).read("vllm/a.py"))


def test_too_many_files_are_too_many():
    budget = Budget(left=1_000_000)
    with pytest.raises(Unreadable, match="too many or too large files"):
        for number in range(3000):
            Layer().add(Member(f"a/{number}", Kind.FILE, 0), None, budget)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({}, "without its end mark|neither manifest.json|is empty"),
        ({"oci-layout": b"{}"}, "has neither manifest.json nor index.json"),
        ({"manifest.json": b"{"}, "is no JSON"),
        ({"manifest.json": b"[]"}, "it holds 0 images"),
        ({"manifest.json": b'[{"RepoTags": ["a:1"]}, {"RepoTags": ["b:1"]}]'}, "2 images, save one alone: a:1, b:1"),
        ({"manifest.json": b'[{"Config": 5}]'}, "names no config and layers"),
        ({"manifest.json": b'[{"Config": "x", "Layers": []}]'}, "has no part x"),
        ({"manifest.json": b'[{"Config": "../x", "Layers": []}]'}, r"has no part \.\./x"),
        ({"manifest.json": b" " * 5_000_000}, "more than 4194304 bytes"),
        ({"index.json": b'{"manifests": [{"digest": "sha256:../../x", "size": 1}]}'}, "without a SHA-256 digest"),
        ({"index.json": b"{}"}, "a kind that is not read here"),
    ],
)
@pytest.mark.parametrize("pipe", [False, True])
def test_archives_that_make_no_sense(tmp_path, parts, why, pipe):
    (tmp_path / "x.tar").write_bytes(gzip.compress(tar_of(parts)) if pipe else tar_of(parts))
    more = f"{why}|not as a small one"
    with pytest.raises(Unreadable, match=more if pipe else why):
        open_archive(tmp_path / "x.tar", "vllm")


def test_a_layer_with_another_digest(tmp_path):
    data = saved([layer(under(NEW))], True)
    place = data.index(b"_VLLM_MODELS")
    (tmp_path / "x.tar").write_bytes(data[:place] + b"y" + data[place + 1 :])
    with pytest.raises(Unreadable, match="another digest"):
        report(open_archive(tmp_path / "x.tar", "vllm"), Q35_TEXT)


def test_an_archive_of_two_platforms_needs_one_named(tmp_path):
    parts = layout({"linux/amd64": [layer(under(OLD))], "linux/arm64": [layer(under(NEW))]})
    (tmp_path / "x.tar").write_bytes(tar_of(parts))
    assert report(open_archive(tmp_path / "x.tar", "vllm", "linux/arm64"), Q35_TEXT).label == "vLLM 0.32.0"
    with pytest.raises(Unreadable, match="it has linux/amd64, linux/arm64: say which platform"):
        open_archive(tmp_path / "x.tar", "vllm")


def test_what_a_pipe_did_not_keep_is_unreadable_and_no_absence(tmp_path):
    data = saved([layer({**under(NEW), f"{SITE}/other/x.py": b"x", f"{SITE}/vllm/a.so": library(["x"])})], True)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(data))
    view = open_archive(tmp_path / "x.tar.gz", "vllm")
    with pytest.raises(Unreadable, match="save the image to a file first"):
        ask(view.read("other/x.py"))
    assert ask(view.words("^x$", "vllm/*.so")).hits[0].text == "x"
    assert ask(view.read("vllm/__init__.py")) == b""


def test_an_archive_of_too_many_parts(tmp_path):
    (tmp_path / "x.tar").write_bytes(tar_of({f"blobs/{number}": b"" for number in range(20_002)}))
    with pytest.raises(Unreadable, match="more than 20000 parts"):
        open_archive(tmp_path / "x.tar", "vllm")


def test_a_layout_in_a_folder_does_not_lead_out_of_it(tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "layout").mkdir()
    for config in ("../secret.json", str(tmp_path / "secret.json")):
        (tmp_path / "layout/manifest.json").write_text(f'[{{"Config": "{config}", "Layers": []}}]')
        with pytest.raises(Unreadable, match="has no part"):
            open_archive(tmp_path / "layout", "vllm")


def test_an_archive_that_is_not_there(tmp_path):
    with pytest.raises(Unreadable, match="No such file"):
        open_archive(tmp_path / "none.tar", "vllm")


NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1, max_size=70)
PATHS = st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=6).map("/".join)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(PATHS, st.sampled_from("0125"), PATHS, st.binary(max_size=1500)), max_size=5),
    st.sampled_from((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)),
)
def test_members_are_those_that_tarfile_sees(rows, kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        for path, letter, target, data in rows:
            info = tarfile.TarInfo(path)
            info.type, info.linkname = letter.encode(), target if letter in "12" else ""
            info.size = len(data) if letter == "0" else 0
            archive.addfile(info, io.BytesIO(data))
    data = out.getvalue()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        expected = [(m.name, m.linkname, archive.extractfile(m).read() if m.isreg() else b"") for m in archive]
    stream = Segment(io.BytesIO(data), 0, len(data), Meter())
    found = [(member.path.rstrip("/"), member.target, body.read(10_000)) for member, body in members(stream)]
    assert found == [(name, target, data) for name, target, data in expected]


WHOLE = saved([packed(layer(under(OLD))), layer({**under(OLD), f"{SITE}/vllm/a.so": library(["x"])})], False)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=8),
    st.integers(0, 20_000) | st.just(0),
    st.booleans(),
)
def test_a_damaged_archive_is_read_or_unreadable(tmp_path, changes, cut, pipe):
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place : place + len(value)] = value
    whole = bytes(data[: len(data) - cut])
    (tmp_path / "image.tar").write_bytes(gzip.compress(whole, 1) if pipe else whole)
    try:
        view = open_archive(tmp_path / "image.tar", "vllm")
        asyncio.run(view.libraries("vllm/*.so"))
        report(view, Q35_TEXT)
    except Unreadable as trouble:
        assert trouble.why
