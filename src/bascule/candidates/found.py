"""Candidates for a run whose recipe names none, with what the probe said of each on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from bascule.candidates.ask import Ask, Discovered
from bascule.candidates.choose import discover_candidates
from bascule.candidates.names import spec_of
from bascule.consent import Consent
from bascule.core.nouns import Candidate, Finding
from bascule.discover.candidates import from_recipe
from bascule.discover.rank import Ranked
from bascule.engines.catalogue import ENGINES
from bascule.errors import RecipeError
from bascule.recipe.schema import Recipe

Foreseen = Mapping[Candidate, Finding]


async def found_candidates(
    ask: Ask, recipe: Recipe, note: Callable[..., None], consent: Consent | None = None
) -> tuple[tuple[Candidate, ...], Foreseen]:
    """The candidates, the best first; those that the probe refused come last, so that the story tells them.

    Where only images of people who are not known would do, `consent` is asked about each of them. Raises RecipeError
    when there is none, or when all are published by people whom nobody has said to trust.
    """
    found = await discover_candidates(ask)
    note("discovered", **_brief(found))
    if consent and not found.ranking.candidates and (said := await _trusted(found, consent)):
        note("trusted", publishers=said)
        found = await discover_candidates(replace(ask, trust=(*ask.trust, *said)))
        note("discovered", **_brief(found))
    refused = [row for row in found.ranking.refused if row.verdict.finding]
    rows = [row for row in (*found.ranking.candidates, *refused) if row.offer.engine in ENGINES]
    if not rows or (found.ranking.held and not found.ranking.candidates):
        raise _nothing(found)
    specs = [spec_of(row.offer) for row in rows]
    candidates = from_recipe(recipe.model_copy(update={"candidates": specs}), ask.base, ask.words)
    pairs = zip(candidates, rows, strict=True)
    return candidates, {candidate: row.verdict.finding for candidate, row in pairs if row.verdict.finding}


async def _trusted(found: Discovered, consent: Consent) -> list[str]:
    """Publishers whose images may be taken this time."""
    said = []
    for publisher, row in found.to_ask_about.items():
        if await consent(f"{row.offer.name}: {row.because}\ntake images of {publisher} for this run?"):
            said.append(publisher)
    return said


def _brief(found: Discovered) -> dict[str, object]:
    """What the journal keeps."""
    return {
        "candidates": [_row(row) for row in found.ranking.candidates],
        "held": [_row(row) for row in found.ranking.held],
        "refused": [_row(row) for row in found.ranking.refused],
        "unread": found.unread,
        "reached": found.reached,
        "bytes": found.received,
        "seconds": found.seconds,
    }


def _row(row: Ranked) -> dict[str, object]:
    return {
        "names": row.offer.names,
        "digest": row.offer.pinned,
        "publisher": row.offer.publisher.id,
        "signed": row.offer.signed,
        "verdict": row.verdict.word,
        "because": row.refused or row.because,
    }


def _nothing(found: Discovered) -> RecipeError:
    held = found.ranking.held
    if held:
        names = ", ".join(row.offer.name for row in held[:3])
        trust = " ".join(f"--trust {name}" for name in found.to_ask_about)
        return RecipeError(
            "image-not-trusted",
            f"{len(held)} images could serve it, and all are published by people who are not known here",
            seen=f"{names}: {held[0].because}",
            advice=f"{trust}, or name one under `candidates:` in a recipe",
        )
    seen = [f"{row.offer.name}: {row.refused}" for row in found.ranking.refused[:5]]
    seen += [f"{one.source} was not read: {one.why}" for one in found.unread[:5]]
    return RecipeError(
        "no-candidates",
        "no engine was found that every node has, and no image that could serve it",
        seen="\n".join(seen) or "no environment, no image",
        advice="name `candidates:` in a recipe, or `--venv FOLDER`; `bascule search` shows what there is",
    )
