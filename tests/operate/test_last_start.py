"""How long the same start took last time: only for the same candidate, hosts, and a start that came up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bascule.core.nouns import Artefact, Candidate, Evidence, Fate, Finding, Node, Setting, Step
from bascule.journal import Journal
from bascule.operate.memory import last_start

NODES = (Node("a", "spark-1"), Node("b", "spark-2"))
ASKED = Candidate("vllm", "vllm", Artefact("venv", "/e"), "/m", (), ("a", "b"), 2)


def started(journal, candidate, fate=Fate.OK, step=Step.WATCH):
    run = journal.begin(service="s", nodes=[{"name": node.name, "host": node.host} for node in NODES])
    seen = (Evidence("a", "log of rank 0", datetime.now(UTC), "x"),)
    journal.record(run, "launch", generation=f"{run}.1", ranks=[])
    journal.record(run, "finding", candidate=candidate, finding=Finding(step, fate, "engine-up", "x", seen))
    return run


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path)


def test_the_newest_start_that_came_up_counts(journal):
    started(journal, ASKED)
    newest = started(journal, ASKED.changed(Setting("env", "X", "1")))
    started(journal, ASKED, Fate.HOPELESS)
    started(journal, ASKED, step=Step.VERIFY)
    took = last_start(journal, ASKED, NODES)
    assert took is not None and took.run == newest
    launch, up = journal.events(newest, "launch", "finding")
    assert took.seconds == (up.at - launch.at).total_seconds()


def test_another_candidate_or_other_hosts_tell_nothing(journal):
    started(journal, ASKED)
    assert last_start(journal, ASKED, NODES) is not None
    assert last_start(journal, replace(ASKED, tensor_parallel=1), NODES) is None
    assert last_start(journal, ASKED, (NODES[0], Node("b", "spark-9"))) is None


def test_a_run_without_a_start_tells_nothing(journal):
    run = journal.begin(service="s", nodes=[{"name": node.name, "host": node.host} for node in NODES])
    seen = (Evidence("a", "x", datetime.now(UTC), "x"),)
    finding = Finding(Step.WATCH, Fate.OK, "engine-up", "adopted", seen)
    journal.record(run, "finding", candidate=ASKED, finding=finding)
    assert last_start(journal, ASKED, NODES) is None
