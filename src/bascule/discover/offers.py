"""What a source offers for a model: an image or an environment, under all its names, with what is known of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

Kind = Literal["project", "vendor", "own", "community"]
Signed = Literal["present", "absent", "unknown", ""]  # nobody verifies it; "" = it was not asked for

RECIPE, NODES, CATALOGUE, SEARCH = "recipe", "nodes", "catalogue", "docker hub search"


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who publishes an image."""

    id: str  # docker.io/hellohal2064, or the name of a registry of one's own, or "" for what was built on a node
    name: str
    kind: Kind  # project: makes the engine; vendor: of the hardware; own: not from a public hub

    @property
    def words(self) -> tuple[str, ...]:
        """By which a person may trust it: docker.io/NAME, or NAME."""
        return (self.id, self.id.rpartition("/")[2], self.name)


OWN = Publisher("", "built here", "own")


@dataclass(frozen=True, slots=True)
class Offer:
    """An artefact that might serve the model. Offers that share an identity are one."""

    names: tuple[str, ...]  # the first is the one to use
    kind: Literal["image", "venv"]
    engine: str
    sources: tuple[str, ...]
    publisher: Publisher = OWN
    identities: frozenset[str] = frozenset()  # digests of manifests, configurations, and of all layers unpacked
    pinned: str = ""  # digest of the manifest by which its registry gives just this one
    platforms: tuple[str, ...] = ()  # it is made for; () = not known
    size: int | None = None  # bytes that a pull moves
    created: datetime | None = None
    pulls: int | None = None
    signed: Signed = ""
    nodes: tuple[str, ...] = ()  # that have it
    release: str = ""  # of the engine, as a tag, a label or the history says: a hint
    accelerator: str = ""  # cuda, rocm, cpu: what it is built for, where that is known
    note: str = ""
    named: bool = False  # by the recipe, or by its words on the command line
    also: tuple[str, ...] = ()  # what was seen on the way, for the person

    @property
    def name(self) -> str:
        """The name to use."""
        return self.names[0]


def merged(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The same offers where no two have an identity in common; the first of each group gives its place and name."""
    groups: list[Offer] = []
    for offer in offers:
        same = [one for one in groups if one.identities & offer.identities]
        if not same:
            groups.append(offer)
            continue
        whole = same[0]
        for other in (*same[1:], offer):
            whole = _joined(whole, other)
        groups = [whole if one is same[0] else one for one in groups if one not in same[1:]]
    return tuple(groups)


def _joined(one: Offer, other: Offer) -> Offer:
    """Both as one: what either knows; on a node it has the node's name for it."""
    first, second = (other, one) if other.nodes and not one.nodes else (one, other)
    return replace(
        first,
        names=tuple(dict.fromkeys((*first.names, *second.names))),
        sources=tuple(dict.fromkeys((*one.sources, *other.sources))),
        publisher=first.publisher if first.publisher.id else second.publisher,
        identities=first.identities | second.identities,
        engine=first.engine or second.engine,
        pinned=first.pinned or second.pinned,
        platforms=first.platforms or second.platforms,
        size=first.size if first.size is not None else second.size,
        created=first.created or second.created,
        pulls=first.pulls if first.pulls is not None else second.pulls,
        signed=first.signed or second.signed,
        nodes=tuple(dict.fromkeys((*first.nodes, *second.nodes))),
        release=first.release or second.release,
        accelerator=first.accelerator or second.accelerator,
        note=first.note or second.note,
        named=first.named or second.named,
        also=tuple(dict.fromkeys((*first.also, *second.also))),
    )
