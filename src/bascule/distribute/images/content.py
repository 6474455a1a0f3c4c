"""What an image is, whichever store keeps it: its layers by content and what its config says (pure)."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

# Of a config, what changes how a container of it runs; engines differ in what else they write, and in empty values.
_KEPT = (
    "User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal", "Healthcheck",
    "Shell", "OnBuild",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Content:
    """An image by content. Equal on two nodes means the same image; `Id` alone differs between stores."""

    image_id: str  # as this node's docker names it: what `docker run` should be given
    architecture: str
    os: str
    diff_ids: tuple[str, ...]  # sha256 of each layer's tar, bottom first
    config_sum: str  # sha256 over what the config says, the same from every engine
    config_digest: str | None  # sha256 of the config's very bytes; None where the store's id is another one
    size: int  # bytes, as docker counts them


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a copy ended in: the content that the node has now, and what it took."""

    content: Content
    sent: int = 0  # bytes over the network to this node
    resumed: int = 0  # bytes that an interrupted copy had left on it
    seconds: float = 0.0
    method: str = "nothing"
    reasons: tuple[str, ...] = ()  # sentences: why this method

    @property
    def config_digest(self) -> str:
        """What to compare: the config's digest where it is known, else the sum."""
        return self.content.config_digest or self.content.config_sum

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """The layers by content."""
        return self.content.diff_ids


def parse_content(raw: dict[str, Any], *, by_config: bool) -> Content:
    """From `docker image inspect`; by_config when the store's ids are digests of configs, as with overlay2."""
    config = raw.get("Config") or {}
    said = {key: config[key] for key in _KEPT if config.get(key)}
    said["Env"] = list(said.get("Env", ()))
    text = json.dumps([said, raw.get("Architecture"), raw.get("Os")], sort_keys=True)
    return Content(
        image_id=raw["Id"],
        architecture=raw.get("Architecture", ""),
        os=raw.get("Os", ""),
        diff_ids=tuple((raw.get("RootFS") or {}).get("Layers") or ()),
        config_sum="sum:" + hashlib.sha256(text.encode()).hexdigest(),
        config_digest=raw["Id"] if by_config else None,
        size=int(raw.get("Size") or 0),
    )


def difference(wanted: Content, found: Content) -> str:
    """In words what is not the same; empty when it is the same image."""
    if len(found.diff_ids) > len(wanted.diff_ids):
        return f"it has {len(found.diff_ids)} layers instead of {len(wanted.diff_ids)}"
    if wanted.diff_ids != found.diff_ids:
        same = (one == other for one, other in zip(wanted.diff_ids, (*found.diff_ids, ""), strict=False))
        odd = next((index for index, alike in enumerate(same) if not alike), len(found.diff_ids))
        return f"layer {odd + 1} of {len(wanted.diff_ids)} differs, or is not there"
    if wanted.config_digest and found.config_digest and wanted.config_digest != found.config_digest:
        return f"the config is {found.config_digest[:19]}, not {wanted.config_digest[:19]}"
    if wanted.config_sum != found.config_sum:
        return "the config says something else"
    return ""


def name_of(image: str) -> str:
    """The reference to tag a copy with; one by digest or id can't be a tag, so the digest becomes its tag."""
    if re.fullmatch(r"(sha256:)?[0-9a-f]{64}", image):
        return f"bascule-copied:sha256-{image.removeprefix('sha256:')[:12]}"
    found = re.fullmatch(r"(?P<repository>.+?)(:[^:/@]+)?@sha256:(?P<hex>[0-9a-f]{64})", image)
    if found:
        return f"{found['repository']}:sha256-{found['hex'][:12]}"
    return image
