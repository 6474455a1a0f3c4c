"""Wheels, layers and images made of the trimmed engines of tests/probe/files, by writers that aren't ours."""

import asyncio
import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bascule.core.nouns import Artefact, Candidate, Model
from bascule.probe.gather import look_in
from bascule.probe.verdict import Question, Report
from bascule.probe.views.base import View
from probe.probe_cases import FILES

SITE = "usr/local/lib/python3.12/dist-packages"
ENV = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "NOTHING")


def files_of(*names: str) -> dict[str, bytes]:
    """The files of trimmed distributions, with the __init__.py and the RECORD that every real one has."""
    found: dict[str, bytes] = {}
    for name in names:
        own = {
            str(file.relative_to(FILES / name).with_suffix("")): file.read_bytes()
            for file in (FILES / name).rglob("*.txt")
        }
        package = name.split("-")[0]
        own[f"{package}/__init__.py"] = b""
        infos = sorted({path.split("/")[0] for path in own if ".dist-info/" in path})
        rows = "".join(f"{path},sha256=x,{len(data)}\n" for path, data in own.items())
        own |= {f"{info}/RECORD": rows.encode() for info in infos}
        found |= own
    return found


def under(files: Mapping[str, bytes], root: str = SITE) -> dict[str, bytes]:
    return {f"{root}/{path}": data for path, data in files.items()}


def layer(
    files: Mapping[str, bytes], *, hides: Iterable[str] = (), links: Mapping[str, str] | None = None, same=None
) -> bytes:
    """The tar of a layer. `hides` are paths of whiteouts; `links` and `same` are symbolic and hard links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        folders: set[str] = set()
        rows = {**files, **dict.fromkeys(hides, b"")}
        for path, data in rows.items():
            for depth in range(1, len(path.split("/"))):
                folder = "/".join(path.split("/")[:depth])
                if folder not in folders and folder not in (links or {}):
                    folders.add(folder)
                    archive.addfile(_member(folder, tarfile.DIRTYPE))
            archive.addfile(_member(path, size=len(data)), io.BytesIO(data))
        for kind, pairs in ((tarfile.SYMTYPE, links or {}), (tarfile.LNKTYPE, same or {})):
            for path, target in pairs.items():
                archive.addfile(_member(path, kind, target))
    return out.getvalue()


def _member(path: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type, member.linkname, member.size = kind, target, size
    return member


def whiteouts(files: Iterable[str], root: str = SITE) -> list[str]:
    """What deleting the tops of these files leaves in the layer above."""
    return [f"{root}/.wh.{top}" for top in sorted({path.split("/")[0] for path in files})]


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def packed(data: bytes, how: str = "gzip") -> bytes:
    if how == "zstd":
        return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout
    return gzip.compress(data, 1, mtime=0) if how == "gzip" else data


def config_of(architecture: str = "arm64", env: Iterable[str] = ENV) -> bytes:
    inner = {"Env": list(env), "Labels": {"a": "b", "n": 1}, "Entrypoint": ["vllm", "serve"], "Cmd": None}
    history = [{"created_by": "RUN pip install vllm"}, {"empty_layer": True}]
    return json.dumps({"architecture": architecture, "os": "linux", "config": inner, "history": history}).encode()


def tar_of(parts: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in parts.items():
            archive.addfile(_member(path, size=len(data)), io.BytesIO(data))
    return out.getvalue()


def saved(layers: Sequence[bytes], newer: bool, config: bytes | None = None) -> bytes:
    """What `docker save` writes, before and from Docker 25 on; manifest.json comes last."""
    config = config or config_of()
    names = [
        f"blobs/sha256/{hashlib.sha256(one).hexdigest()}" if newer else f"{place:064x}/layer.tar"
        for place, one in enumerate(layers)
    ]
    own = f"{'blobs/sha256/' if newer else ''}{hashlib.sha256(config).hexdigest()}{'' if newer else '.json'}"
    manifest = [{"Config": own, "RepoTags": ["engine:1"], "Layers": names}]
    return tar_of(
        {own: config, **dict(zip(names, layers, strict=True)), "manifest.json": json.dumps(manifest).encode()}
    )


def layout(images: Mapping[str, Sequence[bytes]]) -> dict[str, bytes]:
    """The parts of an OCI layout; platform -> layers."""
    parts: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    rows = []
    for platform, layers in images.items():
        os, architecture = platform.split("/")
        config = config_of(architecture)
        manifest = manifest_of(config, layers)
        for blob in (config, manifest, *layers):
            parts[f"blobs/sha256/{digest(blob)[7:]}"] = blob
        own = {"os": os, "architecture": architecture}
        rows.append({"digest": digest(manifest), "size": len(manifest), "platform": own})
    return {**parts, "index.json": json.dumps({"schemaVersion": 2, "manifests": rows}).encode()}


def manifest_of(config: bytes, layers: Sequence[bytes]) -> bytes:
    kind = "application/vnd.oci.image."
    rows = [{"mediaType": f"{kind}layer.v1.tar+gzip", "digest": digest(one), "size": len(one)} for one in layers]
    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}manifest.v1+json",
            "config": {"mediaType": f"{kind}config.v1+json", "digest": digest(config), "size": len(config)},
            "layers": rows,
        }
    ).encode()


def wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def report(view: View, model: Model, engine: str = "vllm") -> Report:
    candidate = Candidate("c", engine, Artefact("image", "engine:1"), "/m", ())
    return asyncio.run(look_in(view, Question(candidate, model)))


def library(strings: Iterable[str] = ()) -> bytes:
    """The bytes of something like a shared library, with these strings in it."""
    return b"\x7fELF\x00\x01\xff\xfe\n\x00" + b"".join(word.encode() + b"\0" for word in strings) + b"\xff\n\x80"


TOP = packed(layer(under(files_of("vllm-0.32.0", "transformers-5.19.0"))))
CONFIG = config_of()
GOOD = {
    "manifests/1": manifest_of(CONFIG, [TOP]),
    f"blobs/{digest(CONFIG)}": CONFIG,
    f"blobs/{digest(TOP)}": TOP,
}


def answers(parts, **special):
    """A server of these parts; `special` are functions by the end of the path."""

    def answer(request) -> None:
        path = request.path.partition("/v2/engine/")[2]
        for end, act in special.items():
            if request.path.split("?")[0].endswith(end):
                act(request)
                return
        send(request, 200 if path in parts else 404, parts.get(path, b""))

    return answer


def send(request, status: int, body: bytes = b"", **headers) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
