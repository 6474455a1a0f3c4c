"""The smaller parts: METADATA and version ranges, GGUF heads, EntryClass, llama.cpp's strings, views."""

import asyncio
import struct
from pathlib import Path

import pytest

from bascule.core.nouns import Fate, Model, Node
from bascule.core.reading import Unreadable
from bascule.probe.gguf import NotGguf, architecture
from bascule.probe.packages import parse_metadata, stays_below
from bascule.probe.readers.sglang import entry_classes
from bascule.probe.values import Table, Unknown
from bascule.probe.views.base import TEXT_LIMIT
from bascule.probe.views.folder import FolderView
from bascule.remote.local import LocalRunner
from probe.probe_cases import Q35_TEXT


@pytest.mark.parametrize(
    ("specifier", "version", "below"),
    [
        ("<5,>=4.56.0", "5.2.0", True),
        ("<5,>=4.56.0", "4.57.0", False),
        ("<=5.2.0", "5.2.0", False),
        ("<=5.1", "5.2.0", True),
        ("==4.57.1", "5.0.0", True),
        ("==5.19.0", "5.2.0", False),
        ("==4.57.*", "5.0.0", True),
        ("==4.57.*", "4.57.3", False),
        ("~=4.57.1", "4.58.0", True),
        ("~=4.57", "4.99.0", False),
        ("<5.20.0,>=5.16.1", "5.2.0", False),
        ("!=5.0.*,!=5.5.0,>=4.56.0", "5.2.0", False),
        ("", "5.2.0", False),
        (">4", "5.2.0", False),
    ],
)
def test_ranges(specifier, version, below):
    assert stays_below(specifier, version) is below


def test_metadata():
    text = b"""Metadata-Version: 2.1
Name: some_engine
Version: 1.2
License: first
        \n        second
Requires-Dist: transformers[torch] (<5,>=4.56.0) ; python_version > "3"
Requires-Dist: Foo.Bar==1
Requires-Dist: extra-only; extra == "x"

Requires-Dist: not-a-field
"""
    package = parse_metadata(text, "p/METADATA")
    assert (package.name, package.version, package.spot.line) == ("some_engine", "1.2", 3)
    found = {name: wanted.specifier for name, wanted in package.requires.items()}
    assert found == {"transformers": "<5,>=4.56.0", "foo-bar": "==1"}
    assert parse_metadata(b"Name: x\n", "p") is None


@pytest.mark.parametrize(
    ("source", "names", "gaps"),
    [
        ("EntryClass = A", {"A"}, 0),
        ("EntryClass = [A, B]", {"A", "B"}, 0),
        ("EntryClass = [\n    A,\n    B,\n]", {"A", "B"}, 0),
        ("\ufeffEntryClass: list = (A,)", {"A"}, 0),
        ("x = 1", set(), 0),
        ("EntryClass = [A, *more]", {"A"}, 1),
        ("if x:\n    EntryClass = A", set(), 1),
        ("EntryClass = make()", set(), 1),
    ],
)
def test_entry_classes(source, names, gaps):
    found = entry_classes(source.encode(), "m.py")
    assert isinstance(found, Table)
    assert (set(found.entries), len(found.gaps)) == (names, gaps)


def test_an_entry_class_in_a_broken_file():
    assert isinstance(entry_classes(b"EntryClass = [", "m.py"), Unknown)


def gguf(*pairs: tuple[str, int, bytes], order: str = "<", version: int = 3) -> bytes:
    size = "Q" if version > 1 else "I"
    head = b"GGUF" + struct.pack(f"{order}I{size}{size}", version, 7, len(pairs))
    return head + b"".join(
        struct.pack(f"{order}{size}", len(key)) + key.encode() + struct.pack(f"{order}I", kind) + value
        for key, kind, value in pairs
    )


def text(value: str, order: str = "<", size: str = "Q") -> bytes:
    return struct.pack(f"{order}{size}", len(value)) + value.encode()


NUMBER = ("x.count", 4, struct.pack("<I", 5))
NUMBERS = ("x.list", 9, struct.pack("<IQ", 6, 3) + bytes(12))
WORDS = ("x.words", 9, struct.pack("<IQ", 8, 2) + text("one") + text("two"))
NAME = ("general.architecture", 8, text("qwen35moe"))


