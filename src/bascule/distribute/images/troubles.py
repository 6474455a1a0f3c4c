"""Findings of a copy: from what a helper or a plan named to fate, sentence and advice (pure)."""

from __future__ import annotations

from datetime import datetime

from bascule.core.nouns import Evidence, Fate, Finding, Step
from bascule.distribute.images.plan import Refusal

# From a helper's code: the finding's code, its fate, what is said with {node} and {source}, what a person could do.
_KNOWN: dict[str, tuple[str, Fate, str, str]] = {
    "disk-full": (
        "image-no-room",
        Fate.CLUSTER,
        "the disk of {node} became full during the copy; what had come is removed",
        "make room on {node}, as with docker image prune",
    ),
    "spool-failed": ("spool-failed", Fate.CLUSTER, "{node} can't write its spool", "look at ~/.cache/bascule/spool"),
    "docker-denied": ("docker-denied", Fate.CLUSTER, "docker on {node} refused this user", "usermod -aG docker USER"),
    "docker-gone": ("docker-gone", Fate.AGAIN, "docker on {node} went away during the copy", "journalctl -u docker"),
    "docker-failed": ("image-not-loaded", Fate.HOPELESS, "docker on {node} refused the image", ""),
    "source-lost": ("source-lost", Fate.AGAIN, "no bytes came to {node} any more", "is the network between them up?"),
    "layer-corrupt": ("copy-corrupted", Fate.AGAIN, "a layer came to {node} with other bytes than it left with", ""),
    "image-damaged": (
        "image-damaged",
        Fate.HOPELESS,
        "the image on {source} is damaged: a layer is not what its digest says",
        "pull it anew on {source}",
    ),
    "save-failed": ("image-damaged", Fate.HOPELESS, "docker save on {source} failed", "pull the image anew there"),
    "layer-gone": (
        "image-removed",
        Fate.AGAIN,
        "layers of the image vanished on {source} during the copy",
        "was it removed or pulled anew there?",
    ),
    "source-full": (
        "image-no-room",
        Fate.CLUSTER,
        "docker save has no room on {source}: it needs the image's size twice",
        "make room on {source}, or let bascule log in there as root or with sudo",
    ),
    "image-differs": (
        "image-differs",
        Fate.HOPELESS,
        "what arrived on {node} is not the image of {source}; it was removed",
        "",
    ),
    "image-hollow": ("copy-incomplete", Fate.AGAIN, "{node} has some layers only in packed form", ""),
    "another-copy": ("another-copy", Fate.AGAIN, "another copy to {node} was under way", ""),
    "node-unreachable": ("node-unreachable", Fate.AGAIN, "{node} does not answer over ssh", ""),
}
_KNOWN["layer-changed"] = _KNOWN["image-damaged"]
_OTHER = ("copy-failed", Fate.AGAIN, "the copy to {node} failed", "")


def of_helper(code: str, seen: str, node: str, source: str, at: datetime) -> Finding:
    """The finding for a code of a helper."""
    name, fate, says, advice = _KNOWN.get(code, _OTHER)
    words = {"node": node, "source": source}
    evidence = (Evidence(node, "bascule's helper", at, seen or code),)
    return Finding(Step.DISTRIBUTE, fate, name, says.format(**words), evidence, advice=advice.format(**words))


def of_refusal(refusal: Refusal, node: str, at: datetime) -> Finding:
    """The finding for what a plan refuses."""
    fate = Fate.HOPELESS if refusal.code in ("image-wrong-arch", "artefact-missing") else Fate.CLUSTER
    evidence = (Evidence(node, "docker inspect, df, uname", at, refusal.seen),)
    return Finding(Step.DISTRIBUTE, fate, refusal.code, refusal.says, evidence, advice=refusal.advice)
