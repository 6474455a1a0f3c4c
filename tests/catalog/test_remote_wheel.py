"""A wheel read by ranges: little travels, and a server that lies or never ends gives Unreadable, not a wrong answer."""

import asyncio
import os
import re
import zipfile

import pytest

from bascule.core.reading import Unreadable
from bascule.probe.index import Wheel, client_for, wheels_of
from bascule.probe.views.base import TEXT_LIMIT
from bascule.probe.views.remote_file import PIECE, TAIL, WHOLE, joined
from bascule.probe.views.remote_wheel import open_wheel
from catalog.catalog_index import wheel_of

NOISE = os.urandom(2_000_000)  # doesn't shrink
FILES = {
    "vllm/_C.so": NOISE,
    "vllm/models/a.py": "class A:\n    pass\n",
    "vllm/models/b.py": "class B(A): ...\n",
    "vllm/_D.so": NOISE,
    "vllm-1.0.data/purelib/vllm/c.py": "C = 1\n",
    "vllm-1.0.dist-info/METADATA": "Name: vllm\nVersion: 1.0\n",
}


def do(index, work, filename="vllm-1.0-py3-none-any.whl"):
    """Open the wheel of the index and do something with it."""

    async def run():
        async with client_for() as client:
            wheels = await wheels_of(client, index.url, "vllm")
            wheel = next(wheel for wheel in wheels if wheel.filename == filename)
            async with open_wheel(client, wheel) as view:
                return await work(view)

    return asyncio.run(run())


def read(path):
    return lambda view: view.read(path)


def test_only_what_is_asked_for_travels(index):
    index.add("vllm", "1.0", wheel_of(FILES))

    async def work(view):
        return await view.read("vllm/models/a.py"), view.bytes_read, view.requests

    text, size, requests = do(index, work)
    assert text == b"class A:\n    pass\n"
    assert TAIL < size < TAIL + 4096  # of 4 MB: the end, and the stretch with the two small files
    assert requests == 2
    assert next(part for path, part in index.asked if path.startswith("/files/")) == f"bytes=-{TAIL}"


def test_files_that_lie_together_come_by_one_request(index):
    index.add("vllm", "1.0", wheel_of(FILES))

    async def work(view):
        await view.fetch(["vllm/models/a.py", "vllm/models/b.py", "nobody.py"])
        return view.requests, await view.read("vllm/models/b.py"), view.requests

    assert do(index, work) == (2, b"class B(A): ...\n", 2)


def test_it_answers_as_every_view_does(index):
    index.add("vllm", "1.0", wheel_of(FILES))

    async def work(view):
        assert await view.read("vllm/none.py") is None
        assert await view.head("vllm/_C.so", 10) == NOISE[:10]
        assert await view.find("vllm/*.so", "vllm", "*.dist-info", "vllm/*/a.py", "models") == (
            "vllm",
            "vllm-1.0.dist-info",
            "vllm/_C.so",
            "vllm/_D.so",
            "vllm/models/a.py",
        )
        assert await view.read("vllm/c.py") == b"C = 1\n"  # from the purelib of its data
        found = await view.search("^class [AB]", "vllm/models/*.py")
        assert (found.files, [hit.source for hit in found.hits]) == (2, ["vllm/models/a.py:1", "vllm/models/b.py:1"])

    do(index, work)


def test_a_server_without_ranges_sends_a_small_wheel_whole_and_its_hash_counts(index):
    name = index.add("vllm", "1.0", wheel_of(FILES))
    index.manners[name] = "whole"
    assert do(index, read("vllm/models/a.py")) == b"class A:\n    pass\n"
    index.hashes[name] = "0" * 64
    with pytest.raises(Unreadable, match=r"its sha256 is [0-9a-f]{64}, and the index says 0{64}"):
        do(index, read("vllm/models/a.py"))


def test_where_the_index_tells_no_size_the_server_does(index):
    name = index.add("vllm", "1.0", wheel_of(FILES))
    index.manners[name], index.html = "whole", True
    assert do(index, read("vllm/models/a.py")) == b"class A:\n    pass\n"


@pytest.mark.parametrize(
    ("manners", "size", "says"), [("whole", WHOLE + 1, "of 200 MB"), ("whole-endless", None, "of unknown size")]
)
def test_a_server_without_ranges_is_not_asked_for_a_large_wheel(index, manners, size, says):
    name = index.add("vllm", "1.0", wheel_of(FILES))
    index.manners[name], index.sizes[name] = manners, size
    why = f"the server sends no parts of files, and a file {says} is not fetched whole"
    with pytest.raises(Unreadable, match=re.escape(why)):
        do(index, read("vllm/models/a.py"))
    assert len([path for path, _ in index.asked if path.startswith("/files/")]) == 1


