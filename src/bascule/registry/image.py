"""An image as its registry describes it: digests, platform, age, labels, size, and whether anybody signed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bascule.core.reading import Unreadable
from bascule.registry.oci import Descriptor, ImageFacts, choose, facts_of, parts_of, platforms_of, registries
from bascule.registry.repository import Repository
from bascule.registry.troubles import ANSWER, NoPlatform, RegistryTrouble

DEEPEST_INDEX = 3  # indexes within indexes

Signed = Literal["present", "absent", "unknown"]  # nobody has verified it


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """One image of a registry, for one platform."""

    name: str  # as it was asked for
    digest: str  # of what the name leads to: an index, or the manifest itself
    manifest: str  # digest of the manifest for the platform
    config: str  # digest of the configuration, which docker without containerd calls the image's id
    platforms: tuple[str, ...]  # of the index; () where there is none
    facts: ImageFacts
    layers: tuple[Descriptor, ...]  # the lowest first

    @property
    def size(self) -> int:
        """Bytes that a pull of all layers moves."""
        return sum(layer.size for layer in self.layers)


def fetch(repository: Repository, platform: str) -> RemoteImage:
    """The image of this platform (linux/arm64), "" = the only one. Raises Unreadable.

    An index without it raises; where the image is the only one, its platform is in `facts`, for the caller to judge.
    """
    name = repository.name
    manifest, digest = repository.manifest(repository.reference.version)
    top, platforms = digest, platforms_of(manifest)
    for _ in range(DEEPEST_INDEX):
        if "manifests" not in manifest:
            break
        manifest, digest = repository.manifest(_chosen(manifest, platform, repository))
    if manifest.get("schemaVersion") == 1:
        why = "a manifest of version 1, which is not read here"
        raise RegistryTrouble(ANSWER, name, why, repository.reference.host)
    config, layers = parts_of(manifest, name)
    facts = facts_of(repository.config(config.digest), digest)
    return RemoteImage(name, top, digest, config.digest, platforms, facts, tuple(layers))


def signed(repository: Repository, image: RemoteImage) -> tuple[Signed, str]:
    """Whether a signature lies beside the image, and what was seen; nothing is verified. Raises nothing."""
    known = registries()["signatures"]
    try:
        for digest in dict.fromkeys((image.digest, image.manifest)):
            tag = str(known["tag"]).format(hex=digest.removeprefix("sha256:"))
            if repository.has(tag):
                return "present", f"tag {tag[:19]}….sig"
            for kind in repository.referrers(digest):
                if kind in known["kinds"]:
                    return "present", kind
    except Unreadable as trouble:
        return "unknown", trouble.why
    return "absent", "no signature refers to it"


def _chosen(index: Mapping[str, Any], platform: str, repository: Repository) -> str:
    there = platforms_of(index)
    if there and platform and not any(one.split("/")[:2] == platform.split("/")[:2] for one in there):
        raise NoPlatform(repository.name, platform, there, repository.reference.host)
    return choose(index, platform, repository.name).digest
