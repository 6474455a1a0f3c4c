"""Where the source's blobs come from: docker's overlay2 folders, containerd's content store, or `docker save`."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
from typing import IO, Any, NamedTuple

from bascule.distribute.images.node.blobs import Blob, Spool, file_blob, rebuilt_blob
from bascule.distribute.images.node.tarsplit import CHUNK, NodeTrouble, SplitLayer

SMALL = 4 << 20  # bytes of an archive's entry that may be JSON
TAR_LAYER = "application/vnd.oci.image.layer.v1.tar"
CONTENT = "io.containerd.content.v1.content/blobs/sha256"


class Offer(NamedTuple):
    """An image as a node can give it: the exact bytes of its config, and a blob for each wanted layer."""

    config: bytes
    layers: list[Blob | None]  # bottom first; None for one that is not wanted
    media: list[str]


def offer_graph(root: str, image_id: str, wanted: list[int]) -> Offer:
    """From overlay2, read-only; needs root. Nothing is written, the first byte leaves at once."""
    store = os.path.join(root, "image", "overlay2")
    config = _read(os.path.join(store, "imagedb", "content", "sha256", _hex(image_id)))
    if hashlib.sha256(config).hexdigest() != _hex(image_id):
        raise NodeTrouble("layer-changed", f"the config of {image_id} has another digest")
    diff_ids = json.loads(config)["rootfs"]["diff_ids"]
    layers: list[Blob | None] = []
    for index, chain in enumerate(chain_ids(diff_ids)):
        layers.append(_graph_layer(root, store, chain, diff_ids[index]) if index in wanted else None)
    return Offer(config, layers, [TAR_LAYER] * len(layers))


def chain_ids(diff_ids: list[str]) -> list[str]:
    """The names under which docker keeps stacked layers: each is a digest over all below it."""
    chain: list[str] = []
    for diff_id in diff_ids:
        above = f"{chain[-1]} {diff_id}".encode() if chain else b""
        chain.append("sha256:" + hashlib.sha256(above).hexdigest() if chain else diff_id)
    return chain


def offer_content(root: str, image_id: str, wanted: list[int]) -> Offer:
    """From containerd's content store; needs root. Its blobs are often compressed already."""
    folders = (os.path.join(root, "containerd", "daemon", CONTENT), f"/var/lib/containerd/{CONTENT}")
    folder = next((each for each in folders if os.path.exists(os.path.join(each, _hex(image_id)))), None)
    if folder is None:
        raise NodeTrouble("layer-gone", f"no blob {image_id} under {' or '.join(folders)}")
    manifest = _manifest(folder, image_id)
    layers: list[Blob | None] = []
    for index, layer in enumerate(manifest["layers"]):
        path = os.path.join(folder, _hex(layer["digest"]))
        layers.append(file_blob(layer["digest"], path) if index in wanted else None)
    config = _read(os.path.join(folder, _hex(manifest["config"]["digest"])))
    return Offer(config, layers, [layer["mediaType"] for layer in manifest["layers"]])


