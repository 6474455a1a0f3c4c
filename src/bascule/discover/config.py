"""What a config.json says of its model, wherever the file came from (pure)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bascule.core.nouns import Quantization
from bascule.discover.jsons import broken, json_object
from bascule.discover.quantization import parse_quantization

# Where models of several parts keep what their language model is: Qwen3.5, Gemma 3 (text_config), InternVL
# (llm_config), DeepSeek-VL2 (language_config), Qwen-Omni (thinker_config, with a text_config of its own).
PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder")
_NAME = re.compile(r"\w[\w.+-]{0,199}")
_REFERENCE = re.compile(r"(?:[\w.-]+/[\w.-]+--)?(\w[\w.]*)\.(\w+)")


@dataclass(frozen=True, slots=True)
class Config:
    """One config.json, checked; `text` is the part that is about the language model."""

    architectures: tuple[str, ...]
    model_type: str
    dtype: str = ""
    auto_map: tuple[str, ...] = ()  # module.Class, or owner/name--module.Class in another repository
    quantization: Quantization | None = None
    whole: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] = field(default_factory=dict)

    @property
    def modules(self) -> tuple[str, ...]:
        """The Python files that its auto_map wants beside config.json, as paths."""
        found = (_REFERENCE.fullmatch(one) for one in self.auto_map if "--" not in one)
        return tuple(dict.fromkeys(match[1].replace(".", "/") + ".py" for match in found if match))

    def remote_code(self, there: Collection[str] | None = None) -> tuple[str, ...]:
        """Classes that Python files of the model bring; `there`: the files it has, None when nobody looked."""
        found = ((one, _REFERENCE.fullmatch(one)) for one in self.auto_map)
        return tuple(
            dict.fromkeys(
                match[2]
                for one, match in found
                if match and (there is None or "--" in one or match[1].replace(".", "/") + ".py" in there)
            )
        )


def parse_config(place: str, raw: bytes, beside: bytes | None = None) -> Config:
    """The facts of a config.json at `place`; `beside` is its hf_quant_config.json. Raises ModelError."""
    whole = json_object(place, raw)
    parts = [whole, *_parts(place, whole)]
    architectures = next((names for part in parts if (names := _architectures(place, part))), ())
    if not architectures:
        raise broken(f"{place} names no architectures", whole.get("architectures"))
    return Config(
        architectures,
        _first_name(place, parts, "model_type"),
        _first_name(place, parts, "dtype", "torch_dtype").removeprefix("torch."),
        _auto_map(place, whole.get("auto_map")),
        _quantization(place, parts, beside),
        whole,
        next((part for part in reversed(parts) if "hidden_size" in part), whole),
    )


def _parts(place: str, whole: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The nested parts about the language model, outer ones first."""
    found: list[Mapping[str, Any]] = []
    for name in PARTS:
        part = whole.get(name)
        if part is None:
            continue
        if not isinstance(part, dict):
            raise broken(f"{place}: {name} is no object", part)
        inner = part.get("text_config")
        found += [part, *([inner] if isinstance(inner, dict) else [])]
    return found


def _architectures(place: str, part: Mapping[str, Any]) -> tuple[str, ...]:
    names = part.get("architectures")
    if names is None or names == []:
        return ()
    if not isinstance(names, list) or len(names) > 100 or not all(_is_name(name) for name in names):
        raise broken(f"{place} names no architectures", names)
    return tuple(names)


def _first_name(place: str, parts: list[Mapping[str, Any]], *keys: str) -> str:
    for part in parts:
        for key in keys:
            value = part.get(key)
            if value is None:
                continue
            if not isinstance(value, str) or (value and not _is_name(value)):
                raise broken(f"{place}: {key} is no name", value)
            if value:
                return value
    return ""


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _auto_map(place: str, given: object) -> tuple[str, ...]:
    """References to classes; tokenizers have two of them, slow and fast, and null for none."""
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise broken(f"{place}: auto_map is no object", given)
    values = [one for value in given.values() for one in (value if isinstance(value, list) else [value])]
    references = [value for value in values if value is not None]
    if len(references) > 100 or not all(isinstance(one, str) and _REFERENCE.fullmatch(one) for one in references):
        raise broken(f"{place}: auto_map leads to no classes", given)
    return tuple(dict.fromkeys(references))


def _quantization(place: str, parts: list[Mapping[str, Any]], beside: bytes | None) -> Quantization | None:
    for part in parts:
        for key in ("quantization_config", "compression_config"):
            if part.get(key) is not None:
                return parse_quantization(f"{place}: {key}", part[key])
    if beside is None:
        return None
    name = f"{place.removesuffix('config.json')}hf_quant_config.json"
    return parse_quantization(name, json_object(name, beside))
