"""How a model is quantized, from the words of each of the tools that quantize (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bascule.core.nouns import Quantization
from bascule.discover.facts import format_of
from bascule.discover.jsons import broken, is_count

MAX_NAMES = 20_000  # modules that are left as they were; long lists of real models have some thousand

# What each tool calls the modules that it left alone: AutoAWQ, FP8 of DeepSeek and gpt-oss; compressed-tensors;
# ModelOpt; FP8 of vLLM; Quark; bitsandbytes.
_SKIPS = (
    "modules_to_not_convert",
    "ignore",
    "exclude_modules",
    "ignored_layers",
    "exclude",
    "llm_int8_skip_modules",
)


def parse_quantization(place: str, given: object) -> Quantization:
    """The facts of a quantization_config, a compression_config or an hf_quant_config.json. Raises ModelError."""
    if not isinstance(given, dict):
        raise broken(f"{place} is no object", given)
    # ModelOpt before 0.31 wrote {"producer": {"name": "modelopt"}, "quantization": {…}}.
    inner = given.get("quantization")
    words: Mapping[str, Any] = {**given, **inner} if isinstance(inner, dict) else given
    method = _method(place, words)
    algorithm = _text(place, words, "quant_algo")
    if not algorithm and method == "compressed-tensors":
        algorithm = _text(place, words, "format")
    kind = format_of(method, algorithm)
    groups = list(_groups(place, words))
    bits = _bits(place, words, groups)
    if bits is None and not groups and kind:
        bits = kind.bits
    return Quantization(method, algorithm, bits, _block(place, words, groups), tuple(_skipped(place, words)))


def _method(place: str, words: Mapping[str, Any]) -> str:
    """quant_method, or what must be meant where an older tool left it out."""
    method = _text(place, words, "quant_method").lower().replace("compressed_tensors", "compressed-tensors")
    if method:
        return method
    producer = words.get("producer")
    if "quant_algo" in words or (isinstance(producer, dict) and producer.get("name") == "modelopt"):
        return "modelopt"
    if "config_groups" in words:
        return "compressed-tensors"
    if words.get("load_in_4bit") is True or words.get("load_in_8bit") is True:
        return "bitsandbytes"
    raise broken(f"{place} names no quant_method", sorted(words)[:20])


def _text(place: str, words: Mapping[str, Any], key: str) -> str:
    value = words.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isprintable() or len(value) > 100:
        raise broken(f"{place}: {key} is no name", value)
    return value


def _groups(place: str, words: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """How each group of compressed-tensors stores its weights."""
    groups = words.get("config_groups")
    if groups is None:
        return
    if not isinstance(groups, dict):
        raise broken(f"{place}: config_groups is no object", groups)
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, dict) else group
        if isinstance(weights, dict):
            yield weights
        elif weights is not None:
            raise broken(f"{place}: group {name[:80]!r} says nothing of its weights", group)


def _bits(place: str, words: Mapping[str, Any], groups: list[Mapping[str, Any]]) -> int | None:
    """Bits of one weight; None where nothing says it, or groups differ."""
    for key in ("bits", "w_bit"):
        if words.get(key) is not None:
            return _one_width(place, key, words[key])
    if words.get("load_in_4bit") is True or words.get("load_in_8bit") is True:
        return 4 if words.get("load_in_4bit") is True else 8
    widths = {_one_width(place, "num_bits", group["num_bits"]) for group in groups if group.get("num_bits") is not None}
    return widths.pop() if len(widths) == 1 else None


def _one_width(place: str, key: str, value: object) -> int:
    if not is_count(value, 64) or not isinstance(value, int) or value == 0:
        raise broken(f"{place}: {key} is no number of bits", value)
    return value


def _block(place: str, words: Mapping[str, Any], groups: list[Mapping[str, Any]]) -> tuple[int, ...]:
    """Rows and columns that share a scale."""
    block = words.get("weight_block_size")
    if block is None:
        shapes = [group["block_structure"] for group in groups if group.get("block_structure") is not None]
        block = shapes[0] if len(shapes) == 1 else None
    if block is None:
        return ()
    if not isinstance(block, list) or len(block) > 4 or not all(is_count(side, 2**20) and side for side in block):
        raise broken(f"{place}: weight_block_size is no shape", block)
    return tuple(block)


def _skipped(place: str, words: Mapping[str, Any]) -> Iterator[str]:
    """Modules that are left as they were, in every tool's words."""
    for key in _SKIPS:
        names = words.get(key)
        if names is None:
            continue
        if not isinstance(names, list) or len(names) > MAX_NAMES or not all(map(_is_module, names)):
            raise broken(f"{place}: {key} is no list of modules", names)
        yield from names
    dynamic = words.get("dynamic")  # of GPTQModel: "-:pattern" leaves modules alone
    if isinstance(dynamic, dict):
        yield from (key[2:] for key in list(dynamic)[:MAX_NAMES] if key.startswith("-:") and _is_module(key))


def _is_module(name: object) -> bool:
    return isinstance(name, str) and len(name) <= 1000 and name.isprintable()
