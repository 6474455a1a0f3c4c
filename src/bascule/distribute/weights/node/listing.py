"""Reads a folder, a file or an entry of a Hugging Face cache into a manifest, before anything is sent."""
# 100,000 files: plain strings and os calls, not Path objects.

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from bascule.distribute.weights.manifest import MIB, Entry, Manifest, Span, known_sha256, split_hub
from bascule.distribute.weights.node.wire import Trouble

THREADS = 8
CHUNK = 2000  # files that one thread describes at once
MOST_SPANS = 100_000  # of one file; beyond it the file counts as whole


class Found(NamedTuple):
    """A name that the walk met: a link to keep, or something to copy."""

    path: str
    link: str | None = None
    sha256: str | None = None  # of a ref: its text was read anyway


def expand(path: str) -> str:
    """An absolute path; ~ is the home of the user there."""
    return os.path.abspath(os.path.expanduser(path))


def list_source(path: str) -> tuple[str, Manifest]:
    """Where the files are, and all of them. Raises Trouble: missing, dangling, unreadable."""
    full = expand(path)
    hub = split_hub(full)
    if os.path.isfile(full):
        root, name = os.path.split(full)
        return root, Manifest("file", (_describe(root, Found(name)),))
    if not os.path.isdir(full):
        raise Trouble("missing", f"there is no {path}", _ls(os.path.dirname(full)))
    root = hub[0] if hub else full
    walk = _Walk(root)
    found = list(walk.hub(hub[1]) if hub else walk.below(""))
    if walk.dangling:
        raise Trouble("dangling", f"{len(walk.dangling)} links lead nowhere", "\n".join(walk.dangling[:20]))
    if not any(each.link is None for each in found):
        raise Trouble("missing", f"{path} holds no files", _ls(full))
    found.sort()
    with ThreadPoolExecutor(THREADS) as pool:
        chunks = [found[start : start + CHUNK] for start in range(0, len(found), CHUNK)]
        entries = [
            entry for part in pool.map(lambda chunk: [_describe(root, f) for f in chunk], chunks) for entry in part
        ]
    return root, Manifest("hub" if hub else "folder", tuple(entries), walk.left_out)


def changed(root: str, manifest: Manifest) -> list[str]:
    """Paths of files that are not what they were when the manifest was made."""
    entries = [entry for entry in manifest.entries if entry.link is None]
    return [entry.path for entry in entries if not unchanged(os.path.join(root, entry.path), entry)]


def unchanged(path: str, entry: Entry) -> bool:
    """True when a file still has its size and time."""
    try:
        seen = os.stat(path)
    except OSError:
        return False
    return (seen.st_size, seen.st_mtime_ns) == (entry.size, entry.mtime_ns)


class _Walk:
    """One walk over a root; notes what is left out and which links dangle."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.real = os.path.realpath(root)
        self.left_out = 0
        self.dangling: list[str] = []

    def hub(self, revision: str | None) -> Iterator[Found]:
        """Snapshots, the blobs that they need, and the refs that name them."""
        revisions = [revision] if revision else sorted(os.listdir(os.path.join(self.root, "snapshots")))
        blobs: set[str] = set()
        for name in revisions:
            base = f"snapshots/{name}"
            for found in self.below(base):
                if found.link is not None:
                    blobs.add(os.path.normpath(os.path.join(os.path.dirname(found.path), found.link)))
                yield found
        yield from (Found(blob) for blob in blobs if blob.startswith("blobs/"))
        for found in self.below("refs"):
            with open(os.path.join(self.root, found.path), "rb") as file:
                text = file.read()
            if text.decode(errors="replace").strip() in revisions:
                yield Found(found.path, None, hashlib.sha256(text).hexdigest())

    def below(self, base: str, above: tuple[str, ...] = ()) -> Iterator[Found]:
        """Everything below a folder; links within the root are kept, others are followed."""
        folder = os.path.join(self.root, base)
        real = os.path.realpath(folder)
        if real in above:
            raise Trouble("unread", f"links go round in a circle at {base}", real)
        try:
            names = sorted(os.scandir(folder), key=lambda each: each.name)
        except FileNotFoundError:
            return
        except OSError as trouble:
            raise Trouble("unread", f"{base or '.'} can't be read", str(trouble)) from trouble
        for each in names:
            path = f"{base}/{each.name}" if base else each.name
            if each.name.startswith(".") or each.name.endswith(".incomplete"):
                self.left_out += 1
            elif each.is_symlink():
                yield from self._link(path, real, (*above, real))
            elif each.is_dir(follow_symlinks=False):
                yield from self.below(path, (*above, real))
            else:
                yield Found(path)

    def _link(self, path: str, real: str, above: tuple[str, ...]) -> Iterator[Found]:
        full = os.path.join(self.root, path)
        says = os.readlink(full)
        if not os.path.exists(full):
            self.dangling.append(f"{path} -> {says}")
            return
        leads = os.path.normpath(os.path.join(real, says))
        if self._is_kept(leads) and real.startswith(self.real):
            yield Found(path, os.path.relpath(leads, real))
        elif os.path.isdir(full):
            yield from self.below(path, above)
        else:
            yield Found(path)

    def _is_kept(self, leads: str) -> bool:
        """True when the place that a link names is copied too."""
        if not leads.startswith(self.real + os.sep):
            return False
        parts = leads[len(self.real) + 1 :].split(os.sep)
        return not any(part.startswith(".") or part.endswith(".incomplete") for part in parts)


def _describe(root: str, found: Found) -> Entry:
    if found.link is not None:
        return Entry(found.path, link=found.link)
    full = os.path.join(root, found.path)
    try:
        seen = os.stat(full)
        if not stat.S_ISREG(seen.st_mode):
            raise Trouble("unread", f"{found.path} is neither a file nor a folder", oct(seen.st_mode))
        if not os.access(full, os.R_OK):
            raise Trouble("unread", f"{found.path} can't be read", "permission denied")
        hollow = seen.st_size >= MIB and seen.st_blocks * 512 < seen.st_size
        spans = spans_of(full, seen.st_size) if hollow else None
    except OSError as trouble:
        raise Trouble("unread", f"{found.path} can't be read", str(trouble)) from trouble
    executable = bool(seen.st_mode & stat.S_IXUSR)
    known = found.sha256 or known_sha256(found.path)
    return Entry(found.path, seen.st_size, seen.st_mtime_ns, executable, None, known, spans)


def spans_of(path: str, size: int) -> tuple[Span, ...] | None:
    """Where a file has data; None when that is everywhere, or can't be told."""
    spans: list[Span] = []
    with open(path, "rb", buffering=0) as file:
        at = 0
        while at < size and len(spans) < MOST_SPANS:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
                at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            except OSError as end:
                if end.errno == errno.ENXIO:  # nothing but a hole from here
                    return tuple(spans)
                return None
            spans.append((begin, min(at, size) - begin))
    return None if at < size or spans == [(0, size)] else tuple(spans)


def _ls(folder: str) -> str:
    try:
        names: Sequence[str] = sorted(os.listdir(folder))
    except OSError as trouble:
        return str(trouble)
    return f"{folder}: " + (" ".join(names[:20]) or "empty")
