"""Nouns that can't say what they must not: an opinion without evidence, a cure without a change."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest

from bascule.core.nouns import Artefact, Candidate, Evidence, Fate, Finding, Setting, Step

SEEN = (Evidence("a", "uname -m", datetime(2026, 11, 30, tzinfo=UTC), "x86_64"),)
CHANGE = Setting("env", "X", "1")


def test_a_finding_needs_evidence() -> None:
    assert Finding(Step.WATCH, Fate.OK, "up", "it runs", SEEN).evidence == SEEN
    with pytest.raises(ValueError, match="finding up has no evidence"):
        Finding(Step.WATCH, Fate.OK, "up", "it runs", ())


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate is not Fate.ADJUST])
def test_only_adjust_changes_something(fate: Fate) -> None:
    with pytest.raises(ValueError, match="ADJUST and a change belong together"):
        Finding(Step.WATCH, fate, "c", "says", SEEN, change=CHANGE)


def test_adjust_says_what_to_change() -> None:
    assert Finding(Step.WATCH, Fate.ADJUST, "c", "says", SEEN, change=CHANGE).change == CHANGE
    with pytest.raises(ValueError, match="ADJUST and a change belong together"):
        Finding(Step.WATCH, Fate.ADJUST, "c", "says", SEEN)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (Setting("env", "NCCL_DEBUG", "INFO"), "NCCL_DEBUG=INFO"),
        (Setting("env", "GLOO_SOCKET_IFNAME", "eth0", "b"), "GLOO_SOCKET_IFNAME=eth0 on b"),
        (Setting("flag", "--tp-size", "2"), "--tp-size 2"),
        (Setting("flag", "--enforce-eager", ""), "--enforce-eager"),
        (Setting("env", "X", None, "b"), "without X on b"),
    ],
)
def test_a_setting_reads_as_it_is_typed(setting: Setting, words: str) -> None:
    assert str(setting) == words


def test_changing_a_candidate_leaves_the_old_one_alone() -> None:
    old = Candidate("c", "vllm", Artefact("venv", "/v"), "/m", (Setting("env", "X", "0"),))
    new = old.changed(CHANGE)
    assert (old.in_force, new.in_force) == ((Setting("env", "X", "0"),), (Setting("env", "X", "0"), CHANGE))
    assert new.substance == old.substance == ("vllm", "/v", "/m")
    with pytest.raises(FrozenInstanceError):
        old.name = "d"  # type: ignore[misc]