def test_a_whole_wheel_that_never_ends_is_left_where_it_should_end(index):
    name = index.add("vllm", "1.0", wheel_of(FILES))
    index.manners[name] = "whole-endless"
    with pytest.raises(Unreadable, match=f"the server sends more than the {len(index.files[name])} bytes"):
        do(index, read("vllm/models/a.py"))


@pytest.mark.parametrize(
    ("manners", "why"),
    [
        ("loop", "maximum allowed redirects"),
        ("broken", "asked for a part, the server answers 500"),
        ("nonsense", "asked for a part, the server answers 206 Partial Content bytes all of it"),
        ("other-part", r"asked for bytes \d+ to \d+ of \d+, the server sends bytes"),
        ("huge", "asked for the last 131072 bytes, the server sends"),
        ("endless", "the server sends more than the 131072 bytes that it promised"),
        ("short", "the server ends after 131071 of 131072 bytes"),
    ],
)
def test_a_server_with_bad_manners_is_unreadable_and_bounded(index, manners, why):
    name = index.add("vllm", "1.0", wheel_of(FILES))
    index.manners[name] = manners
    with pytest.raises(Unreadable, match=why):
        do(index, read("vllm/models/a.py"))
    assert len(index.asked) <= 10


def test_an_index_and_a_server_that_differ_about_the_length_are_not_believed(index):
    name = index.add("vllm", "1.0", wheel_of(FILES))
    index.sizes[name] = 17
    with pytest.raises(Unreadable, match=r"the index says 17 bytes, the server \d+"):
        do(index, read("vllm/models/a.py"))


def test_nobody_there_is_unreadable():
    async def run():
        async with client_for() as client, open_wheel(client, Wheel("w.whl", "http://127.0.0.1:9/w", "1", 9, "")):
            pass

    with pytest.raises(Unreadable, match=r"w\.whl: "):
        asyncio.run(run())


def test_what_is_no_zip_is_unreadable(index):
    index.add("vllm", "1.0", b"<html>not here</html>" * 100)
    with pytest.raises(Unreadable, match="can't be unpacked: File is not a zip file"):
        do(index, read("vllm/models/a.py"))


def test_a_changed_byte_is_told_by_the_checksum(index):
    index.add("vllm", "1.0", wheel_of(FILES, zipfile.ZIP_STORED).replace(b"class A", b"class Z"))
    with pytest.raises(Unreadable, match=r"vllm/models/a.py: can't be unpacked: Bad CRC-32"):
        do(index, read("vllm/models/a.py"))


def test_a_file_that_unpacks_to_very_much_is_refused(index):
    index.add("vllm", "1.0", wheel_of({"vllm/bomb.py": bytes(TEXT_LIMIT + 1)}))
    with pytest.raises(Unreadable, match=f"more than {TEXT_LIMIT} bytes"):
        do(index, read("vllm/bomb.py"))


def test_a_table_of_contents_that_claims_to_be_huge_is_not_fetched(index):
    body = bytearray(wheel_of({"vllm/a.py": bytes(PIECE + 10_000_000)}, zipfile.ZIP_STORED))
    # The end record (APPNOTE 4.3.16): size of the table of contents at 12, its offset at 16; both said to be the file.
    body[-10:-6] = (len(body) - 22).to_bytes(4, "little")
    body[-6:-2] = bytes(4)
    index.add("vllm", "1.0", bytes(body))
    with pytest.raises(Unreadable, match=r"can't be unpacked: a piece of \d+ bytes"):
        do(index, read("vllm/a.py"))
    assert len([path for path, _ in index.asked if path.startswith("/files/")]) == 1


def test_a_method_that_no_wheel_uses_is_refused(index):
    index.add("vllm", "1.0", wheel_of({"vllm/a.py": b"x" * 1000}, zipfile.ZIP_LZMA))
    with pytest.raises(Unreadable, match="compressed as no wheel is"):
        do(index, read("vllm/a.py"))


def test_a_path_of_very_many_folders_is_refused(index):
    index.add("vllm", "1.0", wheel_of({"a/" * 1000 + "b.py": b"x"}))
    with pytest.raises(Unreadable, match="has a path of 2004 characters"):
        do(index, read("vllm/a.py"))


def test_stretches_are_joined_when_they_are_near():
    assert joined([(10, 20), (0, 5), (18, 30)]) == [(0, 5), (10, 30)]
    assert joined([(0, 5), (10, 20)], apart=5) == [(0, 20)]
    assert joined([(0, 5), (10, 20)], apart=4) == [(0, 5), (10, 20)]
    assert joined([]) == []
