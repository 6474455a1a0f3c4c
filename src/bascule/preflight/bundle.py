"""The helper of the proof as text, and the words that run it on a node from standard input."""

from __future__ import annotations

from functools import cache
from importlib import resources

PYTHON, PERL, NOTHING = "python3", "perl", "nothing"  # the first word of what the node prints
# Each reads so many bytes of script from standard input, and runs them; what follows there are orders.
_PYTHON_STARTER = """
import os, sys
want, script = int(sys.argv[1]), b""
while len(script) < want:
    script += os.read(0, want - len(script)) or sys.exit("the script ended early")
exec(compile(script, "bascule-exchange", "exec"), {"__name__": "__main__"})
"""
_PERL_STARTER = """
my ($want, $script) = (shift, '');
while (length $script < $want) { sysread(STDIN, $script, $want - length $script, length $script) or exit 1 }
eval $script; die $@ if $@;
"""
# Says what will run, or why nothing can. A python3 that is there and doesn't run counts as none.
_SHELL = r"""
try='import sys; print("%d.%d.%d" % sys.version_info[:3]); sys.exit(sys.version_info < (3, 6))'
if told=$(python3 -I -S -c "$try" 2>&1 </dev/null); then
  echo "python3 $told"; exec python3 -I -S -c "$1" "$2"
elif more=$(perl -MSocket -MErrno -e 'printf "%vd", $^V' 2>&1 </dev/null); then
  echo "perl $more"; exec perl -e "$3" "$4"
fi
echo "nothing python3: $told; perl: $more" | tr '\n' ' '; echo
"""


@cache
def script(language: str) -> bytes:
    """The helper in this language."""
    name = "exchange.py" if language == PYTHON else "exchange.pl"
    return resources.files("bascule.preflight").joinpath("node", name).read_bytes()


def words() -> tuple[str, ...]:
    """The command of a helper: it prints what it found, then waits for the script of that."""
    python, perl = str(len(script(PYTHON))), str(len(script(PERL)))
    return ("sh", "-c", _SHELL, "sh", _PYTHON_STARTER, python, _PERL_STARTER, perl)
