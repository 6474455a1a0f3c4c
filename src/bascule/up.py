"""One `bascule up` from request to outcome: lock, nodes, model, candidates, the pivot loop, and the clean-up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from bascule.benchmark.quick import quick
from bascule.candidates.ask import ask_for
from bascule.candidates.found import Foreseen, found_candidates
from bascule.consent import Consent
from bascule.core.nouns import Attempt, Candidate, Fate, Model, Node, Serve, Step, Verdict
from bascule.discover.candidates import from_recipe, resolved
from bascule.discover.model import read_model
from bascule.errors import BasculeError, NodeTrouble, NodeUnreachable
from bascule.journal import Journal
from bascule.launch import start as ranks
from bascule.launch.plan import Wanted
from bascule.operate.lock import service_lock
from bascule.operate.memory import what_helped
from bascule.operate.services import reach
from bascule.pivot import pivot
from bascule.preflight.addresses import Proven, prove_addresses
from bascule.preflight.choose import with_addresses
from bascule.preflight.node_checks import node_checks
from bascule.preflight.telling import for_a_run
from bascule.recipe.schema import Recipe
from bascule.remote.connect import Runners
from bascule.request import Request
from bascule.stages import Bound
from bascule.verify.run import NOT_VERIFIED as UNVERIFIED
from bascule.watch.follow import Rank

# Exit status, see docs/commands.md.
SERVING, UNEXPECTED, ALL_FAILED, VERIFICATION_FAILED, NOT_VERIFIED, INTERRUPTED = 0, 1, 4, 5, 6, 130
DUMMY_TOKENS = 128  # of an answer that is timed and means nothing


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before the first start."""

    nodes: tuple[Node, ...]
    runners: Runners
    model: Model
    candidates: tuple[Candidate, ...]
    foreseen: Foreseen = field(default_factory=dict)  # what the probe said when they were found
    proven: Mapping[tuple[str, ...], Proven] = field(default_factory=dict)  # by the nodes that reached each other


async def up(
    request: Request, journal: Journal, on_look: Callable[[Sequence[Rank]], None], consent: Consent | None = None
) -> int:
    """Serve what was asked for; gives the exit status. What it started is stopped unless it serves.

    `consent` is asked before an image of somebody who is not known is taken; None: it is not taken.
    """
    recipe = request.recipe
    with service_lock(journal.folder / "locks", recipe.service, f"up {request.source}"):
        run = journal.begin(
            service=recipe.service,
            source=request.source,
            model=recipe.model,
            nodes=[node.model_dump() for node in recipe.nodes],
        )
        try:
            status = await _serve(request, journal, run, on_look, consent)
        except asyncio.CancelledError:
            journal.record(run, "run-ended", status=INTERRUPTED)
            raise
        except BasculeError as error:
            journal.record(run, "error", code=error.code, says=error.says, seen=error.seen, advice=error.advice)
            journal.record(run, "run-ended", status=error.exit_status)
            error.run = run
            raise
        except Exception:  # a bug: noted, told with its traceback
            journal.record(run, "run-ended", status=UNEXPECTED)
            raise
        journal.record(run, "run-ended", status=status)
        return status


async def look_around(
    request: Request, journal: Journal, note: Callable[..., None], consent: Consent | None = None
) -> Known:
    """Everything that can be known without starting anything. Raises NodeUnreachable, ModelError, RecipeError."""
    recipe = request.recipe
    reached, runners, unreachable = await reach([one.node() for one in recipe.nodes])
    if unreachable:
        raise _all_of(unreachable)
    note("nodes", nodes=reached)
    nodes, proven = await _with_addresses(reached, note)
    model = await _read_model(request, runners, nodes[0])
    note("model", model=model)
    candidates, foreseen = await _candidates(request, model, nodes, runners, note, consent)
    note("candidates", candidates=candidates, budget=recipe.budget)
    for notice in for_a_run(node_checks(nodes, {}, datetime.now(UTC)), candidates):
        note("notice", notice=notice)
    informed = tuple(with_what_helped(candidate, nodes, journal, note) for candidate in candidates)
    return Known(nodes, runners, model, informed, foreseen, {tuple(node.name for node in nodes): proven})


async def _with_addresses(nodes: Sequence[Node], note: Callable[..., None]) -> tuple[tuple[Node, ...], Proven]:
    """The nodes with the addresses that they will tell each other; a start on nodes that can't reach each other is
    refused by its preflight, which asks for this proof."""
    proven = await prove_addresses(nodes)
    note("addresses", proven=proven)
    return with_addresses(nodes, proven.plan) if proven.plan else tuple(nodes), proven


def with_what_helped(
    candidate: Candidate, nodes: Sequence[Node], journal: Journal, note: Callable[..., None]
) -> Candidate:
    """The candidate with the changes that it needed last time, so that it need not fail first."""
    helped = what_helped(journal, candidate, nodes)
    if helped is None:
        return candidate
    note("remembered", candidate=candidate, changes=[str(change) for change in helped.changes], since=helped.run)
    return replace(candidate, changes=helped.changes)


