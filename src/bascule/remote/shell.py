"""The one place that quotes: from argument lists to lines of POSIX shell, and the end marker that comes back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

END_MARKER = "bascule-end"
_END = re.compile(rb"\n?" + END_MARKER.encode() + rb" (\d+)\n?\Z")


def line(argv: Sequence[str]) -> str:
    """One safely quoted command line."""
    return shlex.join(argv)


def bounded(argv: Sequence[str], within: float) -> tuple[str, ...]:
    """The command, ended by the node itself after `within` seconds."""
    return ("timeout", "-k", "2", f"{within:g}", *argv)


def with_end_marker(argv: Sequence[str]) -> str:
    """A line for a login shell of any kind; its exit status comes back at the end of standard error.

    ssh says 255 both for "no connection" and for a command's own 255; the marker tells them apart.
    """
    script = f"{line(argv)}; printf '\\n{END_MARKER} %d\\n' $? >&2"
    return line(("sh", "-c", script))


def split_end_marker(stderr: bytes) -> tuple[bytes, int | None]:
    """Standard error without the marker, and the status it carried; None when it never came."""
    found = _END.search(stderr)
    if not found:
        return stderr, None
    return stderr[: found.start()], int(found.group(1))


def exports(env: Mapping[str, str]) -> str:
    """Lines that export these variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())


def here_document(path: str, text: str) -> str:
    """Lines that write text to a file, whatever it contains."""
    end = "BASCULE_END"
    while end in text:
        end += "_"
    newline = "" if text.endswith("\n") else "\n"
    return f"cat > {shlex.quote(path)} <<'{end}'\n{text}{newline}{end}\n"
