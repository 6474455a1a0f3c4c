"""`transformers serve` on one node: slow and simple, it knows what the installed transformers knows."""

from __future__ import annotations

from bascule.core.layout import Start
from bascule.core.nouns import Endpoint, RankPlan
from bascule.engines.base import Lore, environment, flags, python_of, read_lore


class TransformersServe:
    """The HTTP server that comes with transformers (>= 5); the model is named by its path."""

    spans_nodes = False

    @property
    def lore(self) -> Lore:
        """See lore/transformers.toml."""
        return read_lore("transformers")

    def ranks(self, start: Start) -> tuple[RankPlan, ...]:
        """One rank on the head."""
        defaults: dict[str, str | None] = {"--host": start.head.address, "--port": str(start.port)}
        settings, node = start.candidate.in_force, start.head.node
        words = flags(defaults, settings, node)
        argv = (python_of(start), "-m", "transformers.cli.transformers", "serve", start.candidate.model, *words)
        variables = environment({"HF_HUB_OFFLINE": "1"}, settings, node)
        model = start.candidate.model
        return (RankPlan(0, node, argv, variables, mounts=(model,)),)

    def endpoint(self, start: Start) -> Endpoint:
        """Its OpenAI-compatible API; the model's id is the path it was started with."""
        return Endpoint(f"http://{start.head.address}:{start.port}/v1", start.candidate.model, "/health")
