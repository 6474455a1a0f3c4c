"""SGLang over several nodes: one command line per node, and its message queue's address told from the start."""

from __future__ import annotations

from bascule.core.layout import Place, Start
from bascule.core.nouns import Endpoint, RankPlan
from bascule.engines.base import Lore, address_variables, environment, flags, python_of, read_lore


class Sglang:
    """`python -m sglang.launch_server`, with --nnodes and --node-rank when there is more than one node."""

    spans_nodes = True

    @property
    def lore(self) -> Lore:
        """See lore/sglang.toml."""
        return read_lore("sglang")

    def ranks(self, start: Start) -> tuple[RankPlan, ...]:
        """Every rank is the same server; only rank 0's API counts (the others answer /health with a dummy 200)."""
        return tuple(_rank(start, rank, place) for rank, place in enumerate(start.places))

    def endpoint(self, start: Start) -> Endpoint:
        """The head's OpenAI-compatible API."""
        return Endpoint(f"http://{start.head.address}:{start.port}/v1", start.served_name, "/health")


def _rank(start: Start, rank: int, place: Place) -> RankPlan:
    candidate = start.candidate
    defaults: dict[str, str | None] = {
        "--model-path": candidate.model,
        "--served-model-name": start.served_name,
        "--tp-size": str(candidate.tensor_parallel),
        "--pp-size": str(candidate.pipeline_parallel) if candidate.pipeline_parallel > 1 else None,
        "--context-length": str(start.context) if start.context else None,
        "--host": place.address,
        "--port": str(start.port),
        **(_group(start, rank) if len(start.places) > 1 else {}),
    }
    argv = (python_of(start), "-m", "sglang.launch_server", *flags(defaults, candidate.in_force, place.node))
    variables = environment(_variables(place), candidate.in_force, place.node)
    return RankPlan(rank, place.node, argv, variables, mounts=(candidate.model,))


def _group(start: Start, rank: int) -> dict[str, str | None]:
    return {
        "--nnodes": str(len(start.places)),
        "--node-rank": str(rank),
        "--dist-init-addr": f"{start.head.address}:{start.rendezvous_port}",
    }


def _variables(place: Place) -> dict[str, str | None]:
    """SGLANG_HOST_IP from the start: without it the message queue takes the address of the default route, and both
    ranks wait without end when the peer can't reach that one (sglang/srt/utils/network.py, 0.5.23)."""
    return {**address_variables(place, "SGLANG_HOST_IP", "HOST_IP"), "HF_HUB_OFFLINE": "1"}
