"""The view of any tree: its bounds, and patterns that are refused."""

import asyncio
import io
import re
from collections.abc import Iterator, Sequence

import pytest

from bascule.core.reading import Unreadable
from bascule.probe.views.patterns import LINE, glob_of, pattern_of
from bascule.probe.views.streams import Meter
from bascule.probe.views.tree import Limits, TreeView


class Plain:
    """Files that are numbered, each with ten bytes."""

    root = "here"

    def __init__(self, count: int, data: bytes = b"aaaaaaaaa\n") -> None:
        self.meter, self.count, self.data = Meter(), count, data

    def ready(self, glob: str) -> None:
        pass

    def names(self, folder: str) -> list[str]:
        return [str(number) for number in range(self.count)]

    def has(self, path: str) -> bool:
        return path.isdigit()

    def each(self, paths: Sequence[str]) -> Iterator[tuple[str, io.BytesIO]]:
        yield from ((path, io.BytesIO(self.data)) for path in paths)


def test_a_search_ends_at_its_limit():
    assert asyncio.run(TreeView(Plain(5), Limits(total=50)).search("a", "*")).files == 5
    for files in (Plain(6), Plain(1, b"a\n" * 26)):
        with pytest.raises(Unreadable, match="more than 50 bytes to search"):
            asyncio.run(TreeView(files, Limits(total=50)).search("x", "*"))


def test_globs_that_match_too_much():
    assert len(asyncio.run(TreeView(Plain(10), Limits(paths=10)).find("*"))) == 10
    with pytest.raises(Unreadable, match="matches more than 9 paths"):
        asyncio.run(TreeView(Plain(10), Limits(paths=9)).find("*"))


def test_libraries_that_are_too_large_say_so():
    whys = [one.trouble for one in asyncio.run(TreeView(Plain(3), Limits(library=9)).libraries("*"))]
    assert whys == ["more than 9 bytes"] * 3
    whys = [one.trouble for one in asyncio.run(TreeView(Plain(3), Limits(total=25)).libraries("*"))]
    assert [why == "more than 5 bytes" for why in whys] == [False, False, True]


def test_a_stopped_view_says_so():
    view = TreeView(Plain(1))
    view.files.meter.stopped = True
    with pytest.raises(Unreadable, match="was stopped"):
        view.files.meter.count(b"x")


@pytest.mark.parametrize("text", ["(", ")", "a**", "*a", "(*a)", "a|*", "^*", "(?i)a", r"\w", r"\<a", "[a", "a\\"])
def test_patterns_that_grep_would_read_in_another_way(text):
    with pytest.raises(ValueError, match="regular expression"):
        pattern_of(text, LINE)
    with pytest.raises(Unreadable, match="regular expression"):
        asyncio.run(TreeView(Plain(1)).search(text, "*"))


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("^class A[(: ]", b"class A"),
        ("(^|[^A-Za-z])Name([^A-Za-z]|$)", b"Name"),
        ("abc|defg", b""),
        ("(abc|defg)", b""),
        ("ab+cd", b"cd"),
        (r"a\[bc{2}d", b"a[b"),
        ("a.bcd?", b"bc"),
    ],
)
def test_what_every_match_must_have(text, needle):
    assert pattern_of(text, LINE).needle == needle


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.py", "a.py", ".a.py"),
        (".*", ".a", "a"),
        ("a*/b?", "ax/bc", "a/x/bc"),
        ("[!a]x", "bx", "ax"),
        ("[]a]x", "]x", "bx"),
        ("[!a]*", "b", ".b"),
        ("a+(b)", "a+(b)", "aab"),
    ],
)
def test_globs_are_those_of_a_shell(glob, yes, no):
    assert (bool(glob_of(glob).match(yes)), bool(glob_of(glob).match(no))) == (True, False)
    assert isinstance(glob_of(glob), re.Pattern)
