"""The commands of `bascule catalog`: which releases of the engines know a model, by their wheels on an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from bascule.show.plain import out as print_out
from bascule.show.plain import print_json, say

if TYPE_CHECKING:
    from bascule.probe.catalogue import Counts
    from bascule.probe.census import Release
    from bascule.probe.facts import Known

app = App(name="catalog", help="Which releases of the engines know a model: look it up, or read it anew from an index.")

Json = Annotated[bool, Parameter(name="--json", negative="")]
INTERRUPTED = 130


@app.command
def show(name: str, *, json: Json = False) -> int:
    """Show which releases of which engines know an architecture or a model type.

    Parameters
    ----------
    name
        As config.json has it, e.g. LlamaForCausalLM, or llama.
    json
        Print data for programs.
    """
    from bascule.probe.facts import engines_on_record, known, looked_at, unread

    rows = [(engine, known(engine, name), looked_at(engine)) for engine in engines_on_record()]
    if json:
        print_json([_row(*row, unread(row[0])) for row in rows])
        return 0
    print_out(name)
    for engine, record, looked in rows:
        gaps = ", ".join(unread(engine))
        more = f"; {gaps} could not be read" if gaps else ""
        span = f"looked at {looked[0]} to {looked[-1]}" if looked else "no release was looked at"
        print_out(f"  {engine:<13} {_words(engine, record):<34} {span}{more}")
    return 0


@app.command
def build(
    *engines: str, since: str | None = None, out: Path | None = None, index: str | None = None, json: Json = False
) -> int:
    """Read the registries of all final releases from the wheels on the package index, and write the catalogue anew.

    Of each wheel only the files with the registry travel; what was read is kept under $XDG_CACHE_HOME/bascule. Engines
    that are not named keep what the file says of them. Interrupted, it leaves the file as it was.

    Parameters
    ----------
    engines
        Of these engines only: vllm, sglang, lmdeploy, transformers.
    since
        The oldest release to look at, for one engine; of older ones the file then says nothing.
    out
        The file; left out: the one that bascule itself reads.
    index
        A package index; left out: the one that pip is set up with.
    json
        Progress and results as JSON lines.
    """
    from bascule.interrupt import run
    from bascule.probe.catalogue import read_engines, sources_of
    from bascule.probe.catalogue_files import CATALOGUE, read_catalogue, write_catalogue

    sources = sources_of(engines, since)
    path = out or CATALOGUE
    before = read_catalogue(path)  # a file that can't be kept is told before the work
    read = run(read_engines(sources, index, _Report(json)), INTERRUPTED)
    if isinstance(read, int):
        return read
    write_catalogue(path, {**before, **read})
    print_json({"kind": "written", "path": str(path)}, lines=True) if json else print_out(f"wrote {path}")
    return 0


class _Report:
    """Tells progress on standard error, or as JSON lines on standard output."""

    def __init__(self, json: bool) -> None:
        self._json = json

    def release(self, engine: str, release: Release, size: int) -> None:
        """One wheel was read, or could not be."""
        if self._json:
            row = {"engine": engine, "release": release.version, "names": len(release.names), "unread": release.doubt}
            print_json({"kind": "release", **row, "bytes": size}, lines=True)
        else:
            doubt = f"  not to be read: {release.doubt}" if release.doubt else ""
            say(f"{engine} {release.version}  {len(release.names)} names  {size / 1e6:.2f} MB{doubt}")

    def engine(self, counts: Counts) -> None:
        """All of an engine was read."""
        if self._json:
            print_json({"kind": "engine", "counts": counts}, lines=True)
            return
        gaps = f", {len(counts.unread)} not to be read: {', '.join(counts.unread)}" if counts.unread else ""
        say(
            f"{counts.engine}: {counts.releases} releases, {counts.cached} of them read before{gaps}; "
            f"{counts.bytes / 1e6:.1f} MB in {counts.requests} requests, {counts.seconds:.0f} s"
        )

    def without(self, distribution: str, why: str) -> None:
        """A distribution beside the main one could not be listed."""
        say(f"{distribution}: {why}; going on without it")


def _row(engine: str, record: Known | None, looked: Sequence[str], gaps: Mapping[str, str]) -> Mapping[str, Any]:
    return {"engine": engine, "known": record, "looked_at": looked, "unread": gaps}


def _words(engine: str, record: Known | None) -> str:
    """Of transformers model types are on record too, of the others architectures alone."""
    if record is None:
        return "in none" if engine == "transformers" else "no architecture of this name"
    until = f"to {record.until}" if record.last else "and later"
    return f"{record.since} {until}" + (f", not {', '.join(record.missing)}" if record.missing else "")
