"""The command `bascule diagnose`: names what a start failed of, from the plain logs of its ranks."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from io import BufferedIOBase, BufferedReader, FileIO
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from bascule.errors import RecipeError
from bascule.show.plain import out as print_out
from bascule.show.plain import print_json, say

if TYPE_CHECKING:
    from bascule.watch.judge import Diagnosis
    from bascule.watch.told import Told

BLOCK = 1 << 14  # bytes that are looked at together; also the longest line that is taken whole
HEAD_BLOCKS = 16  # in which it is looked whose log it is
QUOTED = 300  # characters of a line on the screen
_GZIP = b"\x1f\x8b"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

app = App(name="diagnose", help="Name what a start failed of, from the logs of its ranks.")

Json = Annotated[bool, Parameter(name="--json", negative="")]


@app.default
def diagnose(
    *files: Annotated[str, Parameter(allow_leading_hyphen=True)], engine: str | None = None, json: Json = False
) -> int:
    """Name what a start failed of, from the plain logs of its ranks: the first error that is no consequence.

    Of a log that just stops, the last line and what is known to stop there. What the catalogue does not know is called
    unknown; a start that came up is called healthy.

    Parameters
    ----------
    files
        One log a rank, the head's first; `-` is standard input. They may be gzipped.
    engine
        vllm, sglang, llamacpp or transformers; left out: told by the logs.
    json
        Print data for programs.
    """
    from bascule.watch.catalogue import engine_marks
    from bascule.watch.judge import judge

    if not files:
        raise RecipeError("usage", "no log is named", advice="bascule diagnose rank0.log rank1.log, or - for stdin")
    if engine is not None and engine not in engine_marks():
        raise RecipeError("usage", f"no engine is called {engine}", advice=f"one of {', '.join(engine_marks())}")
    diagnosis = judge(read(files, engine))
    if json:
        print_json(_row(diagnosis))
    else:
        print_out("\n".join(_story(diagnosis)))
    return 0


def read(files: Sequence[str], engine: str | None) -> list[Told]:
    """What each log tells, each read once and never kept whole. Raises RecipeError for one that can't be opened."""
    from bascule.engines.base import read_lore
    from bascule.watch.scan import Scan, guess_engine

    with ExitStack() as stack:
        streams = [_blocks(name, _opened(name, stack)) for name in files]
        heads = [list(islice(stream, HEAD_BLOCKS)) for stream in streams]
        guesses = [engine or guess_engine(line for block in head for line in block.split("\n")) for head in heads]
        common = next((guess for guess in guesses if guess), None)
        logs = []
        for name, guess, head, rest in zip(files, guesses, heads, streams, strict=True):
            own = guess or common
            scan = Scan(name, own, read_lore(own).phases if own else ())
            for block in chain(head, rest):
                scan.block(block)
            logs.append(scan.told())
        return logs


def _opened(name: str, stack: ExitStack) -> BufferedIOBase:
    try:
        raw = FileIO(0, closefd=False) if name == "-" else FileIO(name)
        file = stack.enter_context(BufferedReader(raw))
        if file.peek(2)[:2] == _GZIP:
            return stack.enter_context(gzip.GzipFile(fileobj=file))
    except OSError as trouble:
        raise RecipeError(
            "log-unread", f"{name} can't be read", seen=str(trouble), advice="name the log of a rank"
        ) from trouble
    return file


def _blocks(name: str, file: BufferedIOBase) -> Iterator[str]:
    """Whole lines of about BLOCK bytes, joined; of a line that is longer, its beginning."""
    rest, cut = b"", False
    while chunk := _more(name, file):
        whole, newline, chunk = chunk.rpartition(b"\n")
        if newline:
            first, _, others = whole.partition(b"\n") if cut else (rest + whole, b"", b"")
            yield (others if cut else first).decode(errors="replace")
            rest, cut = chunk, False
        elif not cut:
            rest += chunk
        if len(rest) > BLOCK:
            yield rest[:BLOCK].decode(errors="replace")
            rest, cut = b"", True
    if rest:
        yield rest.decode(errors="replace")


def _more(name: str, file: BufferedIOBase) -> bytes:
    try:
        return file.read(BLOCK)
    except (OSError, EOFError, zlib.error) as trouble:
        say(f"{name}: only its beginning could be read: {trouble}")
        return b""


def _row(diagnosis: Diagnosis) -> dict[str, Any]:
    primary = diagnosis.primary
    at = {"file": primary.file, "line": primary.line, "text": primary.text, "phase": primary.phase} if primary else None
    return {
        "primary": at,
        "failure": diagnosis.failure.id if diagnosis.failure else None,
        "class": diagnosis.kind,
        "cause": diagnosis.cause,
        "remedies": [
            {"kind": one.kind, "name": one.name, "value": one.value, "node": one.node, "do": one.told(diagnosis.groups)}
            for one in diagnosis.remedies
        ],
        "cascades": diagnosis.cascades,
    }


def _story(diagnosis: Diagnosis) -> Iterator[str]:
    name = f"  {diagnosis.failure.id}" if diagnosis.failure else ""
    yield f"{diagnosis.kind}{name}"
    if primary := diagnosis.primary:
        text = _CONTROL.sub("·", primary.text)
        yield f"  where  {primary.file}:{primary.line}, in `{primary.phase}`"
        yield f"  said   {text if len(text) <= QUOTED else text[: QUOTED - 1] + '…'}"
    yield f"  cause  {diagnosis.cause}"
    for number, remedy in enumerate(diagnosis.remedies, 1):
        yield f"  {'try' if number == 1 else '':<6} {number}. {remedy.told(diagnosis.groups)}"
    if diagnosis.cascades:
        yield f"  beside it {diagnosis.cascades} consequences, of which none was taken for the cause"
    for worse in diagnosis.degraded:
        yield f"  note   {worse.id}: {worse.cause}"
