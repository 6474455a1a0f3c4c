"""The copy through helpers: the source's serves each layer once, every target's passes on what it gets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from bascule.core.nouns import Node
from bascule.distribute.images import content, pipe, plan, troubles
from bascule.distribute.images.content import Content, Receipt
from bascule.distribute.images.inventory import Inventory
from bascule.distribute.images.job import Job
from bascule.distribute.images.progress import Meter
from bascule.distribute.images.session import HelperTrouble, Session, open_session
from bascule.distribute.images.tunnel import tunnel
from bascule.errors import NodeUnreachable

PROBE = 2 << 20  # bytes; the helper takes four times as many when they come too fast to tell
ALL_READY_WITHIN = 10.0  # seconds that targets wait for each other before they begin
MEASURED_BELOW = 300e6  # bytes a second; no packer is faster than such a link


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where a helper serves, as another one is told."""

    name: str
    host: str
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A target's helper that waits to begin."""

    upstream: Upstream  # where it serves
    source: Upstream  # how it reaches the source
    rate: float  # bytes a second from the source
    codecs: tuple[str, ...]
    cores: int


@dataclass
class Party:
    """Everyone who takes part in one try, and what the source offers."""

    job: Job
    nodes: Mapping[str, Node]
    known: Mapping[str, Inventory]
    steps: Mapping[str, plan.Step]
    session: Session  # the source's
    config: str = ""  # base64
    layers: tuple[plan.Layer | None, ...] = ()
    why: str = ""  # how the source reads its layers
    source: Upstream | None = None
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    ready: dict[str, asyncio.Future[Ready | None]] = field(default_factory=dict)
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    finished: set[str] = field(default_factory=set)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def blobs(self, name: str) -> list[tuple[str, int]]:
        """Digest and bytes of the layers that a target lacks."""
        found = (self.layers[index] for index in self.steps[name].missing)
        return list({layer.digest: layer.size for layer in found if layer}.items())

    def end(self, name: str) -> None:
        """Note that a target needs nobody any more."""
        self.finished.add(name)
        if self.finished >= set(self.steps):
            self.over.set()


async def copy(job: Job, nodes: Mapping[str, Node], known: Mapping[str, Inventory], steps: Sequence[plan.Step]) -> None:
    """All targets of these steps at once; each outcome is noted in the job."""
    if not steps:
        return
    taken = known[job.source.name]
    mode, why = plan.source_mode(taken, job.distrust)
    try:
        async with open_session(job.source, taken.root if mode != "save" else "") as session:
            party = Party(job, nodes, known, {step.target: step for step in steps}, session, why=why)
            await _offer(party, taken, mode)
            await asyncio.gather(*(_target(party, name) for name in tuple(party.steps)))
    except (HelperTrouble, NodeUnreachable) as trouble:
        for step in steps:
            if step.target not in job.outcomes or not isinstance(job.outcomes[step.target], Receipt):
                job.fail(step.target, *_words(trouble))


async def _offer(party: Party, taken: Inventory, mode: plan.Mode) -> None:
    """Make the source's blobs ready and serve them; targets without room for them drop out before a byte is sent."""
    steps = party.steps.values()
    pulls = any(step.method == "pull" for step in steps)
    wanted = set(range(_count(taken))) if pulls else {index for step in steps for index in step.missing}
    offer = await party.session.ask(
        "offer",
        mode=mode,
        image=taken.wanted.image_id if taken.wanted else "",
        wanted=sorted(wanted),
        root=taken.root_dir,
        docker=taken.docker,
        spool=taken.spool,
    )
    party.config = offer["config"]
    party.layers = tuple(plan.Layer(**layer) if layer else None for layer in offer["layers"])
    kept = {}
    for step in steps:
        sizes = [size for _, size in party.blobs(step.target)]
        if refusal := plan.lacks_room(step.target, party.known[step.target], step.method, sizes):
            party.job.conclude(step.target, troubles.of_refusal(refusal, step.target, datetime.now(UTC)))
        else:
            kept[step.target] = step
    party.steps = kept
    party.ready = {name: asyncio.get_running_loop().create_future() for name in kept}
    others = [party.known[name].links for name in kept]
    party.source = await _listen(party.session, party.job.source, taken, others, [])


