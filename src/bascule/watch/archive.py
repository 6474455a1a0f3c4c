"""One archive of an attempt's evidence that can be given to others: secrets, names and addresses are masked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bascule import __version__
from bascule.errors import BasculeError
from bascule.watch.masking import Masks

HEAD, TAIL = 1024 * 1024, 4 * 1024 * 1024  # bytes of a file that are kept
MOST_FILES = 500
LONGEST_LINE = 20_000  # characters; what is longer is cut in two, so that every pattern stays quick


@dataclass
class _Packed:
    """What goes into the archive, and what the manifest says of it."""

    texts: dict[str, str] = field(default_factory=dict)  # path in the archive -> text
    cut: dict[str, int] = field(default_factory=dict)  # path -> bytes left out in its middle
    left_out: dict[str, str] = field(default_factory=dict)  # path -> why


def pack(folder: Path, out: Path, hosts: Iterable[str] = ()) -> Path:
    """Write a .tar.gz of all text under a folder, and give back its path.

    `hosts` are names of nodes and hosts to mask, besides those that are found in the text. The archive has a
    MANIFEST.json: every file with its size, its sha256 and what was left out. Raises BasculeError.
    """
    masks, packed = Masks(), _Packed()
    for host in hosts:
        masks.learn_host(host.partition("@")[2] or host)
    try:
        for path in _files(folder, packed):
            _read(folder, path, packed)
        for text in packed.texts.values():
            masks.learn(text)
        return _write(out, packed, masks)
    except OSError as trouble:
        says = f"the evidence in {folder} can't be packed into {out}"
        raise BasculeError("archive", says, seen=str(trouble), advice="name a file that can be written") from trouble


def _files(folder: Path, packed: _Packed) -> Iterator[Path]:
    """Regular files by name; links are not followed."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder")
    found = 0
    for place, below, names in os.walk(folder):
        below.sort()
        for name in sorted(names):
            path = Path(place, name)
            relative = str(path.relative_to(folder))
            found += 1
            if not stat.S_ISREG(path.lstat().st_mode):
                packed.left_out[relative] = "no regular file"
            elif found > MOST_FILES:
                packed.left_out[relative] = f"more than {MOST_FILES} files"
            else:
                yield path


def _read(folder: Path, path: Path, packed: _Packed) -> None:
    """Its beginning and its end, as text."""
    relative = str(path.relative_to(folder))
    size = path.stat().st_size
    with path.open("rb") as file:
        raw = file.read(HEAD + TAIL)
        if size > HEAD + TAIL:
            file.seek(size - TAIL)
            end = file.read(TAIL)
            packed.cut[relative] = size - HEAD - TAIL
            raw = raw[:HEAD] + f"\n… {packed.cut[relative]} bytes are left out …\n".encode() + end
    if b"\0" in raw:
        packed.left_out[relative] = "no text"
        return
    lines = raw.decode(errors="replace").split("\n")
    packed.texts[relative] = "\n".join(part for line in lines for part in _parts(line))


def _parts(line: str) -> list[str]:
    """The line in parts that are short enough, cut where a word ends."""
    parts = []
    while len(line) > LONGEST_LINE:
        at = line.rfind(" ", LONGEST_LINE // 2, LONGEST_LINE)
        at = at if at > 0 else LONGEST_LINE
        parts.append(line[:at])
        line = line[at:]
    return [*parts, line]


def _write(out: Path, packed: _Packed, masks: Masks) -> Path:
    """Beside its place first, so that there is never half of it."""
    ready = {masks.apply(path): masks.apply(text).encode() for path, text in packed.texts.items()}
    manifest = _manifest(ready, packed, masks)
    ready["MANIFEST.json"] = json.dumps(manifest, indent=2).encode() + b"\n"
    new = out.with_name(f".{out.name}.new")
    try:
        with (
            new.open("wb") as file,
            gzip.GzipFile("", "wb", 6, file, mtime=0) as packer,
            tarfile.open(fileobj=packer, mode="w") as tar,
        ):
            for path, data in sorted(ready.items()):
                entry = tarfile.TarInfo(f"bascule-evidence/{path}")
                entry.size, entry.mode = len(data), 0o644
                tar.addfile(entry, io.BytesIO(data))
        new.replace(out)
    finally:
        new.unlink(missing_ok=True)
    return out


def _manifest(ready: Mapping[str, bytes], packed: _Packed, masks: Masks) -> dict[str, Any]:
    return {
        "bascule": __version__,
        "files": [
            {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for path, data in sorted(ready.items())
        ],
        "cut": {masks.apply(path): size for path, size in packed.cut.items()},
        "left_out": {masks.apply(path): why for path, why in packed.left_out.items()},
        "masked": {
            "hosts": len({mask.split(".")[0] for mask in masks.hosts.values()}),
            "users": len(masks.users),
            "addresses": len(masks.addresses),
        },
    }
