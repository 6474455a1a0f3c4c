"""What can go wrong with weights, as findings: one function for each kind of trouble (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bascule.core.nouns import Evidence, Fate, Finding, Step

PART = "the half copy stays, in `.NAME.bascule-part` beside the model's folder there"


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a node said when it could not go on."""

    kind: str
    says: str
    seen: str
    node: str
    path: str
    at: datetime


def finding(complaint: Complaint) -> Finding:
    """The finding for a complaint."""
    return _BY_KIND.get(complaint.kind, _unread)(complaint)


def same(nodes: str, complaint: Complaint) -> Finding:
    """All nodes hold the same."""
    evidence = Evidence(complaint.node, f"weights at {complaint.path}", complaint.at, complaint.seen)
    says = f"{nodes} hold the same files: {complaint.says}"
    return Finding(Step.DISTRIBUTE, Fate.OK, "weights-same", says, (evidence,))


def _missing(seen: Complaint) -> Finding:
    return _make(seen, Fate.HOPELESS, "weights-missing", seen.says, "name a folder that is there")


def _differ(seen: Complaint) -> Finding:
    advice = f"`bascule copy weights {seen.path} --from … --to …`, when the other copy was moved away"
    return _make(seen, Fate.HOPELESS, "weights-differ", seen.says, advice)


def _dangling(seen: Complaint) -> Finding:
    advice = "download the model again there: an interrupted download leaves such links"
    return _make(seen, Fate.CLUSTER, "weights-dangling", seen.says, advice)


def _unread(seen: Complaint) -> Finding:
    return _make(seen, Fate.UNKNOWN, "weights-unread", seen.says, "")


def _unwritten(seen: Complaint) -> Finding:
    advice = "give the user that ssh logs in as the right to write there"
    return _make(seen, Fate.CLUSTER, "weights-unwritten", seen.says, advice)


def _in_the_way(seen: Complaint) -> Finding:
    advice = f"move it away there (`mv {seen.path} {seen.path}.old`), or copy to where nothing is"
    return _make(seen, Fate.CLUSTER, "weights-in-the-way", seen.says, advice)


def _no_room(seen: Complaint) -> Finding:
    return _make(seen, Fate.CLUSTER, "weights-no-room", seen.says, f"free some space and copy again; {PART}")


def _changed(seen: Complaint) -> Finding:
    advice = f"copy again when nothing writes to it; only what changed is sent again, {PART}"
    return _make(seen, Fate.AGAIN, "weights-changed", seen.says, advice)


def _corrupt(seen: Complaint) -> Finding:
    advice = "look at that node's memory, disk and network card; run the copy again"
    return _make(seen, Fate.AGAIN, "weights-corrupt", seen.says, advice)


def _cut(seen: Complaint) -> Finding:
    advice = f"run the copy again: finished ranges are not sent again, {PART}"
    return _make(seen, Fate.AGAIN, "weights-cut", seen.says, advice)


def _busy(seen: Complaint) -> Finding:
    return _make(seen, Fate.AGAIN, "weights-busy", seen.says, "wait for the other copy, or end it")


def _no_python(seen: Complaint) -> Finding:
    advice = "install Python 3.9 or newer there, or copy with rsync"
    return _make(seen, Fate.CLUSTER, "python3-missing", seen.says, advice)


def _unreachable(seen: Complaint) -> Finding:
    return _make(seen, Fate.AGAIN, "node-unreachable", seen.says, "`ssh` to it must work without a question")


def _make(seen: Complaint, fate: Fate, code: str, says: str, advice: str) -> Finding:
    evidence = Evidence(seen.node, f"weights at {seen.path}", seen.at, seen.seen or seen.says)
    return Finding(Step.DISTRIBUTE, fate, code, f"{seen.node}: {says}", (evidence,), advice=advice)


_BY_KIND: dict[str, Callable[[Complaint], Finding]] = {
    "missing": _missing,
    "differ": _differ,
    "dangling": _dangling,
    "unread": _unread,
    "unwritten": _unwritten,
    "in-the-way": _in_the_way,
    "no-room": _no_room,
    "changed": _changed,
    "corrupt": _corrupt,
    "cut": _cut,
    "busy": _busy,
    "no-python": _no_python,
    "unreachable": _unreachable,
}