def _count(taken: Inventory) -> int:
    return len(taken.wanted.diff_ids) if taken.wanted else 0


async def _listen(
    session: Session, node: Node, taken: Inventory, others: Sequence[Any], blobs: Sequence[tuple[str, int]]
) -> Upstream:
    """Let a helper serve on the address that suits the others."""
    link = plan.serving_link(taken.links, others, node.address)
    token, address = secrets.token_hex(16), link.ip if link else "127.0.0.1"
    answer = await session.ask("listen", address=address, token=token, blobs=blobs)
    return Upstream(node.name, address, answer["port"], token)


async def _target(party: Party, name: str) -> None:
    """One target from its helper's start to its end, which comes when no other target needs it any more."""
    node, ready = party.nodes[name], party.ready[name]
    try:
        async with open_session(node, "") as session, contextlib.AsyncExitStack() as stack:
            mine = await _get_ready(party, name, session, stack)
            ready.set_result(mine)
            everyone = await _everyone(party)
            party.job.conclude(name, await _receive(party, name, session, everyone))
            party.end(name)
            await party.over.wait()
    except (HelperTrouble, NodeUnreachable, TimeoutError) as trouble:
        if isinstance(trouble, NodeUnreachable) and trouble.code == "no-forwarding":
            why = f"{trouble.seen}: docker save is piped into docker load through the controller"
            await pipe.copy(party.job, node, party.known, replace(party.steps[name], method="stream", reasons=(why,)))
        elif not isinstance(party.job.outcomes.get(name), Receipt):
            party.job.fail(name, *await _explained(party, trouble))
    finally:
        if not ready.done():
            ready.set_result(None)
        party.end(name)


async def _everyone(party: Party) -> dict[str, Ready | None]:
    """Who is ready; nobody waits for long for one that is not."""
    await asyncio.wait(party.ready.values(), timeout=ALL_READY_WITHIN)
    return {each: ready.result() if ready.done() else None for each, ready in party.ready.items()}


