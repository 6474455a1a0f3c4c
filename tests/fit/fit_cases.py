"""Shapes of models like real ones, machines, and the engine starts that were recorded."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bascule.core.cache import Cache, cache_of
from bascule.core.fit import Engine, Room, as_kept
from bascule.core.nouns import Model
from bascule.core.parallel import Layout, stage_kinds
from bascule.core.shape import Shape
from bascule.discover.config import parse_config
from bascule.discover.hardware import engine_memory, gpu_model
from bascule.discover.model import read_config_file
from bascule.discover.rooms import imagined
from bascule.discover.shape import shape_of
from bascule.discover.weights import Weights
from discover.model_cases import DEEPSEEK, GLM_FLASH, GPT_OSS, LLAMA, QWEN35

ROOT = Path(__file__).parents[2]
ADDER = ROOT / "models/adder"
HERE = Path(__file__).parent
GIB = 1 << 30

FP8 = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.language_model.embed_tokens", "model.visual", "mtp"],
}
TALL = {**QWEN35["text_config"], "max_position_embeddings": 262144}
SMALL_TOWER = {**QWEN35["vision_config"], "depth": 2, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16}
TOWER = {**QWEN35["vision_config"], "num_heads": 16}
# What was started on two H200 (start 4), and what was refused (start 1): 27 blocks of 1152 under a name that the engine
# does not take for the whole tower.
QWEN_122B = {**QWEN35, "text_config": TALL, "vision_config": SMALL_TOWER, "quantization_config": FP8}
QWEN_122B_REFUSED = {**QWEN_122B, "vision_config": TOWER}
QWEN_35B = {  # what was started on one H200, and twice on two ranks of it
    **QWEN_122B,
    "text_config": {
        **TALL,
        "hidden_size": 2048,
        "linear_num_value_heads": 32,
        "moe_intermediate_size": 512,
        "num_attention_heads": 16,
        "num_hidden_layers": 40,
        "shared_expert_intermediate_size": 512,
    },
    "vision_config": {**SMALL_TOWER, "out_hidden_size": 2048},
}
LEAVES = [f"model.visual.blocks.{at}.attn.{leaf}" for at in range(27) for leaf in ("qkv", "proj")]
QWEN_122B_NAMED = {**QWEN_122B_REFUSED, "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head", *LEAVES]}}

LLAMA_70B = {
    **LLAMA,
    "torch_dtype": "bfloat16",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
GEMMA3_27B = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "dtype": "bfloat16",
    "head_dim": 128,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 62,
    "num_key_value_heads": 16,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
    "vocab_size": 262208,
}
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "dtype": "bfloat16",
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "head_dim": 128,
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "mamba_head_dim": 64,
    "mamba_num_heads": 64,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_groups": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "tie_word_embeddings": False,
    "vocab_size": 131072,
}
QWEN3_SMALL = {  # the 4 layers that SGLang was started with
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "head_dim": 64,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 4,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 248320,
}
DEEPSEEK_V3 = {**DEEPSEEK, "num_experts_per_tok": 8, "max_position_embeddings": 163840}
GLM = {**GLM_FLASH, "num_experts_per_tok": 4, "max_position_embeddings": 202752}
GPT_OSS_120B = {**GPT_OSS, "num_experts_per_tok": 4, "sliding_window": 128, "max_position_embeddings": 131072}
FAMILIES = {
    "qwen": QWEN_122B,
    "llama": LLAMA_70B,
    "gemma": GEMMA3_27B,
    "nemotron": NEMOTRON,
    "deepseek": DEEPSEEK_V3,
    "glm": GLM,
    "gpt-oss": GPT_OSS_120B,
}


def shape(config: Mapping[str, Any], weights: Weights | None = None) -> Shape:
    """The shape; fails when the configuration does not tell it."""
    found = shape_of(parse_config("m/config.json", json.dumps(config).encode()), weights or Weights(None, exact=False))
    assert isinstance(found, Shape), found
    return found


def adder() -> Model:
    """Our own model, by its config.json alone."""
    return read_config_file(ADDER / "config.json")


def engine(name: str = "vllm", version: str = "") -> Engine:
    """What is on record of an engine."""
    found = engine_memory(name, version)
    assert found is not None
    return found


def machines(gpu: str, nodes: int, each: int = 1) -> list[Room]:
    """Imagined ones."""
    model = gpu_model(gpu)
    assert model is not None
    return [imagined(f"n{number}", model, gpu, each) for number in range(nodes)]


def cache(of: Shape, layout: Layout, rules: Engine, *, cpu: bool = False, step: int = 8192) -> Cache:
    """The cache of a rank of the first stage."""
    of = as_kept(of, Room("n0", 1, None, kind="ram" if cpu else "vram"), rules)
    kinds = stage_kinds(of, Layout(), 0)
    used = replace(rules.cache, block=rules.cpu_block) if cpu else rules.cache
    own = of.mixers(stage_kinds(of, layout, 0))
    return cache_of(of.mixers(kinds), own, layout.tensor, of.number, step, used)


def starts() -> list[dict[str, Any]]:
    """What engines printed when they were started, see starts.toml."""
    return tomllib.loads((HERE / "starts.toml").read_text())["start"]
