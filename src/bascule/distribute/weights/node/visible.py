"""What a target holds visibly already: nothing, the same, or something else that is never overwritten."""
# 100,000 files: plain strings and os calls, not Path objects.

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from bascule.distribute.weights.manifest import Entry
from bascule.distribute.weights.node.listing import list_source
from bascule.distribute.weights.node.place import Place
from bascule.distribute.weights.node.wire import Trouble


class Visible(NamedTuple):
    """Files that are there with the right size, and whether nothing is missing."""

    files: frozenset[int]
    whole: bool


def look(place: Place) -> Visible:
    """Compare by names, sizes and links; content comes later. Raises Trouble when something else is there."""
    if place.manifest.kind == "hub":
        return _entry_of_hub(place)
    if not os.path.lexists(place.final) or _is_empty(place.final):
        return Visible(frozenset(), whole=False)
    if place.manifest.kind == "folder" and not os.path.isdir(place.final):
        raise _in_the_way(place, ["a file"])
    odd = [f"{entry.path}: {seen}" for entry in place.manifest.entries if (seen := _oddness(place, entry))]
    if place.manifest.kind == "folder":
        odd += [f"{path}: only here" for path in _extra(place)]
    if odd:
        raise _in_the_way(place, odd)
    return Visible(frozenset(place.manifest.files), whole=True)


def _entry_of_hub(place: Place) -> Visible:
    """An entry of a cache may hold other revisions too, and some blobs of this one."""
    files, odd, whole = set(), [], True
    for number, entry in enumerate(place.manifest.entries):
        full = os.path.join(place.final, entry.path)
        if not os.path.lexists(full) or (entry.path.startswith("refs/") and not _is_same_ref(full, entry)):
            whole = False
        elif seen := _oddness(place, entry):
            odd.append(f"{entry.path}: {seen}")
        elif entry.link is None:
            files.add(number)
    if odd:
        raise _in_the_way(place, odd)
    return Visible(frozenset(files), whole)


def _oddness(place: Place, entry: Entry) -> str:
    """How the visible file differs; "" when it doesn't."""
    full = os.path.join(place.root, entry.path)
    if entry.link is not None:
        if os.path.islink(full):
            want = os.path.realpath(os.path.join(os.path.dirname(full), entry.link))
            return "" if os.path.realpath(full) == want else f"a link to {os.readlink(full)}"
        return "" if os.path.exists(full) and place.manifest.kind == "folder" else "missing"
    try:
        size = os.stat(full).st_size
    except OSError:
        return "missing"
    return "" if size == entry.size and os.path.isfile(full) else f"{size} instead of {entry.size} bytes"


def _extra(place: Place) -> list[str]:
    """Paths that are visible here and not in the manifest."""
    try:
        _, there = list_source(place.final)
    except Trouble as trouble:
        return [trouble.says]
    known = {entry.path for entry in place.manifest.entries}
    return [entry.path for entry in there.entries if entry.path not in known]


def _is_empty(path: str) -> bool:
    return os.path.isdir(path) and not os.listdir(path)


def _is_same_ref(path: str, entry: Entry) -> bool:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest() == entry.sha256


def _in_the_way(place: Place, odd: list[str]) -> Trouble:
    says = f"{place.final} is there already with other content: {odd[0]}"
    return Trouble("in-the-way", says, "\n".join(odd[:20]))
