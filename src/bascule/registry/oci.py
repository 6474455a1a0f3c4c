"""Manifests, configs and references of images: the OCI image specification, and Docker's older names for the same."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from bascule.core.reading import Unreadable

LONGEST_JSON = 4 << 20  # bytes of a manifest or config, the limit that the OCI distribution specification sets
MOST_LAYERS = 1000  # Docker itself stops at 127
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?P<host>(?:(?=[^/]*[.:]|localhost/)[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-f:]+\])(?::\d+)?)/)?"
    rf"(?P<path>{_NAME}(?:/{_NAME})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{DIGEST.pattern}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image in a registry."""

    host: str  # of its API
    repository: str
    version: str  # its digest, or else its tag
    accounts: tuple[str, ...]  # under which Docker's config keeps the account
    registry: str = ""  # as people name it: docker.io

    @property
    def familiar(self) -> str:
        """Its name without a version, as one gives it to docker: docker.io is left out."""
        known = registries()
        short = self.repository.removeprefix(f"{known['hosts'].get(self.registry, {}).get('implied', '')}/")
        return short if self.registry == known["default"] else f"{self.registry}/{self.repository}"

    @property
    def publisher(self) -> str:
        """Who publishes it: `docker.io/NAMESPACE` where anybody may, else the registry, which is somebody's own."""
        if self.registry not in registries()["public"]:
            return self.registry
        return f"{self.registry}/{self.repository.partition('/')[0]}"

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}{'@' if ':' in self.version else ':'}{self.version}"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob as a manifest names it."""

    digest: str
    size: int
    platform: str = ""  # linux/arm64/v8


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What the config of an image says of it: hints only, but for the platform."""

    os: str = ""
    architecture: str = ""  # as Go names it: amd64, arm64
    variant: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    history: tuple[str, ...] = ()  # the commands that made it, the oldest first
    digest: str = ""  # of the manifest, where there is one
    created: datetime | None = None
    diff_ids: tuple[str, ...] = ()  # digests of its layers as they unpack, the lowest first

    @property
    def platform(self) -> str:
        """As in linux/arm64."""
        return platform_of({"os": self.os, "architecture": self.architecture, "variant": self.variant})


def reference_of(text: str) -> Reference:
    """A reference with what Docker adds to it. Raises Unreadable."""
    match = _REFERENCE.fullmatch(text)
    if not match or len(text) > 1000:
        raise Unreadable(text[:200], "is no name of an image")
    known = registries()
    name = match["host"] or known["default"]
    host = known["hosts"].get(name, {"api": name, "accounts": [name, f"https://{name}", f"https://{name}/v1/"]})
    path = match["path"]
    if "implied" in host and "/" not in path:
        path = f"{host['implied']}/{path}"
    return Reference(host["api"], path, match["digest"] or match["tag"] or "latest", tuple(host["accounts"]), name)


def pinned_tag(name: str, digest: str) -> str:
    """A local tag that can only mean the image of this digest; unlike a digest it survives a copy between machines."""
    return f"{without_version(name)}:{digest.replace(':', '-')}"


def asked_for(ref: str) -> str:
    """What a registry is asked for: a tag that was made by pinned_tag() stands for its digest."""
    return re.sub(r":sha256-([0-9a-f]{64})$", r"@sha256:\1", ref)


def without_version(name: str) -> str:
    """The name alone, without a tag and a digest."""
    return re.sub(r"(:[^:/@]+)?(@sha256:[0-9a-f]{64})?$", "", name)


@cache
def registries() -> Mapping[str, Any]:
    """What is known of registries by name."""
    text = resources.files("bascule.registry").joinpath("registries.toml").read_text()
    return tomllib.loads(text)


def json_object(data: bytes, path: str) -> dict[str, Any]:
    """A JSON object. Raises Unreadable."""
    found = json_value(data, path)
    if not isinstance(found, dict):
        raise Unreadable(path, "is no JSON object")
    return found


def json_value(data: bytes, path: str) -> Any:
    """What is written in JSON. Raises Unreadable."""
    if len(data) > LONGEST_JSON:
        raise Unreadable(path, f"more than {LONGEST_JSON} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as trouble:
        raise Unreadable(path, f"is no JSON: {trouble}") from trouble


def descriptor_of(raw: Any, path: str) -> Descriptor:
    """A blob that a manifest names. Raises Unreadable."""
    digest, size = (raw.get("digest"), raw.get("size")) if isinstance(raw, dict) else (None, None)
    if not (isinstance(digest, str) and DIGEST.fullmatch(digest) and type(size) is int and size >= 0):
        raise Unreadable(path, "names a blob without a SHA-256 digest and a size")
    return Descriptor(digest, size, platform_of(raw.get("platform")))


def parts_of(manifest: Mapping[str, Any], path: str) -> tuple[Descriptor, list[Descriptor]]:
    """The config and the layers, the lowest first. Raises Unreadable."""
    layers = manifest.get("layers")
    if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
        raise Unreadable(path, f"a manifest of a kind that is not read here: {str(manifest.get('mediaType'))[:80]}")
    return descriptor_of(manifest.get("config"), path), [descriptor_of(layer, path) for layer in layers]


def choose(index: Mapping[str, Any], platform: str, path: str) -> Descriptor:
    """The manifest for a platform, "" = the only one. Raises Unreadable."""
    rows = index.get("manifests")
    if not isinstance(rows, list) or len(rows) > MOST_LAYERS:
        raise Unreadable(path, "an index that lists no manifests")
    found = [descriptor_of(row, path) for row in rows]
    images = [row for row in found if not row.platform.startswith("unknown")]  # attestations
    fitting = [row for row in images if not row.platform or _fits(row.platform, platform)]
    if len({row.digest for row in fitting}) == 1 or (platform and fitting):
        return fitting[0]
    names = ", ".join(dict.fromkeys(row.platform or row.digest[:19] for row in images)) or "nothing"
    raise Unreadable(path, f"it has {names}: " + (f"nothing for {platform}" if platform else "say which platform"))


def platforms_of(index: Mapping[str, Any]) -> tuple[str, ...]:
    """The platforms that an index lists; none for a manifest."""
    rows = index.get("manifests")
    found = (
        [platform_of(row.get("platform")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    )
    return tuple(dict.fromkeys(one for one in found[:MOST_LAYERS] if one and not one.startswith("unknown")))


def platform_of(raw: Any) -> str:
    """As in linux/arm64."""
    parts = [raw.get(key) for key in ("os", "architecture", "variant")] if isinstance(raw, dict) else []
    return "/".join(part for part in parts if isinstance(part, str) and part)


def facts_of(config: Mapping[str, Any], digest: str) -> ImageFacts:
    """What a config says; what has another shape than it should is left out."""
    inner = config.get("config")
    inner = inner if isinstance(inner, dict) else {}
    history = config.get("history")
    steps = [step.get("created_by") for step in history if isinstance(step, dict)] if isinstance(history, list) else []
    labels = inner.get("Labels")
    return ImageFacts(
        _text(config.get("os")),
        _text(config.get("architecture")),
        _text(config.get("variant")),
        dict(pair.split("=", 1) for pair in _texts(inner.get("Env")) if "=" in pair),
        {key: value for key, value in labels.items() if isinstance(value, str)} if isinstance(labels, dict) else {},
        _texts(inner.get("Entrypoint")),
        _texts(inner.get("Cmd")),
        _texts(steps),
        digest,
        time_of(config.get("created")),
        _texts(rootfs.get("diff_ids")) if isinstance(rootfs := config.get("rootfs"), dict) else (),
    )


def time_of(raw: Any) -> datetime | None:
    """A time as images and registries write it, RFC 3339; None for what is none, or for the "no time" of old builds."""
    try:
        found = datetime.fromisoformat(raw) if isinstance(raw, str) and len(raw) < 64 else None
    except ValueError:
        return None
    found = found.replace(tzinfo=UTC) if found and not found.tzinfo else found
    return found if found and found.year > 2000 else None


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else ""


def _texts(raw: Any) -> tuple[str, ...]:
    return tuple(item for item in raw if isinstance(item, str)) if isinstance(raw, list) else ()


def _fits(offered: str, wanted: str) -> bool:
    """A variant counts only where both name one."""
    pairs = zip(offered.split("/"), wanted.split("/"), strict=False)
    return not wanted or all(one == other for one, other in pairs)
