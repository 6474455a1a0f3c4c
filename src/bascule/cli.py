"""Every command: parse, call, show, exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from bascule import __version__
from bascule.catalog import app as catalog
from bascule.copying import app as copy
from bascule.diagnosing import app as diagnose
from bascule.doctoring import app as doctor
from bascule.errors import BasculeError, RecipeError
from bascule.fitting.commands import app as fit
from bascule.lab.commands import app as lab
from bascule.probing.commands import app as probe
from bascule.replaying import app as replay
from bascule.searching import app as search
from bascule.show.plain import JsonLines, out, print_json, say, tell_error
from bascule.watching import watch
from bascule.wishes import Wish

USAGE, INTERRUPTED = 2, 130

app = App(
    name="bascule",
    help="Serve one large language model over several machines, and show why it is served the way it is.",
    help_epilogue="Exit status: 0 serving or done · 1 unexpected · 2 usage or recipe · 3 a node unreachable · "
    "4 all candidates failed · 5 served but verification failed · 6 serving, with dummy weights: not verified · "
    "130 interrupted, after clean-up.",
    version=__version__,
    version_flags=["--version"],
    help_format="plaintext",
)

Json = Annotated[bool, Parameter(name="--json", negative="")]
Flag = Annotated[bool, Parameter(negative="")]
Wishes = Annotated[Wish | None, Parameter(name="*")]


def main() -> None:
    """The entry point: runs a command and exits with its status."""
    try:
        status = app(exit_on_error=False, print_error=False, result_action="return_value")
    except BasculeError as error:
        tell_error(error.code, error.says, error.seen, error.advice, f"bascule why {error.run}" if error.run else "")
        status = error.exit_status
    except CycloptsError as error:
        tell_error("usage", " ".join(str(error).split()), "", "bascule --help")
        status = USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


@app.command
def up(
    target: str,
    *engine_flags: str,
    wish: Wishes = None,
    json: Json = False,
) -> int:
    """Serve a model: try candidates over the nodes until one answers correctly.

    What runs already under this service's name is adopted when it is what the recipe says. Where only an image of
    somebody who is not known would do, it is asked for on a terminal, and refused elsewhere. Ctrl-C stops what this
    run started.

    Parameters
    ----------
    target
        A recipe (.yaml), or the folder of a model.
    engine_flags
        Flags for the engine, behind `--`.
    json
        Events as JSON lines on standard output; the last one has the exit status.
    """
    from bascule.consent import at_terminal
    from bascule.journal import Journal
    from bascule.request import read_request
    from bascule.show.screen import Screen
    from bascule.up import up as serve

    request = read_request(target, engine_flags, wish or Wish())
    journal = Journal()
    screen = JsonLines() if json else Screen()
    journal.listen(screen.event)
    try:
        return int(_interruptible(serve(request, journal, screen.look, None if json else at_terminal())))
    finally:
        screen.close()


@app.command
def plan(
    target: str,
    *engine_flags: str,
    wish: Wishes = None,
    json: Json = False,
) -> int:
    """Print what `up` would do and why: each candidate with fit, cost and the commands to paste; nothing is started.

    Parameters
    ----------
    target
        A recipe (.yaml), or the folder of a model.
    engine_flags
        Flags for the engine, behind `--`.
    json
        Print data for programs.
    """
    from bascule.journal import Journal
    from bascule.plan import plan as make
    from bascule.request import read_request
    from bascule.show.plan import plan_lines

    request = read_request(target, engine_flags, wish or Wish())
    planned = _interruptible(make(request, Journal(), say))
    if isinstance(planned, int):
        return planned
    print_json(planned.plain()) if json else out("\n".join(plan_lines(planned)))
    return 0


@app.command
def status(service: str | None = None, *, json: Json = False) -> int:
    """Show what runs of each service, as its nodes say it now.

    Parameters
    ----------
    service
        Only this one.
    json
        Print data for programs.
    """
    from bascule.journal import Journal
    from bascule.operate.services import known, named, status_of_all
    from bascule.show.tables import status_lines

    journal = Journal()
    services = [named(journal, service)] if service else known(journal)

    found = _interruptible(status_of_all(journal, services))
    if isinstance(found, int):
        return found
    print_json(found) if json else out("\n".join(status_lines(found)))
    return 3 if any(one.unreachable for one in found) else 0


@app.command
def logs(
    service: str | None = None,
    *,
    follow: Annotated[bool, Parameter(alias="-f", negative="")] = False,
    json: Json = False,
) -> int:
    """Print the logs of all ranks, each line with its node and rank.

    Parameters
    ----------
    service
        Which service; left out: the newest.
    follow
        Go on until the last rank has ended, or Ctrl-C.
    json
        One JSON object a line.
    """
    from bascule.journal import Journal
    from bascule.operate.logs import lines
    from bascule.operate.services import named

    async def print_all() -> int:
        count = 0
        async for line in lines(named(Journal(), service), follow=follow):
            count += 1
            if json:
                print_json(line, lines=True)
            else:
                out(f"{line.node} {line.rank} | {line.text}")
        if not count:
            say("no rank is there; the logs of starts that ended are kept: bascule why --evidence")
        return 0

    return int(_interruptible(print_all()))


@app.command
def why(run: int | None = None, *, evidence: Flag = False, archive: Path | None = None, json: Json = False) -> int:
    """Tell the story of a run: every candidate, verdict, evidence, change and time.

    Parameters
    ----------
    run
        The number of the run; left out: the newest.
    evidence
        Also list the files that were kept: logs, counters, stacks, sockets, raw answers.
    archive
        Pack them into this file (.tar.gz) for a bug report, with hosts, addresses, users and tokens masked.
    json
        Print all events for programs.
    """
    from bascule.journal import Journal
    from bascule.operate.report import evidence_files, find_run, pack_evidence
    from bascule.show.tables import story_lines

    journal = Journal()
    number = find_run(journal, run)
    events = journal.events(number)
    files = evidence_files(journal, number)
    if json:
        print_json({"run": number, "events": events, "evidence": [str(path) for path in files]})
        return 0
    out("\n".join(story_lines(events)))
    if evidence:
        out("\n".join(str(path) for path in files) or "no evidence files")
    if archive:
        out(f"packed into {pack_evidence(journal, number, archive)}")
    return 0


@app.command
def down(service: str | None = None, *, json: Json = False) -> int:
    """Stop a service on all its nodes, with everything its ranks started, and remove their run folders.

    Parameters
    ----------
    service
        Which service; left out: the newest.
    json
        Print data for programs.
    """
    from bascule.journal import Journal
    from bascule.operate.lock import service_lock
    from bascule.operate.services import down as stop
    from bascule.operate.services import named

    journal = Journal()
    one = named(journal, service)
    with service_lock(journal.folder / "locks", one.name, f"down {one.name}"):
        stopped = _interruptible(stop(journal, one))
    if isinstance(stopped, int):
        return stopped
    if json:
        print_json({"service": one.name, "stopped": stopped})
    else:
        ranks = ", ".join(f"rank {rank.rank} on {rank.node}" for rank in stopped)
        out(f"{one.name}: stopped {ranks}" if ranks else f"{one.name}: nothing was running")
    return 0


@app.command
def init(path: Annotated[Path, Parameter(allow_leading_hyphen=True)] = Path("bascule.yaml")) -> int:
    """Write the commented example recipe.

    Parameters
    ----------
    path
        Where to write it; an existing file is never overwritten. `-` is standard output.
    """
    from bascule.recipe.load import example

    if str(path) == "-":
        out(example().rstrip())
        return 0
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(example())
    except OSError as trouble:
        raise RecipeError("init", f"{path} was not written: {trouble.strerror}", advice="name another file") from None
    out(f"wrote {path}; edit it, then: bascule plan {path}")
    return 0


app.command(search)
app.command(fit)
app.command(probe)
app.command(copy)
app.command(watch)
app.command(diagnose)
app.command(doctor)
app.command(replay)
app.command(catalog)
app.command(lab)


def _interruptible(work: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end; the first Ctrl-C or TERM cancels, which cleans up; the second leaves at once."""
    from bascule.interrupt import run

    return run(work, INTERRUPTED)
