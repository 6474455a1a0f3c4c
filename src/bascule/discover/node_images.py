"""The images that the nodes have already, and which engines they show; read with docker's or podman's own words."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bascule.core.nouns import Node
from bascule.core.reading import Unreadable
from bascule.discover.images import Images, publisher_of, recognised, shown
from bascule.discover.offers import NODES, OWN, Offer, Publisher, merged
from bascule.registry.oci import reference_of, time_of
from bascule.remote.connect import Runners

MOST = 300  # images of a node
WITHIN = 60.0  # seconds
LARGE = 1 << 30  # bytes; what is smaller and shows no engine is no engine

# All at once, the newest first; image by image when one was removed meanwhile. Docker and podman both print an array.
_SCRIPT = """
docker=$1; most=$2
ids=$($docker image ls --quiet --no-trunc) || exit
ids=$(echo "$ids" | awk '!seen[$0]++' | head -n "$most")
[ -n "$ids" ] || exit 0
told=$($docker image inspect $ids 2>/dev/null </dev/null) && { printf %s "$told" | tr -d '\\n'; exit; }
for id in $ids; do $docker image inspect "$id" 2>/dev/null </dev/null | tr -d '\\n'; echo; done
true
"""


@dataclass(frozen=True, slots=True)
class OnNodes:
    """What was found on the nodes, and of which nodes nothing could be read."""

    offers: tuple[Offer, ...]
    others: tuple[Offer, ...] = ()  # large ones that show no engine: only a look into them can tell
    unread: Mapping[str, str] | None = None  # node -> why


async def find_images(nodes: Sequence[Node], runners: Runners, images: Images) -> OnNodes:
    """The images of all nodes at once, each told once with the nodes that have it. Raises NodeUnreachable."""
    able = [node for node in nodes if node.facts.docker]
    unread = {node.name: node.facts.unknown.get("docker", "it has no docker") for node in nodes if node not in able}
    texts = await asyncio.gather(*(_list(node, runners) for node in able))
    found: list[Offer] = []
    for node, (text, why) in zip(able, texts, strict=True):
        if why:
            unread[node.name] = why
        found += offers_of(text, node.name, images)
    whole = merged(found)
    others = tuple(one for one in whole if not one.engine and (one.size or 0) >= LARGE)
    return OnNodes(tuple(one for one in whole if one.engine), others, unread)


def offers_of(text: str, node: str, images: Images) -> Iterator[Offer]:
    """The images in the answers of one node, a line each (pure); what isn't understood is left out."""
    for line in text.splitlines():
        try:
            rows = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get("Id"), str):
                yield _offer(row, node, images)


async def _list(node: Node, runners: Runners) -> tuple[str, str]:
    assert node.facts.docker is not None
    words = ("sh", "-s", "--", " ".join(node.facts.docker.command), str(MOST))
    result = await runners[node.name].run(words, stdin=_SCRIPT, within=WITHIN)
    return result.text, "" if result.ok else "took too long" if result.timed_out else result.complaint


def _offer(row: Mapping[str, Any], node: str, images: Images) -> Offer:
    tags, digests = _texts(row.get("RepoTags")), _texts(row.get("RepoDigests"))
    config = row["Config"] if isinstance(row.get("Config"), dict) else {}
    names = tuple(tag.removeprefix("localhost/") for tag in tags if not tag.startswith("<none>"))
    engine, why = recognised(shown(names, _words(config), _env(config), _labels(config)), images)
    layers = row["RootFS"].get("Layers") if isinstance(row.get("RootFS"), dict) else None
    size = row.get("Size")
    parts = [part for part in (row.get("Os"), row.get("Architecture")) if isinstance(part, str) and part]
    offer = Offer(
        names or (row["Id"],),
        "image",
        engine,
        (NODES,),
        identities=frozenset((_digest(row["Id"]), *map(_digest, digests), *identity_of_layers(_texts(layers)))),
        platforms=("/".join(parts),) if len(parts) == 2 else (),
        size=size if isinstance(size, int) else None,
        created=time_of(row.get("Created")),
        nodes=(node,),
        also=(why,) if why else (),
    )
    return replace(offer, publisher=next((_publisher(one, images) for one in digests), OWN))


def identity_of_layers(layers: Sequence[str]) -> tuple[str, ...]:
    """One identity for the same layers, whatever a store calls the image: stores give different ids to one image."""
    return (f"layers:{hashlib.sha256(' '.join(layers).encode()).hexdigest()}",) if layers else ()


def _words(config: Mapping[str, Any]) -> tuple[str, ...]:
    return (*_texts(config.get("Entrypoint")), *_texts(config.get("Cmd")))


def _env(config: Mapping[str, Any]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in _texts(config.get("Env")) if "=" in pair)


def _labels(config: Mapping[str, Any]) -> dict[str, str]:
    labels = config.get("Labels")
    return {key: value for key, value in labels.items() if isinstance(value, str)} if isinstance(labels, dict) else {}


def _publisher(name: str, images: Images) -> Publisher:
    """Of an image that came from a registry, which its digest there shows.

    Podman, and docker over containerd, give digests to what was built here too: a name without a publisher is no hub's.
    """
    try:
        reference = reference_of(name)
    except Unreadable:
        return OWN
    if reference.registry == "localhost" or reference.repository.startswith("library/"):
        return OWN
    return publisher_of(reference, images)


def _digest(text: str) -> str:
    digest = text.rpartition("@")[2]
    return digest if digest.startswith("sha256:") else f"sha256:{digest}"


def _texts(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return (raw,)
    return tuple(item for item in raw if isinstance(item, str)) if isinstance(raw, list) else ()
