"""Joins the helper's modules into one script, and the words that run it from standard input."""

from __future__ import annotations

import ast
from functools import cache
from importlib import resources

# In order of use.
PARTS = (
    "tarsplit",
    "blobs",
    "sources",
    "codecs",
    "relay",
    "fetch",
    "posting",
    "ingest",
    "receive",
    "main",
)  # in order of use
_OURS = ("bascule", "__future__")
# Reads so many bytes of script from standard input and runs them; what follows there is for the script.
_STARTER = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), 'bascule-helper', 'exec'))"


@cache
def script() -> bytes:
    """The helper as one module, without what its parts import from each other."""
    folder = resources.files("bascule.distribute.images.node")
    parts = [_without_imports(folder.joinpath(f"{part}.py").read_text()) for part in PARTS]
    return ("from __future__ import annotations\n" + "\n".join(parts)).encode()


def words(root: str) -> tuple[str, ...]:
    """The command of a helper; root is how it may become root, as in the inventory, or "" to stay what it is."""
    lead = ("sudo", "-n") if root == "sudo" else ()
    return (*lead, "python3", "-c", _STARTER, str(len(script())))


def _without_imports(source: str) -> str:
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _OURS:
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)
