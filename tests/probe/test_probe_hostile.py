"""Python files that were made to hurt: each ends soon, as a gap or as Unknown with its reason, without a traceback."""

import pytest

from bascule.probe.literal import SOURCE_LIMIT, evaluate
from bascule.probe.readers.arguments import Source
from bascule.probe.readers.sglang import entry_classes
from bascule.probe.values import Table, Unknown, ask

DEEP = 100_000


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"T = " + b"(" * DEEP + b")" * DEEP, "too many nested parentheses"),
        (b"T = " + b"[" * DEEP, "too many nested parentheses"),
        (b"T = " + b"-" * DEEP + b"1", "nested too deeply (MemoryError)"),
        (b"T = " + b"not " * DEEP + b"1", "nested too deeply (MemoryError)"),
        (b"T = a" + b".a" * 20_000, "nested too deeply (RecursionError)"),
        (b"T = a" + b"()" * 20_000, "nested too deeply (RecursionError)"),
        (b"T = 1" + b"+1" * DEEP, "nested too deeply (RecursionError)"),
        (b"if a: T = 1\n" + b"elif a: T = 1\n" * 20_000, "nested too deeply (MemoryError)"),
        (b"".join(b" " * level + b"if a:\n" for level in range(200)), "too many levels of indentation"),
        (b"T = {'a': '\0'}", "null bytes"),
        (b"T = {'\xe9': 1}", "codec can't decode"),
        (b"# coding: nothing-known\nT = {}", "unknown encoding"),
        ("T = {}".encode("utf-16"), "null bytes"),
        (b"T = " + b"9" * 10_000, "4300 digits"),
        (b"#" * (SOURCE_LIMIT + 1), f"{SOURCE_LIMIT + 1} bytes"),
        (b"#" * (50 << 20), "52428800 bytes"),
    ],
)
def test_what_cannot_be_parsed_says_why(source, why):
    for found in (evaluate(source, "f.py"), entry_classes(source, "f.py"), Source(source, "f.py").broken):
        assert isinstance(found, Unknown)
        assert (found.spot.path, why in found.why) == ("f.py", True), found.why
        assert len(found.spot.text) <= 200


def test_the_line_of_a_syntax_error_is_told():
    found = evaluate(b"A = 1\r\nB = 2\rC = {\n", "f.py")
    assert isinstance(found, Unknown)
    assert (found.spot.source, found.spot.text) == ("f.py:3", "C = {")


MANY = ("'%d', " * 3000) % tuple(range(3000))


@pytest.mark.parametrize(
    "source",
    [
        f"X = ({MANY})\nT = {{a + b: 1 for a in X for b in X}}",
        f"X = ({MANY})\nT = {{a: 1 for a in X for b in X for c in X for d in X}}",
        f"X = dict.fromkeys(({MANY}))\n" + "T = {}\n" + "".join(f"T['{place}'] = 1\n" for place in range(3000)),
        f"X = {{k: 1 for k in ({MANY})}}\nT = {{{'**X, ' * 500}}}",
        "".join(f"a{place} = 1\nif b: c = 1\n" for place in range(2000)),
        "".join(f"a{place} = 1\ntry:\n  c = 1\nexcept E:\n  b = 1\n" for place in range(2000)),
        "".join(f"class A{place}:\n  x = 1\n" for place in range(2000)),
    ],
)
def test_what_asks_for_too_much_work_is_unknown(source):
    found = evaluate(source.encode(), "f.py")
    assert isinstance(found, Unknown)
    assert "takes more than 500000 steps" in found.why
    assert ask(found, "a", "T").yes is None


@pytest.mark.parametrize("step", ["s = s + s", "s = f'{s}{s}'"])
def test_a_text_that_doubles_ends(step):
    names = evaluate(("s = 'ab'\n" + f"{step}\n" * 100 + "T = {s: 1, 'a': 2}").encode(), "f.py")
    assert set(names["T"].entries) == {"a"}
    assert ask(names["T"], "b", "T").yes is None


@pytest.mark.parametrize("step", ["t = t + t", "t = (*t, *t)", "t = [*t, *t]"])
def test_a_list_that_doubles_ends(step):
    names = evaluate(("t = ('a', 'b')\n" + f"{step}\n" * 100 + "T = {k: 1 for k in t}").encode(), "f.py")
    assert ask(names["T"], "c", "T").yes is None


def test_lists_in_lists_are_not_compared_to_their_depths():
    nested = "t = ('a',)\n" + "t = (t, t)\n" * 100 + "u = ('a',)\n" + "u = (u, u)\n" * 100
    names = evaluate((nested + "T = {'a': 1}\nif t == u:\n  T['b'] = 2\nif c:\n  t = u\n").encode(), "f.py")
    assert ask(names["T"], "a", "T").yes is True
    assert ask(names["T"], "b", "T").yes is None
    assert isinstance(names["t"], Unknown)


def test_an_expression_that_is_nested_too_deeply_to_evaluate_is_a_gap():
    names = evaluate(b"T = {'a': 1}\nT['b'] = 1" + b" + 1" * 2000 + b"\nU = {'c': 1}\n", "f.py")
    assert ask(names["T"], "a", "T").yes is True
    doubt = ask(names["T"], "b", "T")
    assert (doubt.yes, doubt.seen[0].line, "nested too deeply" in doubt.why) == (None, 2, True)
    assert ask(names["U"], "zz", "U").yes is False  # what stands after it is read


def test_branches_without_end_are_a_gap():
    found = evaluate(b"T = {'a': 1}\nif a: T['b'] = 1\n" + b"elif a: T['c'] = 1\n" * 900, "f.py")
    assert isinstance(found["T"], Table)
    assert ask(found["T"], "zz", "T").yes is None


def test_a_huge_number_in_an_f_string_is_a_gap():
    names = evaluate(b"n = 0x" + b"f" * 100_000 + b"\nT = {f'{n}': 1}", "f.py")
    assert ask(names["T"], "a", "T").yes is None
