"""Which notices about nodes matter to a run, and how loudly they are told (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bascule.core.notices import Notice
from bascule.core.nouns import Candidate

OF_IMAGES = ("docker-denied", "docker-missing", "docker-silent", "no-nvidia-runtime", "stores-differ")
# Bascule sets the variables that an own name would mislead; what was not read is told where something rests on it.
QUIET = ("own-name-loopback", "facts-unread")


def for_a_run(notices: Sequence[Notice], candidates: Sequence[Candidate]) -> Iterator[Notice]:
    """Those of docker only where a candidate is an image; what a run takes care of itself is for `why` alone."""
    images = any(candidate.artefact.kind == "image" for candidate in candidates)
    for notice in notices:
        if images or notice.code not in OF_IMAGES:
            yield replace(notice, weight="note") if notice.code in QUIET else notice
