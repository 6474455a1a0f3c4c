"""What is told of the ranks beside one that was stopped: they are busy in vain, by counters that an H200 showed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bascule.watch.load import Load
from bascule.watch.samples_csv import from_csv
from bascule.watch.serving import Served, spins_beside, stopped_since

DRILL = Path(__file__).parents[1] / "h200" / "drills" / "rank-1-frozen.csv"
END = 1345.2  # when evidence had been taken, by the clock of the recording


def recorded() -> list[Served]:
    table = from_csv(DRILL.read_text())
    return [Served(rank, samples, seen_at=END, spoke_at=1339.9) for rank, samples in table.items()]


def changed(one: Served, **values: float) -> Served:
    """The same with other gauges in its newest samples."""
    last = [replace(sample, values={**sample.values, **values}) for sample in one.samples[-2:]]
    return replace(one, samples=[*one.samples[:-2], *last])


def test_rank_0_spins_at_idle_power_while_rank_1_is_frozen() -> None:
    """The GPU said 100 % at 120 W; idle it took 119 W, and up to 475 W at work."""
    zero, one = recorded()
    since = stopped_since(one)
    assert since == 1339.941 and stopped_since(zero) is None
    says = spins_beside(zero, since, [], END)
    assert says.startswith("rank 0 waits for it: GPU busy 100 % at 120 W (the least that was seen is 119 W), CPU ")
    assert says.endswith(" s, and nothing else moved in 5 s")


def test_tokens_are_told_only_between_two_looks_at_the_metrics() -> None:
    zero, one = recorded()
    since = stopped_since(one) or 0.0

    def told(*loads: Load) -> str:
        return spins_beside(zero, since, loads, END)

    assert told(Load(1340.5, 1.0, 64.0), Load(1345.0, 1.0, 64.0)).endswith(
        "; 1 requests are open and no token was made for 4 s"
    )
    for loads in ([Load(1345.0, 1.0, 64.0)], [Load(1340.5, 1.0, 60.0), Load(1345.0, 1.0, 64.0)], [Load(1345.0)]):
        assert "token" not in told(*loads)


@pytest.mark.parametrize(
    "other",
    [
        {"gpu_watts": 475.0},  # it works
        {"read_bytes": 5e9},
        {"memory_bytes": 9e9},
        {"compilers": 3.0},
    ],
)
def test_a_peer_that_moves_is_not_said_to_wait(other: dict[str, float]) -> None:
    zero, one = recorded()
    assert spins_beside(changed(zero, **other), stopped_since(one) or 0.0, [], END) == ""


def test_a_peer_that_rests_is_ended_or_can_not_be_read_is_not_said_to_spin() -> None:
    zero, one = recorded()
    since = stopped_since(one) or 0.0
    blind = [replace(s, values={n: v for n, v in s.values.items() if n != "memory_bytes"}) for s in zero.samples]
    rests = [replace(s, values={**s.values, "cpu_s": 423.0, "gpu_percent": 0.0}) for s in zero.samples]
    for other in (
        replace(zero, samples=blind),
        replace(zero, samples=rests),
        replace(zero, alive=False),
        replace(zero, samples=()),
    ):
        assert spins_beside(other, since, [], END) == ""
    assert spins_beside(zero, END - 1.0, [], END) == "", "a second is too short to tell"
