"""How long a person waits for `bascule --help` and `bascule status`: medians, with a bare Python start beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROUNDS = 15
BASCULE = str(Path(sys.executable).with_name("bascule"))


def main() -> None:
    """Run each command ROUNDS times in turn, with an empty journal; the last line is one JSON object."""
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        commands = {"bare": [sys.executable, "-c", ""], "help": [BASCULE, "--help"], "status": [BASCULE, "status"]}
        taken = {name: [measure(argv) for argv in [argv] * ROUNDS] for name, argv in commands.items()}
    for name, rows in taken.items():
        cpu, wall = (median(row[at] for row in rows) for at in (0, 1))
        print(f"{name:<8} {cpu:.3f} s CPU  {wall:.3f} s wall   (median of {ROUNDS})")
    figures = {
        "help_cpu_s": round(median(row[0] for row in taken["help"]), 3),
        "status_wall_s": round(median(row[1] for row in taken["status"]), 3),
        "bare_python_cpu_s": round(median(row[0] for row in taken["bare"]), 3),
    }
    print(json.dumps(figures))


def measure(argv: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one run."""
    began, before = time.perf_counter(), os.times()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu, wall


if __name__ == "__main__":
    main()
