"""A layer that is rebuilt from overlay2 is byte for byte what `docker save` gives, however odd its tar was."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from bascule.core.nouns import Finding
from bascule.distribute.images.node.sources import chain_ids, offer_graph, offer_save
from bascule.distribute.images.node.tarsplit import NodeTrouble, SplitLayer
from bascule.lab import hosts
from distribute_images.conftest import Bench

pytestmark = pytest.mark.lab

ODD = b"usr/lib/n\xe9\xff-no-utf8"


def member(tar: tarfile.TarFile, name: str, content: bytes = b"", **fields: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for field, value in fields.items():
        setattr(entry, field, value)
    tar.addfile(entry, io.BytesIO(content))


def files_layer() -> bytes:
    """Hard and soft links, xattrs, long and non-UTF-8 names, empty files, odd modes and times."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member(tar, "usr", type=tarfile.DIRTYPE, mode=0o755)
        member(tar, "usr/lib", type=tarfile.DIRTYPE, mode=0o1777, mtime=1.5)
        member(tar, "usr/lib/a", b"a" * 70_001, uid=1234, gid=99_999_999, mode=0o4755)
        member(tar, "usr/lib/b", type=tarfile.LNKTYPE, linkname="usr/lib/a")
        member(tar, "usr/lib/c", type=tarfile.SYMTYPE, linkname="../../etc/passwd")
        member(tar, "usr/lib/empty")
        member(tar, "usr/lib/" + "long" * 60, b"long")
        member(tar, "usr/lib/x", b"xattr", pax_headers={"SCHILY.xattr.user.bascule": "värde"})
        member(
            tar,
            "usr/lib/cap",
            b"cap",
            pax_headers={"SCHILY.xattr.security.capability": "\x01\0\0\x02\0\x04" + "\0" * 14},
        )
    return made.getvalue()


def gnu_layer() -> bytes:
    """A size in base 256, as files of more than 8 GiB have it, and a name that is no UTF-8."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        member(tar, "big", b"b" * 5000)
        member(tar, os.fsdecode(ODD), b"odd")
    raw = bytearray(made.getvalue())
    raw[124:136] = b"\x80" + (5000).to_bytes(11, "big")
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    return bytes(raw)


def whiteout_layer() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        member(tar, "usr/.wh.lib")
        member(tar, "opt", type=tarfile.DIRTYPE, mode=0o755)
        member(tar, "opt/.wh..wh..opq")
        member(tar, "opt/new", b"new")
    return made.getvalue()


def sparse_layer(folder: Path) -> bytes:
    with (folder / "sparse").open("wb") as file:
        file.seek(3_000_000)
        file.write(b"end")
    words = ["tar", "--sparse", "--format=posix", "-C", str(folder), "-c", "sparse"]
    return subprocess.run(words, capture_output=True, check=True).stdout


def as_archive(layers: list[bytes]) -> bytes:
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    made = io.BytesIO()
    names = [f"{index}/layer.tar" for index in range(len(layers))]
    manifest = [{"Config": "c.json", "RepoTags": ["odd:1"], "Layers": names}]
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, layer in zip(names, layers, strict=True):
            member(tar, name, layer)
        member(tar, "c.json", json.dumps(config).encode())
        member(tar, "manifest.json", json.dumps(manifest).encode())
    return made.getvalue()


def load(bench: Bench, archive: bytes) -> None:
    folder = bench.lab.host_folder(bench.host("h1"))
    (folder / "odd.tar").write_bytes(archive)
    bench.run("h1", "docker", "load", "-i", "/run/host/odd.tar")


@pytest.fixture
def odd(bench: Bench) -> tuple[str, list[bytes]]:
    """The id of an image with odd layers on the first host, and the layers."""
    layers = [files_layer(), gnu_layer(), whiteout_layer()]
    load(bench, as_archive(layers))
    return bench.layers("h1", "odd:1").split()[0], layers


def test_every_layer_is_rebuilt_byte_for_byte(bench: Bench, odd: tuple[str, list[bytes]]) -> None:
    image_id, layers = odd
    root = str(bench.lab.host_folder(bench.host("h1")) / "docker")
    offer = offer_graph(root, image_id, [0, 1, 2])
    for blob, layer in zip(offer.layers, layers, strict=True):
        assert blob is not None
        assert (blob.size, b"".join(blob.read())) == (len(layer), layer)
        for offset in (1, 511, 512, 513, len(layer) // 2, len(layer) - 1):
            assert b"".join(blob.read(offset)) == layer[offset:]
    assert hashlib.sha256(offer.config).hexdigest() == image_id.removeprefix("sha256:")


def test_docker_save_gives_the_same(bench: Bench, odd: tuple[str, list[bytes]], tmp_path: Path) -> None:
    image_id, layers = odd
    docker = ["docker", "--host", f"unix:///proc/{hosts_pid(bench)}/root/run/docker.sock"]
    offer = offer_save(docker, image_id, [0, 2], str(tmp_path / "spool"))
    assert [blob.digest if blob else None for blob in offer.layers] == [
        None if index == 1 else f"sha256:{hashlib.sha256(layer).hexdigest()}" for index, layer in enumerate(layers)
    ]
    assert offer.layers[0] is not None
    assert b"".join(offer.layers[0].read()) == layers[0]
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_copy_of_it_is_the_same_image(bench: Bench, odd: tuple[str, list[bytes]]) -> None:
    bench.copy("odd:1", "root@h1", "h2")
    assert bench.layers("h2", "odd:1") == bench.layers("h1", "odd:1")


def test_a_layer_that_docker_itself_cannot_give_back_is_refused(bench: Bench, tmp_path: Path) -> None:
    """docker 20.10 loads a layer with a sparse file of the PAX kind, and then fails to save it."""
    load(bench, as_archive([files_layer(), sparse_layer(tmp_path)]))
    got = bench.copy("odd:1", "root@h1", "h2")["h2"]
    assert isinstance(got, Finding)
    assert got.code == "image-damaged"
    assert bench.references("h2") == []


def test_a_link_that_leads_out_of_the_layer_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "diff").mkdir()
    (tmp_path / "secret").write_text("x" * 10)
    (tmp_path / "diff/out").symlink_to(tmp_path)
    layer = SplitLayer(write_record(tmp_path, "out/secret", 10), str(tmp_path / "diff"))
    with pytest.raises(NodeTrouble):
        b"".join(layer.read())


def write_record(folder: Path, name: str, size: int) -> str:
    with gzip.open(folder / "record.gz", "wt") as record:
        record.write(json.dumps({"type": 1, "name": name, "size": size, "payload": ""}) + "\n")
    return str(folder / "record.gz")


def test_layers_are_found_under_chained_digests() -> None:
    assert chain_ids(["sha256:aa"]) == ["sha256:aa"]
    second = hashlib.sha256(b"sha256:aa sha256:bb").hexdigest()
    assert chain_ids(["sha256:aa", "sha256:bb"]) == ["sha256:aa", f"sha256:{second}"]


def hosts_pid(bench: Bench) -> int:
    return hosts.first_process(bench.host("h1"))
