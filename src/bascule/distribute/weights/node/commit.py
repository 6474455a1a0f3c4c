"""Makes a verified copy visible: by one rename, or, where a cache entry is there already, blobs, snapshots, refs."""
# 100,000 files: plain strings and os calls, not Path objects.

from __future__ import annotations

import os

from bascule.distribute.weights.node.place import Place, sync_file_system
from bascule.distribute.weights.node.wire import Trouble


def commit(place: Place) -> list[str]:
    """Make it visible, and say what else was moved. Raises Trouble when something stands in the way by now."""
    try:
        _make_links(place)
        sync_file_system(place.data)
        notes = _merge(place) if _is_there(place.final) and place.manifest.kind == "hub" else _rename(place)
        sync_file_system(os.path.dirname(place.final))
    except OSError as trouble:
        raise Trouble("in-the-way", f"{place.final} could not be made visible", str(trouble)) from trouble
    place.release()
    return notes


def _is_there(path: str) -> bool:
    return os.path.isdir(path) and bool(os.listdir(path))


def _make_links(place: Place) -> None:
    for entry in place.manifest.entries:
        if entry.link is not None:
            full = place.part_of(entry.path)
            if os.path.lexists(full):
                os.unlink(full)
            os.symlink(entry.link, full)


def _rename(place: Place) -> list[str]:
    """One rename; a folder that is there must be empty, a file must not be there."""
    if place.manifest.kind != "file":
        os.rename(place.data, place.final)
        return []
    os.link(os.path.join(place.data, place.name), place.final)  # unlike rename, link never replaces
    return []


def _merge(place: Place) -> list[str]:
    """Blobs first, then links, refs last: at no moment does a snapshot point to what is not there."""
    notes = []
    order = sorted(place.manifest.entries, key=lambda entry: _ORDER.get(entry.path.split("/")[0], 1))
    for entry in order:
        part, final = os.path.join(place.data, entry.path), os.path.join(place.final, entry.path)
        if not os.path.lexists(part):
            continue
        os.makedirs(os.path.dirname(final), exist_ok=True)
        if entry.path.startswith("refs/") and os.path.exists(final):
            notes.append(f"{entry.path} was {_text(final)} and is {_text(part)}")
        elif os.path.lexists(final):
            if entry.link is None or os.path.realpath(final) != _leads(final, entry.link):
                raise Trouble("in-the-way", f"{final} is there by now", "")
            continue
        os.rename(part, final)
    return notes


_ORDER = {"blobs": 0, "snapshots": 1, "refs": 2}


def _leads(path: str, link: str) -> str:
    return os.path.realpath(os.path.join(os.path.dirname(path), link))


def _text(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read().strip()
