"""What is listed, cut into units, resumed and compared: pure parts and the reading of folders."""

from __future__ import annotations

import ast
import json
import os
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.distribute.weights import bundle
from bascule.distribute.weights.ledger import Ledger
from bascule.distribute.weights.manifest import (
    FULL_UP_TO,
    MIB,
    Entry,
    Manifest,
    from_plain,
    is_sampled,
    sampled_blocks,
    split_hub,
    to_plain,
)
from bascule.distribute.weights.node.listing import list_source, spans_of
from bascule.distribute.weights.node.wire import Trouble
from bascule.distribute.weights.plan import Link, chain, routes, shared
from bascule.distribute.weights.progress import CopyProgress, Meter, line
from bascule.distribute.weights.ranges import BATCH_FILES, RANGE, units
from bascule.distribute.weights.resume import held, lacking, lines_of, merged

sizes = st.integers(0, 5) | st.integers(0, 3 * RANGE)
manifests = st.lists(sizes, max_size=30).map(
    lambda drawn: Manifest("folder", tuple(Entry(f"f{at}", size, at) for at, size in enumerate(drawn)))
)


@given(manifests)
def test_units_cover_every_byte_once(manifest):
    covered = {number: [] for number in manifest.files}
    for unit in units(manifest):
        for piece in unit:
            covered[piece.file].append((piece.offset, piece.length))
    for number, spans in covered.items():
        assert merged(spans) == ((0, manifest.entries[number].size),)
        assert sum(length for _, length in spans) == manifest.entries[number].size


@given(manifests, st.data())
def test_resume_lacks_exactly_what_was_not_finished(manifest, data):
    made = units(manifest)
    done = data.draw(st.sets(st.sampled_from(range(len(made))))) if made else set()
    journal = b"".join(lines_of(made[number], manifest) for number in done)
    assert set(lacking(made, held(journal, manifest))) == set(range(len(made))) - done
    assert from_plain(json.loads(json.dumps(to_plain(manifest)))) == manifest


def test_journal_of_a_killed_writer_and_of_another_file():
    manifest = Manifest("folder", (Entry("a", 200 * MIB, 1), Entry("b", 5, 2)))
    small, *large = units(manifest)
    journal = lines_of(small, manifest) + lines_of(large[0], manifest) + lines_of(large[1], manifest)[:-9]
    assert lacking(units(manifest), held(journal, manifest)) == (2, 3, 4)
    changed = Manifest("folder", (Entry("a", 200 * MIB, 7), Entry("b", 5, 2)))
    assert lacking(units(changed), held(journal, changed)) == (1, 2, 3, 4)


def test_many_small_files_are_few_units():
    manifest = Manifest("folder", tuple(Entry(f"{number}", 100) for number in range(100_000)))
    assert len(units(manifest)) == 100_000 // BATCH_FILES + 1


def test_a_hole_is_no_unit_but_its_file_is_made():
    hollow = Entry("a", 50 * 10**9, spans=((0, 5), (10**10, 10)))
    assert [tuple(piece) for unit in units(Manifest("folder", (hollow,))) for piece in unit] == [
        (0, 0, 5),
        (0, 10**10, 10),
    ]
    empty = Entry("a", 50 * 10**9, spans=())
    assert [tuple(piece) for unit in units(Manifest("folder", (empty,))) for piece in unit] == [(0, 0, 0)]


def test_sampled_blocks_are_the_seeds_and_the_ends():
    entry = Entry("a", 50 * 10**9, spans=((10**10, 20 * MIB),))
    blocks = sampled_blocks(entry, 7)
    assert blocks == sampled_blocks(entry, 7)
    assert blocks != sampled_blocks(entry, 8)
    assert (blocks[0], blocks[-1]) == ((0, MIB), (entry.size - MIB, MIB))
    assert sum(10**10 <= start < 10**10 + 20 * MIB for start, _ in blocks) >= 20
    assert sampled_blocks(Entry("a", 5), 7) == ((0, 5),)
    assert is_sampled(Entry("a", FULL_UP_TO + 1), "auto")
    assert not is_sampled(Entry("a", FULL_UP_TO + 1), "full")
    assert not is_sampled(Entry("a", FULL_UP_TO), "auto")


def test_ledger():
    name = "ab" * 32
    ledger = Ledger(
        Manifest("hub", (Entry(f"blobs/{name}", 5, sha256=name), Entry("b", 1), Entry("l", link="b"))), "auto"
    )
    assert ledger.unknown([0, 1]) == [1]
    ledger.tell("t", [(0, name), (1, "x")])
    ledger.tell_source([(1, "x")])
    assert ledger.wrong("t") == []
    ledger.tell("t", [(0, "other")])
    assert ledger.wrong("t") == [0]
    assert ledger.wrong("never heard of") == [0, 1]


