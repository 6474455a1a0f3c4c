"""The literal evaluator: what it can tell, with lines, and what it honestly can't."""

from pathlib import Path

import pytest

from bascule.probe.literal import evaluate
from bascule.probe.values import Answer, Table, Unknown, ask

FILES = Path(__file__).parent / "files"


def table(source: str, name: str = "T", known=None) -> Table:
    names = evaluate(source.encode(), "f.py", known)
    assert not isinstance(names, Unknown), names
    return names[name]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("T = {'a': 1, 'b': ('x', 'y')}", {"a": 1, "b": ("x", "y")}),
        ("T: dict[str, int] = {'a': 1}", {"a": 1}),
        ("A = {'a': 1}\nB = {'b': 2, 'a': 3}\nT = {**A, 'c': 4, **B}", {"a": 3, "c": 4, "b": 2}),
        ("T = dict(a=1, **{'b-c': 2})", {"a": 1, "b-c": 2}),
        ("T = OrderedDict([('a', 1), ('b', 2)])", {"a": 1, "b": 2}),
        ("T = OrderedDict[str, str]([('a', 'x')])", {"a": "x"}),
        ("import collections\nT = collections.OrderedDict({'a': 1}, b=2)", {"a": 1, "b": 2}),
        ("class L(dict):\n    def __getitem__(self, k): return 1\nT = L(a='x')", {"a": "x"}),
        (
            "A = {'a': ('m', 'L'), 'b': ('m', 'K')}\nT = {k: (m, c) for k, (m, c) in A.items() if c == 'L'}",
            {"a": ("m", "L")},
        ),
        ("A = {'a': 1}\nT = {f'{k}-{n}': v for k, v in A.items() for n in ('x', 'y')}", {"a-x": 1, "a-y": 1}),
        ("T = {'a': 1}\nT.update({'b': 2}, c=3)\nT['d'] = 4\nT.pop('a')\ndel T['b']", {"c": 3, "d": 4}),
        ("T = {'a': 1}\nT |= {'b': 2}", {"a": 1, "b": 2}),
        ("T = {'a': 1} | {'b': 2}", {"a": 1, "b": 2}),
        ("P = 'x.'\nT = {'a': P + 'y', 'b': f'{P}z'}", {"a": "x.y", "b": "x.z"}),
        ("T = {'a': 1}\ntry:\n    import x\n    T['b'] = 2\nexcept ImportError:\n    pass", {"a": 1, "b": 2}),
        (
            "from typing import TYPE_CHECKING\nT = {}\nif TYPE_CHECKING:\n    T = {'no': 1}\nelse:\n    T['a'] = 1",
            {"a": 1},
        ),
        ("T = {'a': 1}\nif CONDITION:\n    x = 1\nelse:\n    x = 2", {"a": 1}),
        ("with open('x') as f:\n    T = {'a': 1}", {"a": 1}),
        ("N = ('a', *('b', 'c'))\nT = {n: None for n in N if n not in ('b',)}", {"a": None, "c": None}),
        ("T = {'a': 1}\nfor k, v in T.items():\n    register(k, v)", {"a": 1}),
        ("T = {}\ndef f():\n    T['no'] = 1\n", {}),
    ],
)
def test_what_it_can_tell(source, expected):
    found = table(source)
    assert (dict(found.entries), found.gaps) == (expected, ())


