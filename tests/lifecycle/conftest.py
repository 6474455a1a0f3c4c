"""The desk of each lifecycle test, swept afterwards."""

from __future__ import annotations

import os
import signal

import pytest

from lifecycle.desk import Desk, free_port


@pytest.fixture
def desk(tmp_path):
    """A desk that is swept by force afterwards, and complains when a test left something running."""
    made = Desk(tmp_path, free_port(), free_port())
    yield made
    left = made.ours()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"left running: {left}"