async def _get_ready(party: Party, name: str, session: Session, stack: contextlib.AsyncExitStack) -> Ready:
    """Serve, and find out how the source is reached and how fast; one target measures at a time."""
    assert party.source is not None
    taken, node = party.known[name], party.nodes[name]
    others = [party.known[each].links for each in (*party.steps, party.job.source.name) if each != name]
    upstream = await _listen(session, node, taken, others, party.blobs(name))
    total = sum(size for _, size in party.blobs(name))
    size = max(1 << 16, min(PROBE, total // 256))
    async with party.probing:
        source = party.source
        try:
            rate = await _probe(session, source, size)
        except HelperTrouble:
            port = await stack.enter_async_context(tunnel(party.job.source, source.host, source.port, node))
            source = replace(source, host="127.0.0.1", port=port)
            try:
                rate = await _probe(session, source, size)
            except HelperTrouble as trouble:
                says = f"{name} reaches {source.name} neither directly nor through a forward of ssh"
                raise NodeUnreachable("no-forwarding", says, seen=trouble.seen) from trouble
        if rate < MEASURED_BELOW and not party.measured:
            party.measured = await party.session.ask("measure")
    return Ready(upstream, source, rate, session.codecs, session.cores)


async def _probe(session: Session, source: Upstream, size: int) -> float:
    return float(await session.ask("probe", upstream=[source.name, source.host, source.port, source.token], size=size))


async def _receive(party: Party, name: str, session: Session, everyone: Mapping[str, Ready | None]) -> Receipt:
    """Fetch, ingest, compare with the source, and only then give it its name."""
    job, step, taken = party.job, party.steps[name], party.known[name]
    upstreams, packing = _upstreams(party, name, everyone)
    meter, began = Meter(name), time.monotonic()
    session.on_progress = lambda at: job.tell(meter.look(at["phase"], at["done"], at["total"], time.monotonic()))
    got = await session.ask(
        "receive",
        spool=taken.spool,
        docker=taken.docker,
        config=party.config,
        layers=[
            {"digest": each.digest, "size": each.size, "media": each.media} if each else None for each in party.layers
        ],
        missing=step.missing,
        upstreams=upstreams,
        method=step.method,
        docker_checks=plan.docker_checks(step.method, taken),
        token=secrets.token_hex(16),
    )
    found = await _inspect(party, name, session, got["ref"])
    wanted = party.known[job.source.name].wanted
    assert wanted is not None
    if odd := content.difference(wanted, found) if found else "docker does not have it after all":
        await session.ask("abandon")
        if found and not found.diff_ids and name not in job.hollow:
            job.hollow.add(name)
            raise HelperTrouble("image-hollow", "containerd lists no layers: it has them only in packed form")
        raise HelperTrouble("image-differs", odd)
    assert found is not None
    await session.ask("finish", tag=content.name_of(job.image))
    reasons = (*step.reasons, party.why, packing)
    taken_s = time.monotonic() - began
    return Receipt(found, got["received"], got["resumed"], taken_s, step.method, reasons)


def _upstreams(party: Party, name: str, everyone: Mapping[str, Ready | None]) -> tuple[list[tuple[Any, ...]], str]:
    """Whom a target asks, in order, and with which compression; and why."""
    there = {each: ready for each, ready in everyone.items() if ready}
    sizes = {each: sum(size for _, size in party.blobs(each)) for each in there}
    order = plan.chain({each: ready.rate for each, ready in there.items()}, sizes)
    mine = there[name]
    found: list[tuple[Any, ...]] = []
    reasons = []
    for each, codecs, cores in (
        *((there[peer].upstream, there[peer].codecs, there[peer].cores) for peer in plan.above(order, name)),
        (mine.source, party.session.codecs, party.session.cores),
    ):
        both = [codec for codec in mine.codecs if codec in codecs]
        codec, why = plan.codec(mine.rate, party.measured, both, min(cores, mine.cores))
        rate = mine.rate if each is mine.source else 0.0
        found.append((each.name, each.host, each.port, each.token, codec, rate))
        reasons.append(f"from {each.name}: {why}")
    return found, reasons[0]


async def _inspect(party: Party, name: str, session: Session, ref: str) -> Content | None:
    """What docker says that it has now; a dockerd that is just restarting is waited for."""
    taken = party.known[name]
    words = (*taken.docker, "image", "inspect", "--format", "{{json .}}", ref)
    result = await party.job.runners[name].run(words)
    if not result.ok:
        await session.ask("wait")
        result = await party.job.runners[name].run(words)
    if not result.ok:
        return None
    return content.parse_content(json.loads(result.text), by_config=taken.store != "containerd")


async def _explained(party: Party, trouble: Exception) -> tuple[str, str]:
    """What a target saw, after a question to the source: is it the source's own layer that is wrong?"""
    code, seen = _words(trouble)
    if code == "layer-corrupt":
        with contextlib.suppress(HelperTrouble, NodeUnreachable):
            if not await party.session.ask("check", digest=seen.split()[0]):
                party.job.distrust = True
                return ("image-damaged" if "save" in party.why else "layer-corrupt"), seen
    return code, seen


def _words(trouble: Exception) -> tuple[str, str]:
    if isinstance(trouble, HelperTrouble):
        return trouble.code, trouble.seen
    if isinstance(trouble, NodeUnreachable):
        return "node-unreachable", trouble.seen or trouble.says
    return "copy-failed", str(trouble) or type(trouble).__name__