@pytest.mark.parametrize(
    ("source", "sure", "line", "why"),
    [
        ("T = {'a': 1,\n  **more()}", {"a"}, 2, "calls more()"),
        ("T = {'a': 1,\n  name: 2}", {"a"}, 2, "name is not defined"),
        ("T = {'a': 1}\nT.update(more())", {"a"}, 2, "calls more()"),
        ("T = {'a': 1}\nT.register('b')", {"a"}, 2, "calls .register()"),
        ("T = {'a': 1}\nfor x in y:\n    T[x] = 1", {"a"}, 2, "for at the top"),
        ("T = {'a': 1, 'b': 2}\nT.pop(name)", set(), 2, "drops an entry"),
        ("T = {'a': 1}\nif x:\n    T['b'] = 2", {"a"}, 2, "depends on a condition"),
        ("T = {'a': 1}\ntry:\n    import x\nexcept ImportError:\n    T['b'] = 2", {"a"}, 4, "depends on an exception"),
        ("A = {'a': 1, **more()}\nT = {k: v for k, v in A.items()}", {"a"}, 1, "calls more()"),
        ("A = {'a': 1}\nT = {k: v for k, v in A.items() if test(k)}", set(), 2, "calls test()"),
        ("T = dict([('a', 1), pair()])", {"a"}, 1, "a row that is no pair"),
        ("T = {'a': 1}\nwhile x:\n    T |= y", {"a"}, 2, "while at the top"),
    ],
)
def test_what_it_cannot_tell(source, sure, line, why):
    found = table(source)
    assert set(found.entries) == sure
    assert (found.gaps[0].spot.line, why in found.gaps[0].why) == (line, True), found.gaps
    for name in sure:
        assert ask(found, name, "T").yes is True
    assert ask(found, "absent", "T").yes is None


@pytest.mark.parametrize(
    "source", ["T = more()", "T = [1]\nT.append(2)", "if x:\n    T = {}\nelse:\n    T = 1", "T = 1 @ 2"]
)
def test_no_table_is_no_answer(source):
    assert ask(evaluate(source.encode(), "f.py")["T"], "a", "T").yes is None


def test_every_key_has_its_line():
    found = table(
        "A = {\n  'a': 1,\n  'b': (\n    2,\n  ),\n}\nT = {\n  **A,\n  **{k: 1 for k in A},\n  'c': 3,\n}\nT['d'] = 4\n"
    )
    assert {key: spot.line for key, spot in found.spots.items()} == {"a": 2, "b": 3, "c": 10, "d": 12}
    assert found.spots["b"].text == "'b': ("
    assert ask(found, "zz", "T") == Answer(False, (found.where,))


def test_names_from_another_file_keep_their_file():
    known = evaluate(b"NAMES = {'a': 1}", "other.py")
    found = table("from other import NAMES\nNAMES.update({'b': 2})\nT = dict(**{'c': 3}, **NAMES)", known=known)
    assert {key: spot.source for key, spot in found.spots.items()} == {"a": "other.py:1", "b": "f.py:2", "c": "f.py:3"}


def test_a_byte_order_mark_is_no_error():
    assert table("\ufeffT = {'a': 1}").entries == {"a": 1}


@pytest.mark.parametrize("source", [b"T = {", b"T = 'a\x00b'", b"print 'old'", b"T = " + b"(" * 5000])
def test_what_does_not_parse_is_unknown(source):
    found = evaluate(source, "f.py")
    assert isinstance(found, Unknown)
    assert "not parsable by Python" in found.why
    assert ask(found, "a", "T").yes is None


def test_nothing_is_run(tmp_path):
    mark = tmp_path / "ran"
    evaluate(f"import os\nT = {{'a': os.mkdir({str(mark)!r})}}\nos.mkdir({str(mark)!r})".encode(), "f.py")
    assert not mark.exists()


def test_real_registries():
    path = "vllm/model_executor/models/registry.py"
    for release, copied in (("vllm-0.14.0", 7), ("vllm-0.17.0", 7), ("vllm-0.32.0", 1)):
        names = evaluate((FILES / release / f"{path}.txt").read_bytes(), path)
        groups = {name: value for name, value in names.items() if name.endswith("_MODELS") and isinstance(value, Table)}
        assert not any(group.gaps for group in groups.values()), release
        llamas = [k for k, (_, cls) in groups["_TEXT_GENERATION_MODELS"].entries.items() if cls == "LlamaForCausalLM"]
        assert set(llamas) <= set(groups["_EMBEDDING_MODELS"].entries)  # through the comprehension
        assert len(llamas) >= copied
        assert groups["_EMBEDDING_MODELS"].spots["LlamaForCausalLM"] == groups["_VLLM_MODELS"].spots["LlamaForCausalLM"]
