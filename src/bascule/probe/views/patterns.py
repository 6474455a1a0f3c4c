"""Extended regular expressions of grep and globs of a shell, as Python's own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

CLASSES = {  # POSIX.1-2017, in the C locale
    b"alpha": b"A-Za-z",
    b"digit": b"0-9",
    b"alnum": b"A-Za-z0-9",
    b"upper": b"A-Z",
    b"lower": b"a-z",
    b"space": b" \t\n\r\f\v",
    b"blank": b" \t",
    b"xdigit": b"0-9A-Fa-f",
}
LINE, STRING = b"\n", b"\0"  # what ends a line of text, and a string in a binary file
_TOKEN = re.compile(
    rb"(?P<set>\[\^?\]?(?:\[:[a-z]+:\]|[^\]])*\])|(?P<escaped>\\[^A-Za-z0-9<>])|(?P<repeat>[*+?]|\{\d+(?:,\d*)?\})"
    rb"|(?P<edge>[\^$.])|(?P<group>[()|])|(?P<plain>[^\\\[])",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that is searched in many lines at once; where its needle is missing, nothing can match."""

    regex: re.Pattern[bytes]  # for a text that has the end of another line before it
    needle: bytes  # a part of every match; b"" = none is known
    skip: int = 0  # 1: the match begins with the end of the line before, by which Python finds it ten times faster


def pattern_of(text: str, end: bytes) -> Pattern:
    """An extended regular expression that never reaches over the end of a line, or of a string.

    Of several matches at one place Python takes the first alternative and grep the longest: anchor alternatives.
    Raises ValueError.
    """
    tokens: list[re.Match[bytes]] = []
    source, place = text.encode(), 0
    while place < len(source):
        token = _TOKEN.match(source, place)
        repeats = token is not None and token["repeat"] is not None
        if token is None or (repeats and (not tokens or tokens[-1]["repeat"] or tokens[-1][0] in (b"(", b"|", b"^"))):
            raise ValueError(f"{text!r} is no plain extended regular expression")
        tokens.append(token)
        place = token.end()
    needle, skip = _needle(tokens), 0
    if tokens and tokens[0][0] == b"^" and _alternatives(tokens) == 1:
        tokens, skip = tokens[1:], 1
    try:
        whole = re.escape(end) * skip + b"".join(_regex(token, end) for token in tokens)
        return Pattern(re.compile(whole), needle, skip)
    except re.error as trouble:
        raise ValueError(f"{text!r} is no regular expression: {trouble}") from trouble


def is_glob(path: str) -> bool:
    """Whether a shell would expand it."""
    return any(sign in path for sign in "*?[")


def glob_of(glob: str) -> re.Pattern[str]:
    """A glob, or one component of it: nothing in it crosses a slash, and a hidden name needs a dot of its own."""
    return re.compile("/".join(_component(part) for part in glob.split("/")) + r"\Z")


def _component(part: str) -> str:
    signs = {"*": "[^/]*", "?": "[^/]"}
    pieces = re.findall(r"\[[!^]?\]?[^\]]*\]|.", part, re.DOTALL)
    found = [re.sub(r"^\[!", "[^", piece) if len(piece) > 1 else signs.get(piece, re.escape(piece)) for piece in pieces]
    return ("(?!\\.)" if part[:1] in signs or part.startswith("[") else "") + "".join(found)


def _regex(token: re.Match[bytes], end: bytes) -> bytes:
    edge = re.escape(end)
    edges = {b"^": b"(?<=" + edge + b")", b"$": b"(?=" + edge + b"|\\Z)", b".": b"[^" + edge + b"]"}
    if token["edge"]:
        return edges[token[0]]
    if token["set"]:
        return _set(token[0], end)
    return token[0] if token["repeat"] or token["group"] else re.escape(token[0][-1:])


def _set(text: bytes, end: bytes) -> bytes:
    """A bracket expression, byte by byte: a backslash in it is one; it never holds the end of a line."""
    negated = text[1:2] == b"^"
    body = text[2:-1] if negated else text[1:-1]
    for name, members in CLASSES.items():
        body = body.replace(b"[:" + name + b":]", members)
    held: set[int] = set()
    while body:
        is_range = len(body) > 2 and body[1:2] == b"-"
        held |= set(range(body[0], body[2] + 1)) if is_range else {body[0]}
        body = body[3 if is_range else 1 :]
    codes = sorted((set(range(256)) - held if negated else held) - set(end))
    return b"[" + b"".join(b"\\x%02x" % code for code in codes) + b"]"


def _alternatives(tokens: Sequence[re.Match[bytes]]) -> int:
    """How many alternatives the whole pattern has, outside of groups."""
    depths = itertools.accumulate({b"(": 1, b")": -1}.get(token[0], 0) for token in tokens)
    return 1 + sum(token[0] == b"|" and depth == 0 for token, depth in zip(tokens, depths, strict=True))


def _needle(tokens: Sequence[re.Match[bytes]]) -> bytes:
    """The longest plain text that stands outside of groups, is not repeated and has no alternative."""
    if _alternatives(tokens) > 1:
        return b""
    depth, runs = 0, [b""]
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        depth += {b"(": 1, b")": -1}.get(token[0], 0)
        is_plain = (token["plain"] or token["escaped"]) and not (following and following["repeat"])
        if is_plain and depth == 0:
            runs[-1] += token[0][-1:]
        else:
            runs.append(b"")
    return max(runs, key=len)