def offer_save(docker: list[str], image_id: str, wanted: list[int], spool: str) -> Offer:
    """From `docker save`: needs no root, but the image's room on the disk twice for a while.

    What was saved is held open and has no name any more, so that nothing of it outlives the helper.
    """
    folder = os.path.join(spool, f"saved-{os.getpid()}")
    for left in os.listdir(spool) if os.path.isdir(spool) else []:
        if left.startswith("saved-") and not os.path.exists(f"/proc/{left[6:]}"):
            shutil.rmtree(os.path.join(spool, left), ignore_errors=True)
    try:
        return _saved(docker, image_id, wanted, Spool(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _saved(docker: list[str], image_id: str, wanted: list[int], spool: Spool) -> Offer:
    with subprocess.Popen([*docker, "save", image_id], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as saving:
        assert saving.stdout
        assert saving.stderr
        try:
            found, small = _unpack(saving.stdout, spool)
        except (tarfile.TarError, OSError) as trouble:
            saving.kill()
            said = saving.stderr.read().decode(errors="replace").strip()
            full = isinstance(trouble, OSError) and trouble.errno == errno.ENOSPC
            raise NodeTrouble("source-full" if full else "save-failed", said or str(trouble)) from trouble
        said = saving.stderr.read().decode(errors="replace").strip()
    if saving.returncode:
        raise NodeTrouble("source-full" if "no space left" in said else "save-failed", said)
    return _from_archive(found, small, wanted, spool)


def _from_archive(found: dict[str, str], small: dict[str, bytes], wanted: list[int], spool: Spool) -> Offer:
    try:
        entry = json.loads(small["manifest.json"])[0]
        config, names = small[entry["Config"]], entry["Layers"]
    except (KeyError, ValueError, IndexError) as trouble:
        raise NodeTrouble("save-failed", f"the archive has no {trouble}") from trouble
    layers: list[Blob | None] = []
    for index, name in enumerate(names):
        layers.append(file_blob(found[name], spool.whole(found[name])) if index in wanted else None)
    return Offer(config, layers, [TAR_LAYER] * len(layers))


def _unpack(stream: IO[bytes], spool: Spool) -> tuple[dict[str, str], dict[str, bytes]]:
    """The archive's files in the spool, by name in it; small ones are kept as they are too."""
    found: dict[str, str] = {}
    small: dict[str, bytes] = {}
    links: dict[str, str] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if entry.issym() or entry.islnk():  # a layer that is in the image twice
                folder = os.path.dirname(entry.name) if entry.issym() else ""
                links[entry.name] = os.path.normpath(os.path.join(folder, entry.linkname))
            file = archive.extractfile(entry) if entry.isfile() else None
            if file is None:
                continue
            if entry.name.endswith(".json") or (entry.size < SMALL and not entry.name.endswith("layer.tar")):
                small[entry.name] = file.read()
                found[entry.name] = _keep_bytes(small[entry.name], spool)
            else:
                found[entry.name] = _keep(file, spool)
    found.update({name: found[target] for name, target in links.items() if target in found})
    return found, small


def _keep(file: IO[bytes], spool: Spool) -> str:
    digest, path = hashlib.sha256(), os.path.join(spool.folder, "saving.part")
    with open(path, "wb") as kept:
        while data := file.read(CHUNK):
            digest.update(data)
            kept.write(data)
    name = f"sha256:{digest.hexdigest()}"
    os.replace(path, spool.whole(name))
    return name


def _keep_bytes(data: bytes, spool: Spool) -> str:
    name = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with open(spool.whole(name), "wb") as kept:
        kept.write(data)
    return name


def _graph_layer(root: str, store: str, chain: str, diff_id: str) -> Blob:
    place = os.path.join(store, "layerdb", "sha256", _hex(chain))
    cache = _read(os.path.join(place, "cache-id")).decode().strip()
    layer = SplitLayer(os.path.join(place, "tar-split.json.gz"), os.path.join(root, "overlay2", cache, "diff"))
    return rebuilt_blob(diff_id, layer.size, layer.read)


def _manifest(folder: str, digest: str) -> dict[str, Any]:
    """The manifest of this machine's architecture under a digest that may be an index."""
    found: dict[str, Any] = json.loads(_read(os.path.join(folder, _hex(digest))))
    if "layers" in found:
        return found
    ours = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    for entry in found.get("manifests", []):
        there = os.path.exists(os.path.join(folder, _hex(entry["digest"])))
        if there and entry.get("platform", {}).get("architecture", ours) == ours:
            return _manifest(folder, entry["digest"])
    raise NodeTrouble("layer-gone", f"the index {digest} has nothing for {ours} here")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as trouble:
        raise NodeTrouble("layer-gone", str(trouble)) from trouble


def _hex(digest: str) -> str:
    return digest.split(":", 1)[-1]
