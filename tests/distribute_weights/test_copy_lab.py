"""Copies between real hosts: folders, cache entries, many small files, a huge sparse one; and what is left alone."""

from __future__ import annotations

import hashlib
import os

import pytest

from bascule.core.nouns import Fate, Finding
from bascule.distribute.weights.progress import Receipt
from distribute_weights.conftest import MIB, tree

pytestmark = pytest.mark.lab


def test_folder_along_a_chain_then_skipped(bench):
    bench.write(
        "h1", {"m/a.safetensors": os.urandom(130 * MIB), "m/config.json": b"{}", "m/sub/empty": b"", "m/.hid": b"x"}
    )
    (bench.home("h1") / "m/first").symlink_to("sub/empty")
    (bench.home("h1") / "m/run.sh").write_text("#!/bin/sh\n")
    (bench.home("h1") / "m/run.sh").chmod(0o755)
    bench.own("h1")
    seen = []
    done = bench.copy("~/m", "h2", "h3", on_progress=seen.append)
    assert isinstance(done["h2"], Receipt), done
    assert isinstance(done["h3"], Receipt), done
    assert "from h1 at 10.97.0.1 (fab0)" in done["h2"].route
    assert "from h2 at 10.97.0.2 (fab0)" in done["h3"].route
    assert done["h3"].verified == "sha256 of 4 files"
    wanted = tree(bench.home("h1") / "m")
    del wanted[".hid"]
    for host in ("h2", "h3"):
        assert tree(bench.home(host) / "m") == wanted
        assert os.access(bench.home(host) / "m/run.sh", os.X_OK)
        assert not (bench.home(host) / ".m.bascule-part").exists()
    assert {each.target for each in seen} == {"h2", "h3"}
    assert all(each.bytes <= each.total for each in seen)

    again = bench.copy("~/m", "h2", "h3")
    assert [(each.already_there, each.sent) for each in again.values()] == [(True, 0)] * 2
    assert bench.same("~/m", "h1", "h2", "h3").fate is Fate.OK


def test_one_file(bench):
    bench.write("h1", {"models/a.gguf": os.urandom(3 * MIB)})
    assert isinstance(bench.copy("~/models/a.gguf", "h2")["h2"], Receipt)
    assert tree(bench.home("h2")) == tree(bench.home("h1"))
    assert bench.copy("~/models/a.gguf", "h2")["h2"].already_there


def entry_of_hub(bench, host, revision, contents):
    """A cache entry as huggingface_hub makes it; small files are named by another checksum."""
    repo = bench.home(host) / "hub/models--org--name"
    for name, data in contents.items():
        made = hashlib.sha256(data).hexdigest() if name.endswith("safetensors") else hashlib.sha1(data).hexdigest()
        bench.write(host, {f"hub/models--org--name/blobs/{made}": data})
        link = repo / "snapshots" / revision / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(repo / "blobs" / made, link.parent))
    bench.write(host, {"hub/models--org--name/refs/main": revision.encode()})
    return repo


def test_cache_entry_new_and_beside_an_older_revision(bench):
    shared = os.urandom(2 * MIB)
    repo = entry_of_hub(
        bench, "h1", "r1", {"m.safetensors": os.urandom(70 * MIB), "s.safetensors": shared, "x/c.json": b"1"}
    )
    (repo / "blobs/half.incomplete").write_bytes(b"x")
    entry_of_hub(bench, "h3", "r0", {"s.safetensors": shared, "config.json": b"old"})
    old = tree(bench.home("h3"))
    done = bench.copy("~/hub/models--org--name/snapshots/r1", "h2", "h3")
    assert isinstance(done["h2"], Receipt), done
    assert isinstance(done["h3"], Receipt), done
    wanted = tree(bench.home("h1"))
    del wanted["hub/models--org--name/blobs/half.incomplete"]
    assert tree(bench.home("h2")) == wanted
    assert tree(bench.home("h3")) == {**old, **wanted}
    assert done["h3"].notes == ("refs/main was r0 and is r1",)
    assert done["h3"].sent < done["h2"].sent
    assert all(path.exists() for path in (bench.home("h3") / "hub/models--org--name/snapshots").rglob("*"))
    assert bench.copy("~/hub/models--org--name", "h2")["h2"].already_there


def test_dangling_link_is_told_before_anything_is_sent(bench):
    repo = entry_of_hub(bench, "h1", "r1", {"m.safetensors": os.urandom(MIB), "config.json": b"1"})
    next((repo / "blobs").glob("?" * 64)).unlink()
    found = bench.copy("~/hub/models--org--name/snapshots/r1", "h2")["h2"]
    assert isinstance(found, Finding)
    assert (found.code, found.fate) == ("weights-dangling", Fate.CLUSTER)
    assert "snapshots/r1/m.safetensors -> ../../blobs/" in found.evidence[0].excerpt
    assert tree(bench.home("h2")) == {}
    assert bench.same("~/hub/models--org--name/snapshots/r1", "h1").code == "weights-dangling"


@pytest.mark.parametrize(
    "there", [{"m/config.json": b"[]"}, {"m/config.json": b"{}", "m/more.bin": b"1"}, {"m/a": b""}]
)
def test_other_content_is_never_overwritten(bench, there):
    bench.write("h1", {"m/config.json": b"{}"})
    bench.write("h2", there)
    before = tree(bench.home("h2"))
    found = bench.copy("~/m", "h2", "h3")
    assert found["h2"].code == "weights-in-the-way"
    assert "mv ~/m ~/m.old" in found["h2"].advice
    assert tree(bench.home("h2")) == before
    assert isinstance(found["h3"], Receipt)
    assert bench.same("~/m", "h1", "h2").code == "weights-differ"
    assert bench.same("~/nothing", "h1", "h2").code == "weights-missing"


def test_hundred_thousand_small_files(bench):
    root = bench.home("h1") / "many"
    for folder in range(100):
        (root / str(folder)).mkdir(parents=True)
        for number in range(1000):
            (root / str(folder) / f"{number}.json").write_text(f"{folder} {number}" * (number % 20))
    bench.own("h1")
    done = bench.copy("~/many", "h2")["h2"]
    assert isinstance(done, Receipt), done
    assert done.files == 100_000
    assert tree(bench.home("h2") / "many") == tree(root)


def test_fifty_gigabytes_with_holes(bench):
    path = bench.home("h1") / "m/huge.gguf"
    path.parent.mkdir()
    spans = {offset: os.urandom(2 * MIB) for offset in (0, 10**10, 33 * 10**9 + 12345)}
    with path.open("wb") as file:
        file.truncate(50 * 10**9)
        for offset, data in spans.items():
            file.seek(offset)
            file.write(data)
    bench.own("h1")
    done = bench.copy("~/m", "h2")["h2"]
    assert isinstance(done, Receipt), done
    assert done.sent < 7 * MIB
    assert done.verified.startswith("1 files over 16 GiB by 66 blocks of 1 MiB each, seed ")
    got = bench.home("h2") / "m/huge.gguf"
    assert (got.stat().st_size, got.stat().st_blocks * 512 < 8 * MIB) == (50 * 10**9, True)
    with got.open("rb") as file:
        for offset, data in spans.items():
            file.seek(offset)
            assert file.read(len(data)) == data
    with got.open("r+b") as file:
        file.seek(10**10)
        file.write(b"\0" * 2 * MIB)
    assert bench.copy("~/m", "h2")["h2"].code == "weights-in-the-way"