def wanted_of(recipe: Recipe) -> Wanted:
    """What the recipe says about the service itself."""
    served = recipe.served_name or recipe.service
    return Wanted(recipe.service, recipe.port, recipe.rendezvous_port, served, recipe.context)


def bind(
    known: Known,
    request: Request,
    journal: Journal,
    run: int,
    on_look: Callable[[Sequence[Rank]], None],
    note: Callable[..., None],
) -> Bound:
    """The stages of this request over what is known."""
    recipe = request.recipe
    return Bound(
        run=run,
        journal=journal,
        nodes={node.name: node for node in known.nodes},
        runners=known.runners,
        model=known.model,
        wanted=wanted_of(recipe),
        candidates=known.candidates,
        budget=recipe.budget,
        on_look=on_look,
        note=note,
        foreseen=known.foreseen,
        proven=dict(known.proven),
    )


async def _serve(
    request: Request,
    journal: Journal,
    run: int,
    on_look: Callable[[Sequence[Rank]], None],
    consent: Consent | None,
) -> int:
    def note(kind: str, **data: object) -> None:
        journal.record(run, kind, **data)

    known = await look_around(request, journal, note, consent)
    stages = bind(known, request, journal, run, on_look, note)
    try:
        verdict, attempts = await pivot(stages)
        return await _conclude(verdict, attempts, stages, note)
    except BaseException as reason:
        await asyncio.shield(_sweep(known, stages, note, reason))
        raise


async def _conclude(verdict: Verdict, attempts: Sequence[Attempt], stages: Bound, note: Callable[..., None]) -> int:
    if isinstance(verdict, Serve) and stages.plan:
        verified = attempts[-1].finding.code != UNVERIFIED
        more = {} if verified else {"most": DUMMY_TOKENS}
        async with stages.door() as endpoint:
            speed = await quick(endpoint, context=stages.wanted.context, **more)
        fit = stages.fits.get(verdict.candidate.name)
        note("speed", speed=speed, bound=fit.bound if fit else None)
        served = {"candidate": verdict.candidate, "endpoint": stages.plan.endpoint, "because": verdict.because}
        note("served", **served, verified=verified)
        return SERVING if verified else NOT_VERIFIED
    note("gave-up", because=verdict.because)
    fates = {attempt.finding.fate for attempt in attempts}
    answered_wrong = any(a.finding.step is Step.VERIFY and a.finding.fate is not Fate.OK for a in attempts)
    return VERIFICATION_FAILED if answered_wrong and Fate.CLUSTER not in fates else ALL_FAILED


async def _sweep(known: Known, stages: Bound, note: Callable[..., None], reason: BaseException) -> None:
    """Stop what this run started, node by node; a node that is gone doesn't keep the others from it."""
    stopped, left, service = [], [], stages.wanted.service
    for node in known.nodes if stages.starts else ():
        try:
            stopped += await ranks.stop([node], known.runners, service)
            await ranks.clear([node], known.runners, service)
        except (NodeUnreachable, NodeTrouble) as trouble:
            left.append(f"{node.name}: {trouble.says}")
    interrupted = isinstance(reason, asyncio.CancelledError)
    because = "interrupted" if interrupted else f"{type(reason).__name__}: {reason}"
    note("interrupted" if interrupted else "stopped", ranks=stopped, left=left, because=because)


async def _read_model(request: Request, runners: Runners, node: Node) -> Model:
    path = resolved(request.recipe.model, request.base)
    if path.endswith(".gguf"):
        return Model(path, (), "", thinks=True)
    return await read_model(path, runners[node.name], node)


async def _candidates(
    request: Request,
    model: Model,
    nodes: Sequence[Node],
    runners: Runners,
    note: Callable[..., None],
    consent: Consent | None,
) -> tuple[tuple[Candidate, ...], Foreseen]:
    """The recipe's; where it names none, what is on the nodes or in registries."""
    if request.recipe.candidates:
        return from_recipe(request.recipe, request.base, request.words), {}
    ask = replace(
        ask_for(model, nodes, runners, _asking(note)),
        recipe=request.recipe,
        base=request.base,
        words=request.words,
        environments=request.environments,
        trust=request.trust,
        search=request.search,
    )
    try:
        return await found_candidates(ask, request.recipe, note, consent)
    finally:
        ask.access.close()


def _asking(note: Callable[..., None]) -> Callable[[str], None]:
    """Registries are asked in threads, and the journal belongs to this one."""
    loop = asyncio.get_running_loop()

    def tell(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(lambda: note("asking", says=text))

    return tell


def _all_of(errors: Sequence[BasculeError]) -> BasculeError:
    """The first error, which also tells what the others said."""
    first = errors[0]
    more = [f"{error.says}: {error.seen}" for error in errors[1:]]
    first.seen = "\n".join([first.seen, *more])
    return first
