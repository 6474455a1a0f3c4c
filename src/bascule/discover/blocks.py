"""What the layers of a model are made of, by its config.json: attention, feed-forward blocks, experts (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bascule.discover.config import Config
from bascule.discover.facts import estimate_fact
from bascule.discover.numbers import Shapes, Unsized

MOST_LAYERS = 10_000
_BLOCKS: Mapping[str, str] = {  # names of one thing in different families
    "mamba": "mamba",
    "linear_attention": "linear_attention",
    "attention": "full_attention",
    "full_attention": "full_attention",
    "sliding_attention": "sliding_attention",
    "chunked_attention": "chunked_attention",
    "mlp": "mlp",
    "moe": "moe",
}
_LETTERS: Mapping[str, str] = {"M": "mamba", "*": "full_attention", "-": "mlp", "E": "moe"}  # of Nemotron-H


def check_known(config: Config) -> None:
    """Raises Unsized for models with layers or towers that are not counted here."""
    listed = estimate_fact("listed_keys") if _lists_blocks(config.text) else frozenset()
    if unknown := (estimate_fact("unknown_keys") - listed).intersection((*config.text, *config.whole)):
        key = min(unknown)
        raise Unsized(f"what {key} describes is not counted", key)
    types = {config.model_type, str(config.text.get("model_type"))}
    if unknown := estimate_fact("unknown_types").intersection(types):
        raise Unsized(f"models of type {min(unknown)} are not counted", "model_type", min(unknown))


def layer_count(text: Mapping[str, Any]) -> int:
    """Layers of the language model; a list of them counts where nothing else does."""
    kinds = text.get("layers_block_type")
    pattern = text.get("hybrid_override_pattern")
    listed = next((len(one) for one in (kinds, pattern) if isinstance(one, list | str) and one), None)
    layers = Shapes(text).maybe("num_hidden_layers", "n_layer") if listed is None else listed
    if layers is None:
        raise Unsized("no num_hidden_layers", "num_hidden_layers")
    if not 0 < layers <= MOST_LAYERS:
        raise Unsized("num_hidden_layers is no count", "num_hidden_layers", layers)
    return layers


def blocks_of(text: Mapping[str, Any], layers: int) -> list[tuple[str, ...]]:
    """What each layer is made of: a kind of attention and what follows it; in Nemotron-H just one of them."""
    listed = _listed_blocks(text)
    if listed is not None:
        return [(block,) for block in listed]
    kinds, sparse = layer_types(text, layers), _sparse(text, layers)
    return [(kind, "moe" if routed else "mlp") for kind, routed in zip(kinds, sparse, strict=True)]


def layer_types(text: Mapping[str, Any], layers: int) -> list[str]:
    """The kind of attention in each layer."""
    kinds = text.get("layer_types")
    if kinds is None:
        every = Shapes(text).maybe("full_attention_interval")
        if "linear_num_key_heads" not in text or not every:
            return ["full_attention"] * layers
        return ["linear_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    known = ("full_attention", "linear_attention", "sliding_attention", "chunked_attention")
    if not isinstance(kinds, list) or len(kinds) < layers or not all(kind in known for kind in kinds[:layers]):
        raise Unsized("layer_types", "layer_types", kinds)
    return kinds[:layers]


def expert_count(text: Mapping[str, Any]) -> int:
    """Routed experts in a layer that has some."""
    return Shapes(text).zero("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


def _lists_blocks(text: Mapping[str, Any]) -> bool:
    return str(text.get("model_type")) in estimate_fact("one_block_layers")


def _listed_blocks(text: Mapping[str, Any]) -> list[str] | None:
    """One block a layer, as Nemotron-H lists them; None for everything else."""
    if not _lists_blocks(text):
        return None
    given = text.get("layers_block_type") or text.get("hybrid_override_pattern")
    names: object = [_LETTERS.get(letter) for letter in given] if isinstance(given, str) else given
    if not isinstance(names, list):
        raise Unsized("layers_block_type", "layers_block_type", given)
    found = [_BLOCKS.get(name, "") if isinstance(name, str) else "" for name in names]
    found = ["mamba" if name == "linear_attention" else name for name in found]  # transformers 5 calls Mamba-2 so
    if not found or not all(found):
        raise Unsized("layers_block_type", "layers_block_type", given)
    return found


def _sparse(text: Mapping[str, Any], layers: int) -> list[bool]:
    """Which layers have experts."""
    shapes = Shapes(text)
    if not expert_count(text):
        return [False] * layers
    for key, sign in (("mlp_layer_types", "sparse"), ("moe_layer_freq", 1)):
        if isinstance(text.get(key), list):
            return [kind == sign for kind in [*text[key], *[sign] * layers][:layers]]
    every = shapes.maybe("decoder_sparse_step", "moe_layer_freq") or 1
    first = shapes.zero("first_k_dense_replace")
    given = text.get("mlp_only_layers")
    plain = {layer for layer in given if isinstance(layer, int)} if isinstance(given, list) else set()
    offset = 1 if "decoder_sparse_step" in text else 0
    return [layer >= first and layer not in plain and (layer + offset) % every == 0 for layer in range(layers)]
