"""Manifests and configurations that were fetched before, by their digests, which say that they are still the same."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

LONGEST = 4 << 20  # bytes


def read(folder: Path | None, digest: str) -> bytes | None:
    """What is kept under a digest; None where nothing is, or something else."""
    if folder is None:
        return None
    try:
        with (folder / digest.replace(":", "-")).open("rb") as file:
            data = file.read(LONGEST + 1)
    except OSError:
        return None
    return data if f"sha256:{hashlib.sha256(data).hexdigest()}" == digest else None


def write(folder: Path | None, digest: str, data: bytes) -> None:
    """Keep it; where that can't be, nothing is lost but time."""
    if folder is None or len(data) > LONGEST:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / digest.replace(":", "-")
        if place.exists():
            return
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(place)
