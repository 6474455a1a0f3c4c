"""The one place that quotes: from argument lists to lines of POSIX shell, and the markers that come back."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Mapping, Sequence

BEGIN_MARKER, END_MARKER = "bascule-begin", "bascule-end"
_END_MARKS = ("BASCULE_END", *(f"{letter}_BASCULE_END" for letter in string.ascii_letters))
_END = re.compile(rb"\n?" + END_MARKER.encode() + rb" (\d+)\n?\Z")


def line(argv: Sequence[str]) -> str:
    """One safely quoted command line."""
    return shlex.join(argv)


def bounded(argv: Sequence[str], within: float) -> tuple[str, ...]:
    """The command, ended by the node itself after `within` seconds."""
    return ("timeout", "-k", "2", f"{within:g}", *argv)


def with_markers(argv: Sequence[str]) -> str:
    """A line for a login shell of any kind; its exit status comes back at the end of standard error.

    ssh says 255 both for "no connection" and for a command's own 255; the end marker tells them apart. Some login
    shells print before the command does; the begin marker tells where its output begins.
    """
    script = f"echo {BEGIN_MARKER}; {line(argv)}; printf '\\n{END_MARKER} %d\\n' $? >&2"
    return line(("sh", "-c", script))


def behind_begin_marker(stdout: bytes) -> bytes:
    """Standard output without what the login shell printed before."""
    before, marker, behind = stdout.partition(f"{BEGIN_MARKER}\n".encode())
    return behind if marker else before


def split_end_marker(stderr: bytes) -> tuple[bytes, int | None]:
    """Standard error without the marker, and the status it carried; None when it never came."""
    found = _END.search(stderr)
    if not found:
        return stderr, None
    return stderr[: found.start()], int(found.group(1))


def exports(env: Mapping[str, str]) -> str:
    """Lines that export these variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())


def here_document(path: str, text: str, folder: str = "") -> str:
    """Lines that write text to a file, whatever it contains; `folder` is a shell variable that holds the way to it.

    No line begins with the first letter of the end mark: behind such a beginning dash 0.5.12 loses a byte of a
    character that is no ASCII.
    """
    begun = {line[:1] for line in text.split("\n")}
    end = next((mark for mark in _END_MARKS if mark[0] not in begun), _END_MARKS[0])
    while end in text:
        end += "_"
    newline = "" if text.endswith("\n") else "\n"
    place = f'"${folder}"/{shlex.quote(path)}' if folder else shlex.quote(path)
    return f"cat > {place} <<'{end}'\n{text}{newline}{end}\n"
