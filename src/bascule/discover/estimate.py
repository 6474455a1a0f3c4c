"""How large a model is by its config.json alone (pure)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from bascule.core.nouns import Quantization
from bascule.discover.blocks import layer_count
from bascule.discover.config import Config
from bascule.discover.facts import format_of
from bascule.discover.numbers import Unsized
from bascule.discover.parts import Part, parts_of

_NUMBER = re.compile(r"\d+")
_WIDTHS = {"float32": 4, "float": 4, "float64": 8, "float8_e4m3fn": 1}  # bytes; everything else is 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """Parameters of the language model, of all with vision and what predicts more tokens, and bytes of all."""

    language: int
    parameters: int
    bytes: int


def estimate(config: Config) -> Estimate | None:
    """The size by shapes; None when they don't tell it."""
    try:
        parts = list(parts_of(config))
        size = sum(part.count * width_of(part, config) for part in parts)
    except Unsized:
        return None
    total = sum(part.count for part in parts)
    return Estimate(sum(part.count for part in parts if part.language), total, round(size)) if total else None


def plain_width(config: Config) -> int:
    """Bytes of one number that is not quantized."""
    return _WIDTHS.get(config.dtype, 2)


def width_of(part: Part, config: Config) -> float:
    """Bytes of one parameter of this part, in the mean of all layers."""
    plain = plain_width(config)
    quantization = config.quantization
    if quantization is None or part.kind == "kept":
        return plain
    if quantization.bits is None:
        raise Unsized("quantization_config says no bits", "quantization_config", str(quantization))
    kind = format_of(quantization.method, quantization.algorithm)
    scales = plain / math.prod(quantization.block) if quantization.block else (kind.scales if kind else 0.0)
    alone = _left_alone(part.kind, quantization, layer_count(config.text))
    return alone * plain + (1 - alone) * (quantization.bits / 8 + scales)


def _left_alone(kind: str, quantization: Quantization, layers: int) -> float:
    """The share of layers whose attention is among the modules that stay as they were; all of them in gpt-oss."""
    module = {"attention": "self_attn", "linear": "linear_attn"}.get(kind)
    names = [name for name in quantization.skipped if module and name.rstrip("*$.").endswith(module)]
    numbers = [_NUMBER.search(name) for name in names]
    if not all(numbers):
        return 1.0  # a pattern that names no layer is for all
    return min(1.0, len({match[0] for match in numbers if match}) / layers)
