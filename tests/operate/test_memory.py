"""What helped before is used at once, and only for the very same candidate on the very same nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bascule.core.nouns import Artefact, Candidate, Node, Setting
from bascule.journal import Journal
from bascule.operate.memory import what_helped
from bascule.show.story import Narrator
from bascule.up import with_what_helped

NODES = (Node("a", "spark-1"), Node("b", "spark-2"))
ASKED = Candidate("vllm", "vllm", Artefact("venv", "/e"), "/m", (Setting("env", "X", "1", "b"),), ("a", "b"), 2)
CHANGE = Setting("env", "GLOO_SOCKET_IFNAME", "enp1", "b")


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path)
    served(made, ASKED.changed(CHANGE))
    return made


def served(journal, candidate, nodes=NODES):
    run = journal.begin(service="s", nodes=[{"name": node.name, "host": node.host} for node in nodes])
    journal.record(run, "served", candidate=candidate)
    return run


def test_what_helped_is_remembered_with_its_run(journal):
    assert what_helped(journal, ASKED, NODES) == (1, (CHANGE,))


def test_the_name_of_a_candidate_does_not_matter(journal):
    assert what_helped(journal, replace(ASKED, name="other"), NODES) == (1, (CHANGE,))


@pytest.mark.parametrize(
    "other",
    [
        replace(ASKED, settings=()),
        replace(ASKED, artefact=Artefact("venv", "/newer")),
        replace(ASKED, model="/other"),
        replace(ASKED, tensor_parallel=1),
        replace(ASKED, nodes=("a",)),
    ],
)
def test_another_candidate_has_no_memory(journal, other):
    assert what_helped(journal, other, NODES) is None


def test_other_hosts_under_the_same_names_have_none(journal):
    assert what_helped(journal, ASKED, (NODES[0], Node("b", "spark-9"))) is None


def test_the_newest_run_counts_and_one_without_changes_forgets(journal):
    other = Setting("env", "GLOO_SOCKET_IFNAME", "enp2", "b")
    served(journal, ASKED.changed(other))
    assert what_helped(journal, ASKED, NODES) == (2, (other,))
    served(journal, ASKED)
    assert what_helped(journal, ASKED, NODES) is None


def test_a_run_that_did_not_serve_teaches_nothing(tmp_path):
    journal = Journal(tmp_path)
    run = journal.begin(service="s", nodes=[])
    journal.record(run, "gave-up", because="x")
    assert what_helped(journal, ASKED, NODES) is None


def test_it_is_used_at_once_and_the_story_says_so(journal):
    run = journal.begin(service="s", source="x", model="/m", nodes=[])
    told = with_what_helped(ASKED, NODES, journal, lambda kind, **data: journal.record(run, kind, **data))
    assert told == ASKED.changed(CHANGE)
    event = journal.events(run)[-1]
    (say,) = Narrator().tell(event)
    assert say.text == "vllm served with GLOO_SOCKET_IFNAME=enp1 on b in run 1: used from the start"
