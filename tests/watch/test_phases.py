"""Where a rank is in its start, told by real logs; a wrong phase calls a good start off, or waits for a dead one."""

from __future__ import annotations

import pytest

from bascule.engines.base import READY
from bascule.engines.catalogue import ENGINES
from bascule.watch.phases import Progress, advance, begin
from watch.real_logs import HEALTHY, engine_of, read


def phases_of(log: str) -> list[str]:
    progress = begin(ENGINES[engine_of(log)].lore.phases, now=0)
    seen = [progress.phase]
    for line in read(log):
        progress = advance(progress, line, now=1)
        seen += [progress.phase] if progress.phase != seen[-1] else []
    return seen


@pytest.mark.parametrize(("log", "phases"), HEALTHY.items())
def test_a_healthy_start_goes_through_its_phases_in_order(log: str, phases: str) -> None:
    assert phases_of(log) == phases.split()


@pytest.mark.parametrize("log", HEALTHY)
def test_only_the_head_is_ever_ready(log: str) -> None:
    assert (phases_of(log)[-1] == READY) == (not log.endswith(".r1"))


@pytest.mark.parametrize(
    ("log", "phase"),
    [
        ("vllm/vllm-0.32-gloo-eth9.r0", "rendezvous"),
        ("vllm/vllm-0.32-gloo-eth9.r1", "rendezvous"),
        ("shared/vllm-0.32-alone.r0", "rendezvous"),
        ("shared/sglang-0.5.15-hang.r0", "queue"),
        ("shared/sglang-0.5.15-hang.r1", "queue"),
        ("shared/vllm-0.24-fp8-block.r0", "weights"),
        ("shared/vllm-0.32-pp2-layouts.r0", "loaded"),
        ("shared/vllm-0.32-port-taken", "config"),
        ("llamacpp/llamacpp-cut-gguf", "weights"),
    ],
)
def test_a_start_that_fails_is_left_in_the_phase_where_it_failed(log: str, phase: str) -> None:
    assert phases_of(log)[-1] == phase


def at(phase: str, since: float = 0) -> Progress:
    phases = ENGINES["vllm"].lore.phases
    return Progress(phases, [one.name for one in phases].index(phase), since)


def test_phases_never_go_back() -> None:
    helper = "(EngineCore pid=1) INFO 11-30 19:18:16 [x.py:1] world_size=2 distributed_init_method=tcp://10.0.0.1:29500"
    assert advance(at("config"), helper, now=1).phase == "rendezvous"
    assert advance(at("weights"), helper, now=1).phase == "weights"


def test_a_blank_line_is_no_sign_of_life() -> None:
    spoke = advance(at("weights"), "INFO something", now=5)
    assert (spoke.last_line, spoke.last_line_at, spoke.spoke_at, spoke.since) == ("INFO something", 5, 5, 0)
    assert advance(spoke, "  ", now=9) == spoke


def test_each_phase_has_its_own_time() -> None:
    config = next(phase for phase in ENGINES["vllm"].lore.phases if phase.name == "config")
    progress = at("config", since=100)
    assert progress.late_by(100 + config.within_s) == 0
    assert progress.late_by(100 + config.within_s + 7) == 7
    assert at(READY).late_by(1e9) < 0, "a service may run as long as it likes"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_known_of_an_engine_is_complete(engine: str) -> None:
    first, *rest = ENGINES[engine].lore.phases
    names = [phase.name for phase in (first, *rest)]
    assert (first.begins, rest[-1].name, len(set(names))) == (None, READY, len(names))
    assert all(phase.begins for phase in rest)
    assert all(phase.within_s > 0 and phase.next for phase in (first, *rest[:-1]))
