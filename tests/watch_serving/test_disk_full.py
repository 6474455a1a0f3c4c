"""A rank that ended on a full disk: its last words had no room, so the disk is asked."""

from __future__ import annotations

import asyncio

import pytest

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Node
from bascule.errors import NodeUnreachable
from bascule.remote.runner import Result
from bascule.watch.vigil import Vigil

DF = "Filesystem     1024-blocks  Used Available Capacity Mounted on\ntmpfs {size} {used} {free} 100% /run/small\n"


class Says:
    """A node that answers with this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def run(self, argv, *, stdin="", within=30):
        if not self.text:
            raise NodeUnreachable("node-unreachable", "gone")
        assert argv == ("df", "-Pk", "/run/small")
        return Result(argv, 0, self.text.encode(), b"")


def finding(text):
    node = Node("a", "a", facts=NodeFacts(run_dir="/run/small"))
    return asyncio.run(Vigil([], [], {"a": node}, {"a": Says(text)}, None).disk_full("a"))


def test_a_full_disk_is_told_with_what_df_says():
    found = finding(DF.format(size=81920, used=81920, free=0))
    assert (found.code, found.fate) == ("disk-full", "cluster")
    assert found.evidence[0].excerpt == "tmpfs 81920 81920 0 100% /run/small"


@pytest.mark.parametrize("text", [DF.format(size=81920, used=81000, free=920), "", "df: /run/small: no such file"])
def test_a_disk_with_room_or_of_which_nothing_is_known_is_not_called_full(text):
    assert finding(text) is None
