"""kill -9 of bascule at ten random moments: what is left is adopted by the next `up` or removed by `down`."""

from __future__ import annotations

import random
import signal
import time

import pytest

from lifecycle.desk import LLAMACPP, TRANSFORMERS

pytestmark = pytest.mark.engine

SPAN = 9.0  # seconds; a whole run of this recipe takes about so long on two cores
MOMENTS = sorted(random.Random(20).uniform(0, SPAN) for _ in range(10))


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment:.2f}s")
def test_killed(desk, moment):
    recipe = desk.recipe(LLAMACPP + TRANSFORMERS)
    up = desk.start("up", recipe)
    time.sleep(moment)
    up.send_signal(signal.SIGKILL)
    up.wait()
    if MOMENTS.index(moment) % 2:
        again = desk.run("up", recipe)
        assert again.returncode == 0, again.stderr
        assert len({event["data"]["generation"] for event in desk.events("launch")} | {"x"}) >= 1
        assert sum(rank["alive"] for rank in desk.status()["ranks"]) == 1
    down = desk.run("down")
    assert down.returncode == 0 or "error[no-service]" in down.stderr, down.stderr
    assert not desk.ours()
    assert not desk.run_dir.exists() or not list(desk.run_dir.iterdir())
