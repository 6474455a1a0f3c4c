"""Python stacks where the engine is a plain folder of packages: py-spy is in its bin, beside no interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bascule.watch

SCRIPT = Path(bascule.watch.__file__).with_name("capture.sh")


@pytest.mark.parametrize("there", [True, False])
def test_py_spy_is_found_in_the_folder_that_the_process_has_on_its_path(tmp_path: Path, there: bool) -> None:
    if shutil.which("py-spy"):
        pytest.skip("py-spy is installed here: it is taken first")
    tool = tmp_path / "site" / "bin" / "py-spy"
    if there:
        tool.parent.mkdir(parents=True)
        tool.write_text("#!/bin/sh\necho asked: $*\n")
        tool.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}/site:{tmp_path}/other"}
    sleeper = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"]
    with subprocess.Popen(sleeper, env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            words = ("sh", str(SCRIPT), "stacks", "5", str(process.pid))
            told = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        finally:
            process.kill()
    if there:
        assert f"process {process.pid}, by {tool}\nasked: dump --nonblocking --pid {process.pid}\n" in told
    else:
        assert "py-spy is neither on the node nor beside the engine" in told
