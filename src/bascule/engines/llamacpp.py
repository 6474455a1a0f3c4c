"""llama.cpp on one node: its own server out of the xllamacpp wheel, started by a short script in the run folder."""

from __future__ import annotations

from importlib import resources

from bascule.core.layout import Start
from bascule.core.nouns import Endpoint, RankPlan
from bascule.engines.base import Lore, environment, flags, python_of, read_lore

SCRIPT = "llamacpp_serve.py"


class LlamaCpp:
    """llama.cpp's HTTP server; the model is a GGUF file."""

    spans_nodes = False

    @property
    def lore(self) -> Lore:
        """See lore/llamacpp.toml."""
        return read_lore("llamacpp")

    def ranks(self, start: Start) -> tuple[RankPlan, ...]:
        """One rank on the head."""
        defaults: dict[str, str | None] = {
            "--model": start.candidate.model,
            "--host": start.head.address,
            "--port": str(start.port),
            "--alias": start.served_name,
            "--ctx": str(start.context) if start.context else None,
        }
        candidate, node = start.candidate, start.head.node
        argv = (python_of(start), SCRIPT, *flags(defaults, candidate.in_force, node))
        variables = environment({}, candidate.in_force, node)
        script = resources.files("bascule.engines").joinpath(f"lore/{SCRIPT}").read_text()
        return (RankPlan(0, node, argv, variables, {SCRIPT: script}, (candidate.model,)),)

    def endpoint(self, start: Start) -> Endpoint:
        """Its OpenAI-compatible API."""
        return Endpoint(f"http://{start.head.address}:{start.port}/v1", start.served_name, "/health")
