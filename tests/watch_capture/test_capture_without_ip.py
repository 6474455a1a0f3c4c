"""A node without iproute2: its routes can be read as addresses, and its counters stay numbers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from bascule.remote.local import LocalRunner
from bascule.watch.capture import capture

CAT = """#!/bin/sh
case ${1-} in
  /proc/net/dev) echo '  fab1: 33899585    1593    0    0    0     0          0         0 88145144    1520' ;;
  /proc/net/route) printf 'lan1\\t00000000\\t0101580A\\t0003\\t0\\t0\\t0\\t00000000\\t0\\t0\\t0\\n' ;;
  *) exec /bin/cat "$@" ;;
esac
"""


def test_routes_are_told_as_addresses_and_bytes_as_numbers(ranks, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    folders = [Path(folder) for folder in os.environ["PATH"].split(":")]
    for found in (path for folder in reversed(folders) if folder.is_dir() for path in folder.iterdir()):
        if found.name not in ("ip", "cat"):
            (programs / found.name).unlink(missing_ok=True)
            (programs / found.name).symlink_to(found)
    (programs / "cat").write_text(CAT)
    (programs / "cat").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    ranks.start("echo up; exec sleep 300")
    taken = asyncio.run(capture(ranks.watched, [ranks.node], {"a": LocalRunner(ranks.node)}, tmp_path / "evidence"))
    text = next(path for path in taken.files if path.name == "a.network.txt").read_text()
    assert "no ip command" in text
    assert "fab1: 33899585 " in text
    assert " 88145144 " in text
    assert "lan1\t0.0.0.0\t10.88.1.1\t0003" in text
