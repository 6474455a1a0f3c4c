"""The helper as it is sent: one script for Python 3.9, whose names do not collide."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from importlib import resources

from bascule.distribute.images import bundle


def test_it_is_python_3_9_without_anything_of_ours() -> None:
    tree = ast.parse(bundle.script().decode(), feature_version=(3, 9))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in imported if name and name.startswith("bascule")}


def test_no_name_is_defined_twice() -> None:
    tree = ast.parse(bundle.script().decode())
    names = Counter(node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    assert [name for name, times in names.items() if times > 1] == []
    assigned = Counter(
        t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)
    )
    assert [name for name, times in assigned.items() if times > 1] == []


def test_every_module_of_the_helper_is_in_it() -> None:
    folder = resources.files("bascule.distribute.images.node")
    modules = {each.name.removesuffix(".py") for each in folder.iterdir() if each.name.endswith(".py")}
    assert modules - {"__init__"} == set(bundle.PARTS)


def test_it_says_that_it_is_ready_and_ends_with_its_input() -> None:
    words = [sys.executable, *bundle.words("")[1:]]
    request = json.dumps({"do": "ping", "number": 0}).encode() + b"\n"
    done = subprocess.run(words, input=bundle.script() + request, capture_output=True, timeout=20, check=False)
    ready, pong = (json.loads(line) for line in done.stdout.splitlines())
    assert ready["ready"]
    assert pong == {"pong": True}
    assert (done.returncode, done.stderr) == (0, b"")


def test_root_is_taken_by_sudo_where_it_must_be() -> None:
    assert bundle.words("root")[0] == "python3"
    assert bundle.words("sudo")[:3] == ("sudo", "-n", "python3")
