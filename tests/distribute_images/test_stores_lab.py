"""Both image stores and engines from 20.10 to 28, as sources and as targets."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator

import pytest

from bascule.distribute.images.copy import Receipt
from distribute_images import engines
from distribute_images.conftest import MIB, Bench

pytestmark = [pytest.mark.lab, pytest.mark.slow]

CONTAINERD = "--feature=containerd-snapshotter=true"
KINDS = {"26-overlay2": ("trixie", ()), "28-overlay2": ("sid", ()), "28-containerd": ("sid", (CONTAINERD,))}


@pytest.fixture(params=KINDS)
def newer(request: pytest.FixtureRequest, bench: Bench) -> Iterator[str]:
    """h2 has another engine; the name tells which."""
    suite, options = KINDS[request.param]
    with engines.newer(bench.lab, bench.host("h2"), engines.chroot_of(suite), *options):
        yield request.param


@pytest.fixture
def containerd(bench: Bench) -> Iterator[None]:
    with engines.newer(bench.lab, bench.host("h2"), engines.chroot_of("sid"), CONTAINERD):
        yield


def received(outcome: object) -> Receipt:
    assert isinstance(outcome, Receipt), outcome
    return outcome


def files_of(bench: Bench, host: str, image: str) -> str:
    """A digest over the names and bytes of all files that a container of the image would have."""
    words = f"id=$(docker create {image} /x) && docker export $id | tar x -C $(mktemp -d /tmp/x.XXXX) && docker rm $id"
    bench.run(host, "sh", "-c", f"rm -rf /tmp/x.*; {words}")
    script = "cd /tmp/x.*/ && find . -type f ! -path './dev/*' ! -path './etc/*' ! -name .dockerenv"
    return bench.run(host, "sh", "-c", f"{script} -print0 | sort -z | xargs -0 sha256sum | sha256sum")


def test_a_target_with_another_engine(bench: Bench, newer: str) -> None:
    first = received(bench.copy("img:v1", "root@h1", "h2")["h2"])
    assert first.sent > 36 * MIB
    got = received(bench.copy("img:v2", "root@h1", "h2")["h2"])
    assert 3 * MIB < got.sent < 3.1 * MIB
    assert got.method == ("pull" if "containerd" in newer else "load")
    assert files_of(bench, "h2", "img:v2") == files_of(bench, "h1", "img:v2")
    assert bench.references("h2") == ["img:v1", "img:v2"]
    assert received(bench.copy("img:v2", "root@h1", "h2")["h2"]).method == "nothing"


@pytest.mark.parametrize("user", ["root", "op"])
def test_a_source_with_another_engine(bench: Bench, newer: str, user: str) -> None:
    bench.copy("img:v2", "root@h1", "h2")
    received(bench.copy("img:v2", f"{user}@h2", "h3")["h3"])
    assert bench.layers("h3", "img:v2") == bench.layers("h1", "img:v2")


def test_a_target_that_has_the_layers_only_as_gzip(bench: Bench, containerd: None) -> None:
    """containerd skips the fetch of a layer that is unpacked, under whatever digest."""
    folder = bench.lab.host_folder(bench.host("h1"))
    bench.run("h1", "sh", "-c", "docker save img:v1 > /run/host/v1.tar")
    packed = as_gzip((folder / "v1.tar").read_bytes())
    (bench.lab.host_folder(bench.host("h2")) / "gz.tar").write_bytes(packed)
    bench.run("h2", "docker", "load", "-i", "/run/host/gz.tar")
    received(bench.copy("img:v2", "root@h1", "h2")["h2"])
    assert files_of(bench, "h2", "img:v2") == files_of(bench, "h1", "img:v2")
    received(bench.copy("img:v2", "root@h2", "h3")["h3"])
    assert bench.layers("h3", "img:v2") == bench.layers("h1", "img:v2")


def as_gzip(saved: bytes) -> bytes:
    """A docker archive as an OCI one whose layers are compressed, as from a registry."""
    blobs: dict[str, bytes] = {}

    def keep(data: bytes, media: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file
            return file.read()

        entry = json.loads(read("manifest.json"))[0]
        kind = "application/vnd.oci.image."
        layers = [keep(gzip.compress(read(name), 1), f"{kind}layer.v1.tar+gzip") for name in entry["Layers"]]
        manifest = {"schemaVersion": 2, "mediaType": f"{kind}manifest.v1+json", "layers": layers}
        manifest["config"] = keep(read(entry["Config"]), f"{kind}config.v1+json")
    top = keep(json.dumps(manifest).encode(), f"{kind}manifest.v1+json")
    top["annotations"] = {
        "io.containerd.image.name": "docker.io/library/img:v1",
        "org.opencontainers.image.ref.name": "v1",
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as out:
        index = json.dumps({"schemaVersion": 2, "manifests": [top]}).encode()
        for name, data in {**blobs, "index.json": index, "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return made.getvalue()
