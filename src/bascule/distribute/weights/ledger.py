"""The checksums of a copy: what each file should have, and what each target says it has (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from bascule.distribute.weights.manifest import Manifest, is_sampled

Told = Iterable[tuple[int, str]]  # number of a file, its checksum


class Ledger:
    """Blobs of a Hugging Face cache say their checksum by their name; all others are told by the source."""

    def __init__(self, manifest: Manifest, verify: str) -> None:
        self._manifest = manifest
        self._expected = {
            number: entry.sha256
            for number, entry in enumerate(manifest.entries)
            if entry.link is None and entry.sha256 and not is_sampled(entry, verify)
        }
        self._got: dict[str, dict[int, str]] = {}

    def tell_source(self, told: Told) -> None:
        """What the source read."""
        for number, digest in told:
            self._expected.setdefault(number, digest)

    def tell(self, target: str, told: Told) -> None:
        """What a target has."""
        self._got.setdefault(target, {}).update(told)

    def unknown(self, numbers: Iterable[int]) -> list[int]:
        """Those of the files whose checksum the source has still to tell."""
        return [number for number in numbers if number not in self._expected]

    def wrong(self, target: str) -> list[int]:
        """Files of a target that are not what they should be, or were never hashed."""
        got = self._got.get(target, {})
        return [number for number in self._manifest.files if got.get(number) != self._expected.get(number)]

    def forget(self, target: str, numbers: Iterable[int]) -> None:
        """These come again."""
        for number in numbers:
            self._got.get(target, {}).pop(number, None)

    def said(self, target: str, number: int) -> str:
        """Both checksums, for evidence."""
        path = self._manifest.entries[number].path
        return f"{path}: expected {self._expected.get(number)}, got {self._got.get(target, {}).get(number)}"
