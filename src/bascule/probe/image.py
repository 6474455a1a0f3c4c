"""The probe of an image that a node has: its packages' texts are taken out of a container that is never started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from bascule.core.nouns import Candidate, Evidence, Finding, Model, Node, Step
from bascule.probe.gather import look_in
from bascule.probe.readers import READERS
from bascule.probe.values import Spot
from bascule.probe.verdict import Question, missing, undecided
from bascule.probe.views import FolderView, Unreadable
from bascule.remote.runner import Runner

WITHIN = 900.0  # seconds to read an image of tens of GB once

# DOCKER IMAGE PACKAGE: unpacks what a reader may ask for, prints the folder, and its site-packages with the engine.
_UNPACK = r"""
set -u; docker=$1 package=$3; export LC_ALL=C
folder=$(mktemp -d) || exit 3
id=$($docker create --pull never --network none "$2" true) || { rm -rf "$folder"; exit 4; }
$docker export "$id" | tar -x -C "$folder" --no-same-owner --wildcards \
  "*-packages/*-info/METADATA" "*-packages/*-info/entry_points.txt" "*-packages/*.pth" \
  "*-packages/$package/*.py" "*-packages/transformers/*.py" \
  "*-packages/xllamacpp/*.so" "*-packages/xllamacpp.libs/*" 2>/dev/null
$docker rm -f "$id" >/dev/null
echo "$folder"
find "$folder" -type d -name "$package" -path "*-packages/$package" 2>/dev/null | sed 's,/[^/]*$,,' | head -n 1
"""


async def probe_image(
    candidate: Candidate, model: Model, runner: Runner, node: Node, now: Callable[[], datetime]
) -> Finding:
    """Does the engine in this image know this model? One Finding; UNKNOWN when the image can't be read."""
    question = Question(candidate, model)
    reader = READERS[candidate.engine]
    try:
        async with _unpacked(candidate, runner, node, reader.folder) as view:
            if view is None:
                where = Spot(candidate.artefact.ref, None, f"no folder *-packages/{reader.folder} in it")
                opinion = missing(question, f"there is no {reader.title} in {candidate.artefact.ref}", where)
            else:
                opinion = await look_in(view, question)
    except Unreadable as trouble:
        opinion = undecided(question, trouble.why, (trouble.spot,))
    seen = tuple(Evidence(node.name, f"{candidate.artefact.ref} {s.source}", now(), s.text) for s in opinion.seen)
    return Finding(Step.PROBE, opinion.fate, opinion.code, opinion.says, seen, advice=opinion.advice)


@asynccontextmanager
async def _unpacked(candidate: Candidate, runner: Runner, node: Node, package: str) -> AsyncIterator[FolderView | None]:
    """A view of the image's packages, for a while; None when the engine isn't among them. Raises Unreadable."""
    ref = candidate.artefact.ref
    if node.facts.docker is None:
        raise Unreadable(ref, f"{node.name} has no docker")
    words = ("sh", "-s", "--", " ".join(node.facts.docker.command), ref, package)
    result = await runner.run(words, stdin=_UNPACK, within=WITHIN)
    folder, _, root = result.text.strip().partition("\n")
    if not result.ok or not folder:
        raise Unreadable(ref, result.complaint)
    try:
        yield FolderView(runner, root) if root else None
    finally:
        await runner.run(("rm", "-rf", folder), within=60)
