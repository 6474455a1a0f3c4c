"""Lets the tests import the generator of the docs, and gives them a copy that they may damage."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))


@pytest.fixture
def copy(tmp_path):
    """The docs, the texts at the top and the source, in a folder of their own."""
    for folder in ("docs", "src/bascule"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy(path, tmp_path)
    return tmp_path
