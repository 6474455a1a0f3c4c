"""The helper as text: its modules, and the words that run them from standard input."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

PACKAGE = "bascule.distribute.weights"
MODULES = (  # in the order of use; an empty one is a package
    "bascule",
    "bascule.distribute",
    PACKAGE,
    *(f"{PACKAGE}.{name}" for name in ("manifest", "ranges", "resume", "node")),
    *(
        f"{PACKAGE}.node.{name}"
        for name in ("wire", "listing", "hashing", "addresses", "survey", "place", "visible", "commit")
    ),
    *(f"{PACKAGE}.node.{name}" for name in ("serving", "source", "target", "pulling", "helper")),
)
NO_PYTHON, OLD_PYTHON = "bascule-no-python3", "bascule-old-python"
_SHELL = f'command -v python3 >/dev/null 2>&1 || {{ echo {NO_PYTHON} >&2; exit 127; }}; exec python3 -c "$1" "$2"'
# Makes real modules, so that the helper's files import each other there as they do here. The first lines must be
# understood by any Python 3.
_STARTER = f"""
import sys
if sys.version_info < (3, 9):
    sys.exit("{OLD_PYTHON} %d.%d" % sys.version_info[:2])
import json, types
for name, text in json.loads(sys.stdin.buffer.read(int(sys.argv[1])).decode()):
    module = types.ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


@cache
def modules() -> bytes:
    """Names and sources of all modules, as JSON."""
    return json.dumps([(name, _source(name)) for name in MODULES]).encode()


def words() -> tuple[str, ...]:
    """The command of a helper; modules() and then questions go to its standard input."""
    return ("sh", "-c", _SHELL, "sh", _STARTER, str(len(modules())))


def _source(name: str) -> str:
    parts = name.removeprefix(f"{PACKAGE}.").split(".")
    folder = resources.files(PACKAGE).joinpath(*parts[:-1])
    path = folder.joinpath(f"{parts[-1]}.py")
    return path.read_text(encoding="utf-8") if name.startswith(f"{PACKAGE}.") and path.is_file() else ""
