"""The copy for nodes without python3: `docker save` piped into `docker load` through the controller, whole."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bascule.core.nouns import Node
from bascule.distribute.images import content, inventory
from bascule.distribute.images.content import Receipt
from bascule.distribute.images.inventory import Inventory
from bascule.distribute.images.job import Job
from bascule.distribute.images.node.ingest import trouble_of
from bascule.distribute.images.plan import Step
from bascule.distribute.images.progress import Meter
from bascule.distribute.images.session import HelperTrouble
from bascule.errors import NodeUnreachable
from bascule.remote.channel import Channel, open_channel

LOST = 255  # exit status of ssh when the connection is lost


async def copy(job: Job, node: Node, known: Mapping[str, Inventory], step: Step) -> None:
    """One target; its outcome is noted in the job."""
    source, target = known[job.source.name], known[node.name]
    assert source.wanted is not None
    meter, began, sent = Meter(node.name), time.monotonic(), 0
    try:
        async with (
            open_channel(job.source, (*source.docker, "save", job.image)) as saving,
            open_channel(node, (*target.docker, "load", "--quiet")) as loading,
        ):
            while data := await saving.read():
                await loading.write(data)
                sent += len(data)
                job.tell(meter.look("copies", sent, max(sent, source.wanted.size), time.monotonic()))
            if await saving.status():
                raise await _failed(saving, "save-failed")
            loading.end_input()
            job.tell(meter.look("docker unpacks", sent, sent, time.monotonic()))
            if await loading.status():
                raise await _failed(loading, "docker-failed")
        found = (await inventory.take(job.runners[node.name], job.image)).wanted
    except HelperTrouble as trouble:
        job.fail(node.name, trouble.code, trouble.seen)
        return
    except NodeUnreachable as lost:
        job.fail(node.name, lost.code, lost.seen or lost.says)
        return
    odd = content.difference(source.wanted, found) if found else "docker does not have it after all"
    if odd or found is None:
        job.fail(node.name, "image-differs", odd)
    else:
        job.conclude(node.name, Receipt(found, sent, 0, time.monotonic() - began, "stream", step.reasons))


async def _failed(channel: Channel, code: str) -> HelperTrouble | NodeUnreachable:
    """What docker said last; ssh has 255 for a lost connection."""
    lost, status = await channel.lost(), await channel.status()
    if status == LOST:
        return lost
    named = trouble_of(channel.said, status)
    return HelperTrouble(named.code if named.code != "docker-failed" else code, named.seen)
