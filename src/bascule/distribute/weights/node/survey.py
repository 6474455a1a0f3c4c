"""What an engine would read at a path: names with links followed, sizes and checksums, to compare nodes with."""
# 100,000 files: plain strings and os calls, not Path objects.

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bascule.distribute.weights.manifest import MIB, Entry
from bascule.distribute.weights.node.hashing import sampled, whole
from bascule.distribute.weights.node.listing import expand
from bascule.distribute.weights.node.wire import Trouble

WHOLE_UP_TO = 8 * MIB  # bytes; larger files are compared by sampled blocks
BLOCKS = 8  # beside the first and the last one
THREADS = 4
AT_ONCE = 500  # files that one thread reads in a row


def survey(path: str, seed: int) -> list[list[Any]]:
    """Path, size and checksum of every file; hidden ones are left out. Raises Trouble."""
    full = expand(path)
    if os.path.isfile(full):
        return [_row(os.path.dirname(full), os.path.basename(full), seed)]
    dangling: list[str] = []
    names = sorted(_files(full, dangling))
    if dangling:
        raise Trouble("dangling", f"{len(dangling)} links lead nowhere", "\n".join(dangling[:20]))
    chunks = [names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)]
    with ThreadPoolExecutor(THREADS) as pool:
        return [row for rows in pool.map(lambda part: [_row(full, n, seed) for n in part], chunks) for row in rows]


def _files(root: str, dangling: list[str]) -> list[str]:
    found: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_refuse, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            full = os.path.join(folder, name)
            if name.startswith(".") or name.endswith(".incomplete"):
                continue
            (found if os.path.exists(full) else dangling).append(os.path.relpath(full, root))
    return found


def _refuse(trouble: OSError) -> None:
    if not isinstance(trouble, FileNotFoundError):
        raise Trouble("unread", "a folder of the model can't be read", str(trouble)) from trouble


def _row(root: str, name: str, seed: int) -> list[Any]:
    try:
        fd = os.open(os.path.join(root, name), os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            told = whole(fd, size) if size <= WHOLE_UP_TO else sampled(fd, Entry(name, size), seed, BLOCKS)
        finally:
            os.close(fd)
    except OSError as trouble:
        raise Trouble("unread", f"{name} can't be read", str(trouble)) from trouble
    return [name, size, told]
