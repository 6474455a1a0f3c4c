"""The commands of `bascule copy`: an image or a model's files from one node to others."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

from cyclopts import App, Parameter

from bascule.errors import BasculeError, RecipeError
from bascule.show.plain import out, print_json, say, tell_error

app = App(name="copy", help="Copy an image or a model's files from one node to others; what is there is not sent.")

From = Annotated[str, Parameter(name="--from")]
To = Annotated[list[str], Parameter(name="--to", negative="")]
Json = Annotated[bool, Parameter(name="--json", negative="")]

FAILED, INTERRUPTED = 4, 130
TELL_EVERY = 5.0  # seconds between lines where there is no terminal


class Moving(Protocol):
    """How far the copy to one target is; bytes, bytes a second, seconds."""

    target: str
    phase: Any
    total: int
    rate: float

    @property
    def eta(self) -> float | None:
        """Seconds until the last byte, where that can be told."""
        ...


@app.command
def image(image: str, *, source: From, targets: To, json: Json = False) -> int:
    """Copy an image: only the layers that a target lacks travel, and targets pass them on.

    An interrupted copy goes on where it stopped. At the end the contents are compared, not the ids.
    Bytes go directly from node to node over the network that they share: authenticated by a one-time token and checked
    by their digests, but not encrypted. Nodes that can't reach each other get a tunnel through ssh.

    Parameters
    ----------
    image
        Its name on the source.
    source
        The node that has it, as an SSH destination, or name=…,host=…,address=…; `local` is this machine.
    targets
        The nodes that shall have it; repeat it, or put commas between.
    json
        Progress and results as JSON lines.
    """
    from bascule.distribute.images.copy import copy_image

    return _run(
        source, targets, json, lambda nodes, runners, report: copy_image(image, nodes[0], nodes[1:], runners, report)
    )


@app.command
def weights(
    path: str, *, source: From, targets: To, verify: Literal["auto", "full"] = "auto", json: Json = False
) -> int:
    """Copy a model's folder, or an entry of the Hugging Face cache, to the same path on other nodes.

    An interrupted copy goes on where it stopped; a folder becomes visible when it is whole and verified.

    Parameters
    ----------
    path
        The folder on the source.
    source
        The node that has it; see `bascule copy image`.
    targets
        The nodes that shall have it; repeat it, or put commas between.
    verify
        `full` hashes every byte; `auto` samples blocks of very large files and says so.
    json
        Progress and results as JSON lines.
    """
    from bascule.distribute.weights.copy import copy_weights

    def work(nodes: Any, runners: Any, report: Any) -> Any:
        return copy_weights(path, nodes[0], nodes[1:], runners, report, verify=verify)

    return _run(source, targets, json, work)


def _run(source: str, targets: Sequence[str], json: bool, work: Any) -> int:
    from bascule.interrupt import run
    from bascule.operate.services import reach
    from bascule.recipe.words import nodes_from_words

    words = [source, *(word for text in targets for word in _split(text))]
    nodes = nodes_from_words(words)
    report = _Report(json)

    async def copy() -> Mapping[str, Any]:
        there, runners, lost = await reach(nodes)
        if nodes[0].name not in {node.name for node in there}:
            raise lost[0]
        outcomes = dict(await work(there, runners, report)) if there[1:] else {}
        missing = [node for node in nodes if node.name not in {one.name for one in there}]
        return {**outcomes, **dict(zip([node.name for node in missing], lost, strict=False))}

    outcomes = run(copy(), INTERRUPTED)
    if isinstance(outcomes, int):
        return outcomes
    return _conclude(outcomes, json)


def _split(text: str) -> list[str]:
    """Targets with commas between, unless the text is `name=…,host=…`."""
    return [text] if "=" in text else [word for word in text.split(",") if word]


class _Report:
    """Tells progress: JSON lines, a line that moves on a terminal, or a line now and then."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._told: dict[str, float] = {}

    def __call__(self, progress: Moving) -> None:
        every = 0.5 if self._json or sys.stderr.isatty() else TELL_EVERY
        now = time.monotonic()
        if now - self._told.get(progress.target, 0.0) < every:
            return
        self._told[progress.target] = now
        if self._json:
            print_json({"kind": "progress", "progress": progress, "eta": progress.eta}, lines=True)
        else:
            say(_line(progress))


def _line(progress: Moving) -> str:
    done = int(getattr(progress, "done", getattr(progress, "bytes", 0)))
    share = f"{100 * done / progress.total:3.0f} %" if progress.total else "    "
    eta = f" · {progress.eta:.0f} s left" if progress.eta is not None else ""
    rate = f" · {progress.rate / 1e6:.1f} MB/s" if progress.rate else ""
    return (
        f"{progress.target}  {progress.phase}  {share}  {done / 1e6:,.1f} of {progress.total / 1e6:,.1f} MB{rate}{eta}"
    )


def _conclude(outcomes: Mapping[str, Any], json: bool) -> int:
    from bascule.core.nouns import Finding

    failed = {name: one for name, one in outcomes.items() if isinstance(one, Finding | BasculeError)}
    for name, one in outcomes.items():
        if json:
            print_json(
                {"kind": "failed" if name in failed else "done", "target": name, "outcome": _plain(one)}, lines=True
            )
        elif isinstance(one, Finding):
            tell_error(one.code, one.says, one.evidence[0].excerpt, one.advice)
        elif isinstance(one, BasculeError):
            tell_error(one.code, one.says, one.seen, one.advice)
        else:
            how = getattr(one, "verified", "") or getattr(one, "method", "")
            out(f"{name}  there  {one.sent / 1e6:,.1f} MB sent in {one.seconds:.1f} s  {how}".rstrip())
    if not outcomes:
        raise RecipeError("usage", "there is no target besides the source", advice="--to NODE")
    if not failed:
        return 0
    return max(one.exit_status if isinstance(one, BasculeError) else FAILED for one in failed.values())


def _plain(one: Any) -> Any:
    return {"code": one.code, "says": one.says, "seen": one.seen} if isinstance(one, BasculeError) else one
