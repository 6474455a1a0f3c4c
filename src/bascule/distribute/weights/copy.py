"""Copies a model from one node to others: the public door of weights distribution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from bascule.core.nouns import Finding, Node
from bascule.distribute.weights.delivery import Delivery
from bascule.distribute.weights.findings import finding
from bascule.distribute.weights.job import Job, Verify, list_source
from bascule.distribute.weights.plan import chain
from bascule.distribute.weights.progress import CopyProgress, Receipt
from bascule.distribute.weights.station import Refused, open_station
from bascule.remote.connect import Runners

Outcome = Receipt | Finding


async def copy_weights(
    path: str,
    source: Node,
    targets: Sequence[Node],
    runners: Runners,
    on_progress: Callable[[CopyProgress], None],
    *,
    verify: Verify = "auto",
) -> dict[str, Outcome]:
    """Bring a model's folder, file or cache entry to the targets; by each target's name a receipt or what went wrong.

    Targets pass on what they have, so that many cost about as much as one; one that fails does not stop the others.
    """
    async with AsyncExitStack() as stack:
        try:
            first = await stack.enter_async_context(open_station(source, path))
            job = await list_source(first, path, verify, on_progress)
        except Refused as refused:
            return {node.name: finding(refused.complaint) for node in targets}
        outcomes: dict[str, Outcome] = {}
        ready = await _prepare_all(job, targets, stack, outcomes)
        links = {name: station.links for name, station in job.stations.items()}
        job.order = chain(source.name, [each.name for each in ready if each.lacks_units], links)
        delivered = await asyncio.gather(*(_deliver(each) for each in ready))
        outcomes.update(zip((each.name for each in ready), delivered, strict=True))
        return {node.name: outcomes[node.name] for node in targets}


async def _prepare_all(
    job: Job, targets: Sequence[Node], stack: AsyncExitStack, outcomes: dict[str, Outcome]
) -> list[Delivery]:
    """A delivery for each target that can have one; what keeps the others from it goes to outcomes."""

    async def prepare(node: Node) -> Delivery | None:
        try:
            station = await stack.enter_async_context(open_station(node, job.path))
            delivery = Delivery(job, station)
            await delivery.prepare()
        except Refused as refused:
            outcomes[node.name] = finding(refused.complaint)
            return None
        job.stations[node.name] = station
        return delivery

    found = await asyncio.gather(*(prepare(node) for node in targets))
    return [delivery for delivery in found if delivery]


async def _deliver(delivery: Delivery) -> Outcome:
    """A target that failed lets go at once, so that those behind it look for another way."""
    outcome = await delivery.deliver()
    if isinstance(outcome, Finding):
        await delivery.station.leave()
    return outcome
