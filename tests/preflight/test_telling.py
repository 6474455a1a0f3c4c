"""Which notices a run tells: each that may matter to it, once, and none for the doctor alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bascule.core.notices import Notice
from bascule.core.nouns import Artefact, Candidate, Evidence
from bascule.preflight.telling import for_a_run

OWN = Candidate("own", "vllm", Artefact("venv", "/v"), "/m")
IMAGE = Candidate("image", "vllm", Artefact("image", "i:1"), "/m")


def notice(code: str) -> Notice:
    return Notice("a", code, "says", (Evidence("a", "x", datetime.now(UTC), "x"),))


def told(code: str, *candidates: Candidate) -> list[str]:
    return [one.weight for one in for_a_run([notice(code)], candidates)]


@pytest.mark.parametrize("code", ["docker-denied", "docker-missing", "no-nvidia-runtime", "stores-differ"])
def test_docker_matters_where_a_candidate_is_an_image(code):
    assert told(code, OWN) == [] and told(code, OWN, IMAGE) == ["warning"]


def test_a_clock_matters_always():
    assert told("clock-off", OWN) == ["warning"] and told("clock-off") == ["warning"]


@pytest.mark.parametrize("code", ["own-name-loopback", "facts-unread"])
def test_what_a_run_takes_care_of_itself_is_kept_for_the_whole_story(code):
    assert told(code, IMAGE) == ["note"]
