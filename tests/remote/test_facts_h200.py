"""What was read from a real machine with one H200 and neither docker, sshd nor iproute2."""

from __future__ import annotations

from pathlib import Path

from bascule.core.machine import Address, Gpu
from bascule.remote.facts import parse_facts

RECORDED = (Path(__file__).parents[1] / "facts/h200-without-docker.txt").read_text()
MIB = 1024**2


def test_all_is_read_but_docker_which_is_not_there() -> None:
    facts = parse_facts(RECORDED)
    assert facts.gpus == (
        Gpu(0, "NVIDIA H200", "sm_90", 143771 * MIB, 143156 * MIB, "GPU-11111111-2222-3333-4444-555555555555"),
    )
    assert (facts.driver, facts.cuda, facts.unified, facts.gpu_processes) == ("580.159.04", "13.0", False, ())
    assert facts.addresses == (Address("lo", "127.0.0.1", 8), Address("eth0", "192.0.2.2", 24))
    assert (facts.cores, facts.python3, facts.rdma) == (16, "3.12.3", ())
    assert set(facts.unknown) == {"docker"}


def test_a_driver_that_answers_no_question_makes_the_gpu_unknown_and_not_absent() -> None:
    before, found, after = RECORDED.partition("=== gpus\nstatus 0\n0, NVIDIA H200")
    assert found
    facts = parse_facts(f"{before}=== gpus\nstatus 9\nNVIDIA-SMI has failed{after}")
    assert facts.gpus is None
    assert "gpus" in facts.unknown