def link(ip, *, speed=10_000, default=False, interface="eth0"):
    return Link(interface, ip, 24, speed, default)


def test_the_fabric_comes_before_the_lan_and_ssh_last():
    links = {
        "a": [link("10.0.1.1", default=True), link("10.0.0.1"), link("172.17.0.1")],
        "b": [link("10.0.1.2", default=True), link("10.0.0.2"), link("172.17.0.1")],
        "c": [link("10.0.1.3", default=True, speed=1000)],
    }
    assert [mine.ip for mine, _ in shared(links["a"], links["b"])] == ["10.0.0.1", "10.0.1.1"]
    assert shared(links["a"], links["b"], "10.0.1.1")[0][0].ip == "10.0.1.1"
    assert chain("a", ["c", "b"], links) == ("b", "c")
    none = dict.fromkeys(links)
    assert [str(way) for way in routes("c", ["b", "a"], links, none)] == [
        "from b at 10.0.1.2 (eth0)",
        "from a at 10.0.1.1 (eth0)",
        "from a through ssh",
    ]


def test_paths_of_a_cache():
    assert split_hub("/c/hub/models--o--n") == ("/c/hub/models--o--n", None)
    assert split_hub("/c/hub/models--o--n/snapshots/abc/") == ("/c/hub/models--o--n", "abc")
    assert split_hub("/c/models/llama") is None
    assert split_hub("/c/llama/snapshots/abc") is None


def test_links_within_are_kept_and_others_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("xx")
    root = tmp_path / "m"
    (root / "sub").mkdir(parents=True)
    (root / "sub/a").write_text("a")
    (root / ".git").mkdir()
    (root / "half.incomplete").write_text("")
    (root / "relative").symlink_to("sub/a")
    (root / "absolute").symlink_to(root / "sub/a")
    (root / "folder").symlink_to("sub")
    (root / "file").symlink_to(outside / "x")
    (root / "other").symlink_to(outside)
    (root / "hidden").symlink_to(".git")
    _, manifest = list_source(str(root))
    assert {entry.path: entry.link or entry.size for entry in manifest.entries} == {
        "sub/a": 1,
        "relative": "sub/a",
        "absolute": "sub/a",
        "folder": "sub",
        "file": 2,
        "other/x": 2,
    }
    assert manifest.left_out == 2


def test_troubles_of_a_source(tmp_path):
    with pytest.raises(Trouble) as missing:
        list_source(str(tmp_path / "none"))
    assert missing.value.kind == "missing"
    root = tmp_path / "m"
    root.mkdir()
    with pytest.raises(Trouble) as empty:
        list_source(str(root))
    assert empty.value.kind == "missing"
    (root / "a").symlink_to("gone")
    with pytest.raises(Trouble) as dangling:
        list_source(str(root))
    assert (dangling.value.kind, dangling.value.seen) == ("dangling", "a -> gone")
    (root / "a").unlink()
    os.mkfifo(root / "a")
    with pytest.raises(Trouble) as pipe:
        list_source(str(root))
    assert pipe.value.kind == "unread"
    (root / "a").unlink()
    (tmp_path / "up").symlink_to(tmp_path)
    (root / "b").symlink_to("../up")
    with pytest.raises(Trouble) as circle:
        list_source(str(root))
    assert "circle" in circle.value.says


def test_spans_of_a_sparse_file(tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
        file.seek(32 * MIB)
        file.write(b"x" * MIB)
    assert spans_of(str(path), 64 * MIB) == ((32 * MIB, MIB),)
    path.write_bytes(b"x" * MIB)
    assert spans_of(str(path), MIB) is None


def test_rate_and_line():
    meter = Meter()
    assert [meter.rate(at, at * 10) for at in (0, 1, 2)] == [0, 10, 10]
    shown = line(CopyProgress("h2", "sending", 25 * 10**8, 10**10, 5e8, 15.0, 1, 4))
    assert shown == "h2  sending  25 %  2.5 GB of 10.0 GB  500 MB/s  0:15 left"


def test_the_bundle_is_python_3_9_of_the_standard_library_alone():
    for name, text in json.loads(bundle.modules()):
        for node in ast.walk(ast.parse(text, name, feature_version=(3, 9))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bascule"):
                assert node.module in bundle.MODULES, f"{name} imports {node.module}"
    folder = resources.files(bundle.PACKAGE).joinpath("node")
    parts = {Path(str(each)).stem for each in folder.iterdir() if each.name.endswith(".py")} - {"__init__"}
    assert {f"{bundle.PACKAGE}.node.{part}" for part in parts} <= set(bundle.MODULES)
