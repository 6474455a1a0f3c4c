"""One reader per engine: where it keeps what it knows, release by release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bascule.probe.packages import Package
from bascule.probe.readers import llamacpp, sglang, transformers, vllm
from bascule.probe.verdict import Opinion, Question
from bascule.probe.views import View


@dataclass(frozen=True, slots=True)
class Reader:
    """How one engine is read."""

    title: str  # as sentences name it
    folder: str  # its package
    look: Callable[[View, Question, Package | None], Awaitable[Opinion]]


READERS: Mapping[str, Reader] = {
    "vllm": Reader("vLLM", "vllm", vllm.look),
    "sglang": Reader("SGLang", "sglang", sglang.look),
    "llamacpp": Reader("llama.cpp", "xllamacpp", llamacpp.look),
    "transformers": Reader("transformers", "transformers", transformers.look),
}
