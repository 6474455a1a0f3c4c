"""An image in a registry that nobody has pulled: its layers are fetched from the top, and no more than are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bascule.probe.views.layers import Blob, LayeredFiles, LayeredView
from bascule.probe.views.streams import Meter, Reader
from bascule.registry.access import Access
from bascule.registry.aside import aside
from bascule.registry.image import RemoteImage, fetch
from bascule.registry.oci import Descriptor, ImageFacts, reference_of
from bascule.registry.repository import Repository
from bascule.registry.troubles import NOT_READ, RegistryTrouble


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
        return await aside(_open, reference, package, platform, (access or Access(), meter))
    except asyncio.CancelledError:
        meter.stopped = True
        raise


def _open(reference: str, package: str, platform: str, by: tuple[Access, Meter]) -> RegistryView:
    access, meter = by
    repository = Repository(reference_of(reference), access, meter.count)
    image = fetch(repository, platform)
    blobs = [_blob(repository, image, place, row) for place, row in enumerate(image.layers, 1)]
    view = RegistryView(LayeredFiles(reference, blobs[::-1], package, image.facts, meter), image.facts)
    view.sizes = tuple(row.size for row in image.layers)
    return view


def _blob(repository: Repository, image: RemoteImage, place: int, row: Descriptor) -> Blob:
    name = f"layer {place} of {len(image.layers)} ({row.digest[:19]})"
    return Blob(name, partial(_layer, repository, row, name), row.digest, row.size)


@contextmanager
def _layer(repository: Repository, row: Descriptor, name: str) -> Iterator[Reader]:
    """A layer's bytes; one that is larger than was allowed is not asked for."""
    most = repository.access.most
    if most is not None and row.size > most:
        why = f"{name} has {row.size / 1e6:,.0f} MB, and layers are read up to {most / 1e6:,.0f} MB"
        raise RegistryTrouble(NOT_READ, repository.name, why, repository.reference.host)
    with repository.blob(row.digest) as body:
        yield body
