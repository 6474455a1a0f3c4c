"""A controller that tests can kill: copies a path from h1 to the named hosts."""

from __future__ import annotations

import asyncio
import json
import sys

from bascule.core.nouns import Node
from bascule.core.plain import to_plain
from bascule.distribute.weights.copy import copy_weights
from bascule.remote.connect import connect


async def main(path: str, *targets: str) -> None:
    nodes = {name: Node(name, name) for name in ("h1", *targets)}

    def tell(seen: object) -> None:
        sys.stdout.write(json.dumps(to_plain(seen)) + "\n")

    done = await copy_weights(path, nodes["h1"], [nodes[name] for name in targets], connect(nodes.values()), tell)
    sys.stdout.write(json.dumps(to_plain(done)) + "\n")


asyncio.run(main(*sys.argv[1:]))
