"""The stages of a run bound to its nodes, its journal and its screen: what pivot.py has done, done for real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from bascule import settings
from bascule.core.cost import slowest
from bascule.core.layout import nodes_of
from bascule.core.nouns import Attempt, Candidate, Endpoint, Fate, Finding, LaunchPlan, Model, Node, RankState
from bascule.core.plain import setting_from_plain
from bascule.costs import Costs
from bascule.distribute import image
from bascule.distribute.bring import Delivery, bring
from bascule.distribute.images.pull import is_pullable
from bascule.engines.base import has_dummy_weights
from bascule.engines.catalogue import ENGINES
from bascule.fits import Fitness, fitness
from bascule.journal import Journal
from bascule.launch import start as ranks
from bascule.launch.baked import baked_notices
from bascule.launch.plan import Wanted, digest, place_of, plan_launch
from bascule.operate.following import looker, vigil_over
from bascule.pivot import Stage
from bascule.preflight.addresses import Proven, prove_addresses
from bascule.preflight.gather import facts_allow_it, preflight
from bascule.preflight.named import names_are_there
from bascule.probe.gather import probe
from bascule.probe.image import probe_image
from bascule.probe.targets import probe_registry
from bascule.remote.connect import Runners
from bascule.remote.tunnel import tunnel
from bascule.verify.run import verify, verify_shape
from bascule.watch.budgets import Facts
from bascule.watch.catalogue import Failure
from bascule.watch.follow import Follower, Rank, how_it_ended
from bascule.watch.stall import Judgement
from bascule.watch.vigil import Vigil


@dataclass
class Bound:
    """One run's stages; `generation` is RUN.START and stands in every rank's name and label."""

    run: int
    journal: Journal
    nodes: Mapping[str, Node]
    runners: Runners
    model: Model
    wanted: Wanted
    candidates: Sequence[Candidate]
    budget: int
    on_look: Callable[[Sequence[Rank]], None]
    note: Callable[..., None]
    starts: int = 0
    generation: str = ""
    plan: LaunchPlan | None = None
    follower: Follower | None = None
    foreseen: Mapping[Candidate, Finding] = field(default_factory=dict)  # by the probe, when candidates were found
    proven: dict[tuple[str, ...], Proven] = field(default_factory=dict)  # by the names of the nodes, in their order
    fits: dict[str, Fitness] = field(default_factory=dict)  # by the names of candidates

    @property
    def way(self) -> Sequence[Stage]:
        """The stages of one attempt."""
        return (self.preflight, self.distribute, self.launch, self.watch, self.verify)

    def nodes_of(self, candidate: Candidate) -> tuple[Node, ...]:
        """Where it runs, in rank order."""
        return nodes_of(candidate, list(self.nodes.values()))

    async def assess(self) -> list[Attempt]:
        """Probe all candidates at once, each on the first node that it would run on."""
        found = await asyncio.gather(*(self._probe(candidate) for candidate in self.candidates))
        for candidate, finding in zip(self.candidates, found, strict=True):
            self.note("probed", candidate=candidate, finding=finding)
        return [Attempt(*pair) for pair in zip(self.candidates, map(self._fitted, self.candidates, found), strict=True)]

    def _fitted(self, candidate: Candidate, finding: Finding) -> Finding:
        """What the probe found, or what its layout and the memory of its nodes say against it."""
        if finding.fate is Fate.HOPELESS:
            return finding
        nodes = self.nodes_of(candidate)
        proven = self.proven.get(tuple(node.name for node in nodes))
        fit = self.fits[candidate.name] = fitness(
            candidate, self.model, nodes, self.wanted.context, proven, finding.release
        )
        self.note("fitted", candidate=candidate, fitness=fit)
        return fit.refused or finding

    async def _probe(self, candidate: Candidate) -> Finding:
        if candidate in self.foreseen:
            return self.foreseen[candidate]
        nodes = self.nodes_of(candidate)
        if candidate.artefact.kind == "venv":
            runner = self.runners[nodes[0].name]
            return await probe(candidate, self.model, runner, nodes[0], lambda: datetime.now(UTC))
        able = [node for node in self.nodes.values() if node.facts.docker]
        held, _ = await image.holdings(candidate, able, self.runners)
        holder = next((node for node in able if held.get(node.name)), None)
        if holder is None and not settings.offline() and is_pullable(candidate.artefact.ref):
            return await probe_registry(candidate, self.model, nodes[0], lambda: datetime.now(UTC))
        holder = holder or nodes[0]
        return await probe_image(candidate, self.model, self.runners[holder.name], holder, lambda: datetime.now(UTC))

    async def adopt(self) -> Candidate | None:
        """Take over what runs under this service's name when it is exactly what would be started; else stop it."""
        found = await ranks.find(self.nodes.values(), self.runners, self.wanted.service)
        alive = [state for state in found if state.alive]
        if not alive:
            await ranks.clear(list(self.nodes.values()), self.runners, self.wanted.service)
            return None
        candidate = self._recognise(alive)
        if candidate is None:
            stopped = await ranks.stop(list(self.nodes.values()), self.runners, self.wanted.service)
            self.note("stopped", ranks=stopped, because="left by an earlier run, and not what this recipe starts")
            return None
        self.generation = alive[0].generation
        self.note("adopted", candidate=candidate, generation=self.generation, ranks=alive)
        return candidate

    def _recognise(self, alive: Sequence[RankState]) -> Candidate | None:
        """The candidate of these ranks, if they are one complete start of what the recipe says."""
        label = alive[0].label
        try:
            asked = next(one for one in self.candidates if one.name == label["candidate"])
            changes = tuple(setting_from_plain(raw) for raw in json.loads(label["changes"]))
            complete = len(alive) == int(label["ranks"])
        except (StopIteration, KeyError, ValueError, TypeError):
            return None
        candidate = replace(asked, changes=changes)
        self.plan = self.plan_of(candidate)
        same = digest(self.plan) == label.get("digest") and len({state.generation for state in alive}) == 1
        return candidate if complete and same else None

    async def preflight(self, candidate: Candidate) -> Finding:
        """Its nodes reach each other and have what its variables name, there is room, and its ports are free."""
        self.starts += 1
        self.generation = f"{self.run}.{self.starts}"
        self.plan = self.plan_of(candidate)
        nodes = self.nodes_of(candidate)
        trouble = await self.hindrance(candidate) or await self._no_room(candidate, nodes)
        return trouble or await preflight(nodes, self.runners, self._ports(candidate))

    async def hindrance(self, candidate: Candidate) -> Finding | None:
        """What is known against this start before anything is done; also a change that would cure it."""
        nodes, now = self.nodes_of(candidate), datetime.now(UTC)
        return await self._apart(nodes) or names_are_there(candidate, nodes, now) or facts_allow_it(nodes, now)

    async def _no_room(self, candidate: Candidate, nodes: Sequence[Node]) -> Finding | None:
        costs = self.costs()
        try:
            cost = await costs.of(candidate, nodes)
        finally:
            costs.access.close()
        return cost.refused if cost.no_room else None

    def costs(self) -> Costs:
        """Who asks what the nodes lack, at the rate that was measured between them."""
        proven = self.proven.get(tuple(self.nodes))
        return Costs(self.nodes, self.runners, slowest(proven.pairs) if proven else None)

    async def _apart(self, nodes: Sequence[Node]) -> Finding | None:
        """Why these nodes can't reach each other, or None; each set of nodes is tried once."""
        names = tuple(node.name for node in nodes)
        if names not in self.proven:
            self.proven[names] = await prove_addresses(nodes)
        return self.proven[names].findings[0] if self.proven[names].fails else None

    async def distribute(self, candidate: Candidate) -> Finding:
        """Every node of the candidate gets what it lacks of the artefact and the model."""
        everywhere = list(self.nodes.values())
        return await bring(Delivery(candidate, self.nodes_of(candidate), everywhere, self.runners, self.note))

    async def launch(self, candidate: Candidate) -> Finding:
        """Start all ranks."""
        for notice in await baked_notices(self._current, self.nodes, self.runners):
            self.note("notice", notice=notice)
        self.note("launch", generation=self.generation, ranks=self._current.ranks, endpoint=self._current.endpoint)
        return await ranks.start(self._current, self.generation, self.nodes, self.runners)

    async def watch(self, candidate: Candidate) -> Finding:
        """Follow all ranks until the engine says that it serves, or something is wrong."""
        self.follower = self._follow(candidate)
        names = [ranks.rank_name_of(self._current, self.generation, rank) for rank in self._current.ranks]
        self.follower.begin(names)
        vigil = self.follower.vigil = self._vigil(candidate, names)
        try:
            return await self.follower.until_ready()
        finally:
            await vigil.close()

    async def verify(self, candidate: Candidate) -> Finding:
        """Ask for right answers, while the ranks are still watched: a rank that dies ends it at once."""
        assert self.follower is not None
        asking = asyncio.ensure_future(self._ask())
        watching = asyncio.ensure_future(self.follower.until_death())
        try:
            await asyncio.wait((asking, watching), return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and asking.result().code != "completion-failed":
                return asking.result()
            await asyncio.wait((watching,), timeout=6)  # a failed request and a dying rank come together
            return watching.result() if watching.done() else asking.result()
        finally:
            for task in (asking, watching):
                task.cancel()
            await asyncio.gather(asking, watching, return_exceptions=True)

    async def _ask(self) -> Finding:
        candidate, head = self._current.candidate, self._current.ranks[0].node
        async with self.door() as endpoint:
            if has_dummy_weights(candidate, ENGINES[candidate.engine].lore):
                return await verify_shape(endpoint, head, context=self.wanted.context, folder=self._evidence())
            return await verify(
                endpoint,
                head,
                thinks=self.model.thinks,
                context=self.wanted.context,
                seed=self.run,
                folder=self._evidence(),
            )

    @asynccontextmanager
    async def door(self) -> AsyncIterator[Endpoint]:
        """The endpoint as it can be reached from here: straight on this machine, else through ssh to the head."""
        endpoint, head = self._current.endpoint, self.nodes[self._current.ranks[0].node]
        place = urlsplit(endpoint.url)
        async with tunnel(head, place.hostname or "", place.port or self.wanted.port) as socket:
            yield replace(endpoint, socket=socket)

    async def clear_away(self, candidate: Candidate) -> None:
        """Stop whatever this attempt started; the logs are in the evidence folder already."""
        stopped = await ranks.stop(list(self.nodes.values()), self.runners, self.wanted.service)
        await ranks.clear(list(self.nodes.values()), self.runners, self.wanted.service)
        if stopped:
            self.note("stopped", ranks=stopped, because="this attempt failed")

    @property
    def _current(self) -> LaunchPlan:
        assert self.plan is not None, "no candidate is being tried"
        return self.plan

    def plan_of(self, candidate: Candidate) -> LaunchPlan:
        """The exact words of every rank."""
        return plan_launch(candidate, list(self.nodes.values()), self.wanted)

    def _ports(self, candidate: Candidate) -> list[tuple[str, int]]:
        ports = [("port", urlsplit(self._current.endpoint.url).port or self.wanted.port)]
        return ports if len(candidate.nodes) == 1 else [*ports, ("rendezvous_port", self.wanted.rendezvous_port)]

    def _evidence(self) -> Path:
        folder = self.journal.evidence_dir(self.run) / self.generation
        folder.mkdir(exist_ok=True)
        return folder

    def _follow(self, candidate: Candidate) -> Follower:
        def on_phase(rank: Rank) -> None:
            self.note("phase", rank=rank.number, node=rank.node, phase=rank.progress.phase)

        def on_end(rank: Rank) -> None:
            self.note("rank-ended", rank=rank.number, node=rank.node, how=how_it_ended(rank))

        def on_verdict(judgement: Judgement) -> None:
            self.note("standing", verdict=judgement.verdict, rank=judgement.rank, says=judgement.says)

        def on_weakness(failure: Failure) -> None:
            remedies = [remedy.told({}) for remedy in failure.remedies]
            self.note("degraded", id=failure.id, cause=failure.cause, remedies=remedies)

        nodes = self.nodes_of(candidate)
        lore, folder = ENGINES[candidate.engine].lore, self._evidence()
        look_at = looker(self.runners, dict(self.nodes), candidate.artefact.kind)
        tellers = (on_phase, on_end, self.on_look, on_verdict, on_weakness)
        follower = Follower(lore, [place_of(node) for node in nodes], look_at, folder, *tellers)
        follower.lacks = frozenset.intersection(*(node.facts.lacks for node in nodes))
        return follower

    def _vigil(self, candidate: Candidate, names: Sequence[str]) -> Vigil:
        """What moves on the nodes of this start, beside its logs."""
        ranks = dict(zip(names, self._current.ranks, strict=True))
        share = self.model.bytes / len(ranks) if self.model.bytes else None
        facts = Facts(bytes_to_load=share)
        vigil = vigil_over(ranks, self.nodes, self.runners, candidate.artefact.kind, self._evidence(), facts)
        vigil.host_ip = ENGINES[candidate.engine].lore.host_ip
        return vigil