@pytest.mark.parametrize(
    "head",
    [
        gguf(NAME),
        gguf(NUMBER, NUMBERS, WORDS, ("general.name", 8, text("x")), NAME),
        gguf(("general.architecture", 8, text("qwen35moe", ">")), order=">"),
        gguf(("general.architecture", 8, text("qwen35moe", size="I")), version=1),
    ],
)
def test_gguf_architecture(head):
    assert architecture(head) == "qwen35moe"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"", "does not begin with GGUF"),
        (b"PK\x03\x04" + bytes(100), "does not begin with GGUF"),
        (gguf(NAME)[:30], "is not in the first 30 bytes"),
        (gguf(WORDS, NAME)[:90], "is not in the first 90 bytes"),
        (gguf(NUMBER), "no general.architecture"),
        (gguf(NAME, version=9), "version 9"),
        (gguf(("x", 77, b"")), "value type 77"),
        (gguf(("x", 8, struct.pack("<Q", 1 << 60))), "is not in the first"),
        (gguf(("x", 9, struct.pack("<IQ", 8, 1 << 60))), "is not in the first"),
    ],
)
def test_what_is_no_gguf(head, why):
    with pytest.raises(NotGguf, match=why):
        architecture(head)


def library(folder: Path, *strings: str) -> Path:
    """A folder with xllamacpp whose library holds these strings between other bytes."""
    (folder / "xllamacpp").mkdir(exist_ok=True)
    data = b"\x7fELF\x00\x01\xff\xfe\n\x00" + b"".join(word.encode() + b"\0" for word in strings) + b"\xff\n\x80"
    (folder / "xllamacpp/xllamacpp.abi3.so").write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("strings", "fate", "seen"),
    [
        (("llama", "qwen35moe"), Fate.OK, "qwen35moe"),
        (("llama", "rwkv6qwen35moe", "19llama_model_qwen35moe"), Fate.OK, "19llama_model_qwen35moe"),
        (("llama", "rwkv6qwen35moe"), Fate.UNKNOWN, "qwen35moe"),  # a shared tail
        (("llama", "qwen35", "qwen35moe_x"), Fate.HOPELESS, "no string qwen35moe (and llama is there)"),
        (("qwen35",), Fate.UNKNOWN, "no string llama in 1 libraries"),
    ],
)
def test_llamacpp_strings(tmp_path, ask, strings, fate, seen):
    finding = ask("llamacpp", library(tmp_path, *strings), Q35_TEXT)
    assert (finding.fate, finding.evidence[0].excerpt) == (fate, seen)


def test_llamacpp_without_a_library_is_unknown(tmp_path, ask):
    (tmp_path / "xllamacpp").mkdir()
    assert ask("llamacpp", tmp_path, Q35_TEXT).evidence[0].excerpt == "no string llama in 0 libraries"


def test_the_gguf_file_itself_counts(tmp_path, ask):
    model = tmp_path / "it's a model.gguf"
    model.write_bytes(gguf(NAME))
    root = library(tmp_path, "llama", "qwen35moe")
    finding = ask("llamacpp", root, Model(str(model), (), ""), path=str(model))
    assert finding.fate is Fate.OK
    assert (finding.evidence[1].source, finding.evidence[1].excerpt) == (str(model), "general.architecture = qwen35moe")
    model.write_bytes(b"not a model")
    finding = ask("llamacpp", root, Q35_TEXT, path=str(model))
    assert (finding.fate, "does not begin with GGUF" in finding.says) == (Fate.UNKNOWN, True)
    model.unlink()  # not copied there yet: config.json's model_type decides
    assert ask("llamacpp", root, Q35_TEXT, path=str(model)).fate is Fate.OK
    assert ask("llamacpp", root, Model("/m", ("X",), "x"), path=str(model)).fate is Fate.UNKNOWN


def test_views(tmp_path):
    view = FolderView(LocalRunner(Node("h1", "local")), str(tmp_path))
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/one.py").write_text("x = 1\nclass A(B):\n")
    (tmp_path / "large.py").touch()
    with (tmp_path / "large.py").open("r+b") as file:
        file.truncate(TEXT_LIMIT + 1)

    async def look() -> None:
        assert await view.read("a b/one.py") == b"x = 1\nclass A(B):\n"
        assert await view.head("a b/one.py", 3) == b"x ="
        assert await view.read("none.py") is None
        assert await view.read("large.py/below") is None
        assert await view.find("*/one.py", "none*") == ("a b/one.py",)
        found = await view.search("^class A[(]", "*/*.py", "none/*.py")
        assert (found.files, [hit.source for hit in found.hits]) == (1, ["a b/one.py:2"])
        assert (await view.search("x", "none/*.py")).files == 0
        assert view.bytes_read < 1000
        with pytest.raises(Unreadable, match="16777217 bytes"):
            await view.read("large.py")
        with pytest.raises(Unreadable):
            await view.search("(", "*/*.py")
        with pytest.raises(Unreadable, match="drwx"):
            await view.read("a b")

    asyncio.run(look())
