"""An image in a registry that nobody has pulled: its layers are fetched from the top, and no more than are needed."""

from __future__ import annotations

import asyncio
from functools import partial

from bascule.probe.views.base import Unreadable
from bascule.probe.views.hub import Access, Hub
from bascule.probe.views.layers import Blob, LayeredFiles, LayeredView
from bascule.probe.views.oci import ImageFacts, choose, facts_of, parts_of, reference_of
from bascule.probe.views.streams import Meter

DEEPEST_INDEX = 3  # indexes within indexes


class RegistryView(LayeredView):
    """A view of an image in a registry; see View. `bytes_read` counts what came over the wire."""

    def __init__(self, files: LayeredFiles, facts: ImageFacts) -> None:
        super().__init__(files, facts)
        self.sizes: tuple[int, ...] = ()  # bytes of the layers as they are stored, the lowest first


async def open_registry(reference: str, package: str, platform: str, access: Access | None = None) -> RegistryView:
    """A view of the image of that platform (linux/arm64); the manifest and the config are read at once.

    An index without this platform raises; where the image is the only one, its platform is in `facts`, and for the
    caller to judge. `package` is the folder of the engine. Raises Unreadable.
    """
    meter = Meter()
    try:
        return await asyncio.to_thread(_open, reference, package, platform, (access or Access(), meter))
    except asyncio.CancelledError:
        meter.stopped = True
        raise


def _open(reference: str, package: str, platform: str, by: tuple[Access, Meter]) -> RegistryView:
    name = reference_of(reference)
    hub = Hub(name, *by)
    manifest, digest = hub.manifest(name.version)
    for _ in range(DEEPEST_INDEX):
        if "manifests" not in manifest:
            break
        manifest, digest = hub.manifest(choose(manifest, platform, str(name)).digest)
    if manifest.get("schemaVersion") == 1:
        raise Unreadable(str(name), "a manifest of version 1, which is not read here")
    config, layers = parts_of(manifest, str(name))
    facts = facts_of(hub.config(config.digest), digest)
    blobs = [
        Blob(f"layer {place} of {len(layers)} ({row.digest[:19]})", partial(hub.blob, row.digest), row.digest, row.size)
        for place, row in enumerate(layers, 1)
    ]
    view = RegistryView(LayeredFiles(reference, blobs[::-1], package, facts, by[1]), facts)
    view.sizes = tuple(row.size for row in layers)
    return view
