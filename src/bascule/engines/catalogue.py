"""The engines that bascule knows, by name."""

from __future__ import annotations

from collections.abc import Mapping

from bascule.engines.base import Engine
from bascule.engines.llamacpp import LlamaCpp
from bascule.engines.sglang import Sglang
from bascule.engines.transformers_serve import TransformersServe
from bascule.engines.vllm import Vllm

ENGINES: Mapping[str, Engine] = {
    engine.lore.name: engine for engine in (Vllm(), Sglang(), LlamaCpp(), TransformersServe())
}
