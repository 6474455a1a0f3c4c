"""Whether every node of a candidate has the same image, and one that its processor can run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bascule.core.nouns import Candidate, Evidence, Fate, Finding, Node, Step
from bascule.remote.connect import Runners
from bascule.remote.docker import ImageFacts, image_arch, parse_image


async def check(candidate: Candidate, nodes: Sequence[Node], runners: Runners) -> Finding:
    """OK when all nodes hold the same image for their processor."""
    held, trouble = await holdings(candidate, nodes, runners)
    return trouble or compare(candidate, nodes, held)


async def holdings(
    candidate: Candidate, nodes: Sequence[Node], runners: Runners
) -> tuple[dict[str, ImageFacts | None], Finding | None]:
    """What each node has of the candidate's image, and the finding that a node can't run images at all."""
    for node in nodes:
        if node.facts.docker is None:
            return {}, _no_docker(node)
    found = await asyncio.gather(*(_image(candidate.artefact.ref, node, runners) for node in nodes))
    return {node.name: one for node, one in zip(nodes, found, strict=True)}, None


def compare(candidate: Candidate, nodes: Sequence[Node], held: Mapping[str, ImageFacts | None]) -> Finding:
    """OK when all nodes hold the same layers for their processor; else the first difference (pure but for the time)."""
    reference = next((image for image in held.values() if image), None)
    for node in nodes:
        image = held[node.name]
        if image is None or reference is None:
            return _finding(
                Fate.HOPELESS, "image-missing", f"{node.name} has no image {candidate.artefact.ref}", node, ""
            )
        if wrong := for_another_processor(candidate, node, image):
            return wrong
        if image.layers != reference.layers:
            says = f"the image {candidate.artefact.ref} is not the same on all nodes: {node.name} differs"
            return _finding(Fate.HOPELESS, "image-differs", says, node, "\n".join(image.layers))
    seen = "\n".join(f"{name}: {image.id}" for name, image in held.items() if image)
    return _finding(Fate.OK, "all-there", "every node has the same image", nodes[0], seen)


def differs(one: ImageFacts | None, other: ImageFacts | None) -> bool:
    """True unless both are there with the same layers."""
    return one is None or other is None or one.layers != other.layers


def for_another_processor(candidate: Candidate, node: Node, held: ImageFacts | None) -> Finding | None:
    """The finding that an image can't run on a node; None when it can, or when that is not known."""
    if held is None or not node.facts.arch or held.arch == image_arch(node.facts.arch):
        return None
    says = f"the image {candidate.artefact.ref} is for {held.arch}, {node.name} is {node.facts.arch}"
    return _finding(Fate.HOPELESS, "image-architecture", says, node, f"{held.id} {held.arch}")


async def _image(ref: str, node: Node, runners: Runners) -> ImageFacts | None:
    assert node.facts.docker is not None
    words = (*node.facts.docker.command, "image", "inspect", ref)
    result = await runners[node.name].run(words, within=30)
    return parse_image(result.text) if result.ok else None


def _no_docker(node: Node) -> Finding:
    why = node.facts.unknown.get("docker", "its facts were not read")
    seen = Evidence(node.name, "docker info", datetime.now(UTC), why)
    return Finding(Step.DISTRIBUTE, Fate.HOPELESS, "no-docker", f"{node.name} can't run images: {why}", (seen,))


def _finding(fate: Fate, code: str, says: str, node: Node, excerpt: str) -> Finding:
    seen = Evidence(node.name, "docker image inspect", datetime.now(UTC), excerpt or "no such image")
    return Finding(Step.DISTRIBUTE, fate, code, says, (seen,))
