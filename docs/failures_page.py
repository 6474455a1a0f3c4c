"""The page of the catalogue of failures: every entry of src/bascule/watch/failures."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from bascule.watch.catalogue import Failure, failure

STAMP = "<!-- Written by docs/generate.py; change {} and run `make docs`. -->"


def failures_page(package: Path) -> str:
    """Every entry of the catalogue, by file: what is seen, why, what to try, where it is from."""
    parts = [
        "# The catalogue of failures\n",
        STAMP.format("src/bascule/watch/failures/") + "\n",
        "`bascule diagnose` and the watch of a start know these. A failure that is not here is called unknown, with\n"
        "its first error. A cascade is a consequence: it is never acted on. Proof: run = seen here, source = read in\n"
        "the source, thread = a report with its cure, thread-nofix = one without, knowledge = well known.\n",
    ]
    for path in sorted((package / "watch" / "failures").glob("*.toml")):
        text = path.read_text("utf-8")
        rows = tomllib.loads(text).get("failure", ())
        parts += [f"# {path.stem}\n"] if rows else []
        parts += [part for row in rows for part in _failure(failure(row))]
    return "\n".join(parts)


def _failure(one: Failure) -> Iterator[str]:
    where = " · ".join(
        part for part in (one.kind, one.phase, ", ".join(one.engines) or "any engine", one.versions) if part
    )
    yield f"## {one.id}\n"
    yield f"*{where}*\n"
    yield f"{_prose(one.cause)}{' Tell apart: ' + _prose(one.apart) + '.' if one.apart else ''}\n"
    yield f"```text\n{one.signature.pattern}\n```\n"
    if one.remedies:
        yield "\n".join(f"{place}. {_prose(remedy.told({}))}" for place, remedy in enumerate(one.remedies, 1)) + "\n"
    also = f" Also called {', '.join(one.also)}." if one.also else ""
    yield f"Source: {_prose(one.source)} ({one.proof}).{also}\n"


def _prose(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([<>*_\[\]])", r"\\\1", text)
