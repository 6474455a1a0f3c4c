"""What the image of a start bakes in that its plan does not let through, told before the start."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from bascule.core.notices import Notice
from bascule.core.nouns import LaunchPlan, Node
from bascule.engines.baked import baked, baked_notice
from bascule.launch.docker import inspect
from bascule.remote.connect import Runners


async def baked_notices(plan: LaunchPlan, nodes: Mapping[str, Node], runners: Runners) -> list[Notice]:
    """At most one notice, from the head's copy of the image; none for other artefacts, or where it can't be read."""
    artefact, head = plan.candidate.artefact, plan.ranks[0]
    if artefact.kind != "image":
        return []
    image = await inspect(runners[head.node], nodes[head.node], artefact.ref)
    found = baked(image.env, head.env) if image else ()
    return [baked_notice(artefact.ref, head.node, found, datetime.now(UTC))] if found else []
