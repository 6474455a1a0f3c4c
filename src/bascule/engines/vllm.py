"""vLLM over several nodes by its own multi-node start: no Ray, one command line per node, rank 0 answers."""

from __future__ import annotations

from bascule.core.layout import Place, Start
from bascule.core.nouns import Endpoint, RankPlan
from bascule.engines.base import Lore, address_variables, environment, flags, python_of, read_lore


class Vllm:
    """`vllm serve`, with --nnodes and --node-rank when there is more than one node (vLLM >= 0.11)."""

    spans_nodes = True

    @property
    def lore(self) -> Lore:
        """See lore/vllm.toml."""
        return read_lore("vllm")

    def ranks(self, start: Start) -> tuple[RankPlan, ...]:
        """The head first; the others are headless."""
        return tuple(_rank(start, rank, place) for rank, place in enumerate(start.places))

    def endpoint(self, start: Start) -> Endpoint:
        """The head's OpenAI-compatible API."""
        return Endpoint(f"http://{start.head.address}:{start.port}/v1", start.served_name, "/health")


def _rank(start: Start, rank: int, place: Place) -> RankPlan:
    candidate = start.candidate
    words = flags({**_common(start), **_own(start, rank)}, candidate.in_force, place.node)
    argv = (python_of(start), "-m", "vllm.entrypoints.cli.main", "serve", candidate.model, *words)
    variables = environment(_variables(place), candidate.in_force, place.node)
    return RankPlan(rank, place.node, argv, variables, mounts=(candidate.model,))


def _common(start: Start) -> dict[str, str | None]:
    candidate = start.candidate
    return {
        "--served-model-name": start.served_name,
        "--tensor-parallel-size": str(candidate.tensor_parallel),
        "--pipeline-parallel-size": str(candidate.pipeline_parallel) if candidate.pipeline_parallel > 1 else None,
        "--max-model-len": str(start.context) if start.context else None,
    }


def _own(start: Start, rank: int) -> dict[str, str | None]:
    api: dict[str, str | None] = {"--host": start.head.address, "--port": str(start.port)}
    if len(start.places) == 1:
        return api
    group: dict[str, str | None] = {
        "--nnodes": str(len(start.places)),
        "--node-rank": str(rank),
        "--master-addr": start.head.address,
        "--master-port": str(start.rendezvous_port),
    }
    return {**group, **(api if rank == 0 else {"--headless": ""})}


def _variables(place: Place) -> dict[str, str | None]:
    """Addresses are told per node, never one value for all; HOST_IP is read by vLLM only to warn about it."""
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {**address_variables(place, "VLLM_HOST_IP", "HOST_IP"), **quiet}
