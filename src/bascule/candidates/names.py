"""From an offer to the candidate that a recipe could name (pure)."""

from __future__ import annotations

import re

from bascule.candidates.ask import Ask
from bascule.core.nouns import Artefact, Candidate
from bascule.discover.candidates import from_recipe
from bascule.discover.offers import Offer
from bascule.engines.catalogue import ENGINES
from bascule.recipe.schema import CandidateSpec
from bascule.registry.oci import pinned_tag, without_version

_LONGEST = 63  # characters of a candidate's name


def spec_of(offer: Offer) -> CandidateSpec:
    """The entry of a recipe that means this offer; its engine is one that bascule starts."""
    if offer.kind == "venv":
        return CandidateSpec(engine=offer.engine, venv=offer.name)
    return CandidateSpec(engine=offer.engine, image=reference_to(offer), name=_title(offer))


def candidate_of(offer: Offer, ask: Ask) -> Candidate:
    """The candidate that is looked into: with the recipe's flags where there is a recipe."""
    if ask.recipe and offer.engine in ENGINES:
        recipe = ask.recipe.model_copy(update={"candidates": [spec_of(offer)]})
        return from_recipe(recipe, ask.base, ask.words)[0]
    return Candidate(offer.name, offer.engine or "engine", Artefact(offer.kind, offer.name), ask.model.path)


def reference_to(offer: Offer) -> str:
    """By which the nodes have it; for one that is to be pulled, a tag of its digest: it can only mean this image."""
    if offer.nodes or not offer.pinned:
        return offer.name
    return pinned_tag(offer.name, offer.pinned)


def pinned(offer: Offer) -> str:
    """By which its registry gives just this image."""
    return f"{without_version(offer.name)}@{offer.pinned}" if offer.pinned else offer.name


def _title(offer: Offer) -> str:
    short = re.sub(r"@sha256:([0-9a-f]{12})[0-9a-f]*", r"-\1", offer.name.rpartition("/")[2])
    short = re.sub(r"^sha256:([0-9a-f]{12})[0-9a-f]*$", r"\1", short)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{offer.engine}-{short}")[:_LONGEST].rstrip("-.")
