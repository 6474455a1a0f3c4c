#!/usr/bin/env python3
"""Write a model without weights: config.json in real dimensions, a tokenizer of single bytes, a chat template.

usage: make_dummy.py FOLDER 122b|35b|qwen3 [--layers N] [--vision small|released]

122b and 35b are Qwen3.5-MoE in FP8 blocks of 128 × 128; qwen3 is a small dense Qwen3 in bfloat16. With
`load_format: dummy` an engine starts them as it would start the real ones, and answers nonsense. Needs no package.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BLOCK = 128  # rows and columns of FP8 weights that share a scale
VOCABULARY = 248320
MARKS = 248044  # id of the first mark of the chat format
THINKING = 248068
VISION_IDS = {"vision_start": 248053, "vision_end": 248054, "image": 248056, "video": 248057}
TURNS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 3072,
    "hidden_act": "silu", "max_position_embeddings": 8192, "max_window_layers": 4, "rms_norm_eps": 1e-6,
    "rope_theta": 1e6, "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False,
    "attention_dropout": 0.0, "use_sliding_window": False, "sliding_window": None, "dtype": "bfloat16",
    "torch_dtype": "bfloat16", "vocab_size": VOCABULARY, "eos_token_id": MARKS + 2, "use_cache": True,
    "initializer_range": 0.02,
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Write the folder."""
    sizes = tomllib.loads(Path(__file__).with_name("dummy_sizes.toml").read_text())
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("size", choices=[*(name for name in sizes if name != "source"), "qwen3"])
    parser.add_argument("--layers", type=int, help="instead of all; a multiple of 4")
    parser.add_argument("--vision", choices=("small", "released"), default="small", help=vision.__doc__)
    options = parser.parse_args(words)
    if options.size == "qwen3":
        config = QWEN3 | ({"num_hidden_layers": options.layers} if options.layers else {})
    else:
        text = sizes[options.size] | ({"num_hidden_layers": options.layers} if options.layers else {})
        config = qwen3_5_moe(text, options.vision)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", config),
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", tokenizer_config()),
        ("generation_config.json", {"eos_token_id": MARKS + 2}),
        *(processors() if "vision_config" in config else {}).items(),
    ):
        (options.folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return 0


def qwen3_5_moe(dimensions: dict[str, int], tower: str) -> dict[str, Any]:
    """A Qwen3.5-MoE: three layers of gated delta net, then one of attention, each with 256 experts."""
    layers = dimensions["num_hidden_layers"]
    kinds = ["full_attention" if number % 4 == 3 else "linear_attention" for number in range(layers)]
    text = {
        "model_type": "qwen3_5_moe_text", "layer_types": kinds, "full_attention_interval": 4, "head_dim": 256,
        "attn_output_gate": True, "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32", "num_experts": 256, "num_experts_per_tok": 8, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
        "router_aux_loss_coef": 0.001, "output_router_logits": False, "use_cache": True, "vocab_size": VOCABULARY,
        "dtype": "bfloat16", "tie_word_embeddings": False, "eos_token_id": MARKS + 2, "partial_rotary_factor": 0.25,
        "initializer_range": 0.02,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
        },
        **dimensions,
    }  # fmt: skip
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": text,
        "vision_config": vision(tower, dimensions["hidden_size"]),
        **{f"{name}_token_id": number for name, number in VISION_IDS.items()},
        "tie_word_embeddings": False,
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [BLOCK, BLOCK],
            "modules_to_not_convert": kept(layers, tower),
        },
    }


def vision(tower: str, out: int) -> dict[str, Any]:
    """The tower as released, 27 × 1152, in FP8: over two ranks its blocks don't divide. Or a small one that does."""
    width, inner, depth = (1152, 4304, 27) if tower == "released" else (8 * BLOCK, 32 * BLOCK, 2)
    return {
        "model_type": "qwen3_5_moe", "depth": depth, "hidden_size": width, "intermediate_size": inner,
        "num_heads": 16, "hidden_act": "gelu_pytorch_tanh", "in_channels": 3, "initializer_range": 0.02,
        "num_position_embeddings": 2304, "out_hidden_size": out, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2, "deepstack_visual_indexes": [],
    }  # fmt: skip


def processors() -> dict[str, dict[str, Any]]:
    """How pictures and films are cut; SGLang asks for it also where only text is served."""
    cut = {
        "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "processor_class": "Qwen3VLProcessor",
    }  # fmt: skip
    picture = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "size": {"shortest_edge": 65536, "longest_edge": 16777216},
    }
    film = {"video_processor_type": "Qwen3VLVideoProcessor", "size": {"shortest_edge": 4096, "longest_edge": 25165824}}
    return {"preprocessor_config.json": cut | picture, "video_preprocessor_config.json": cut | film}


def kept(layers: int, tower: str) -> list[str]:
    """The modules that are not in FP8."""
    modules = ["lm_head", "model.language_model.embed_tokens", "mtp"]
    modules += ["model.visual"] if tower == "small" else []
    for layer in (f"model.language_model.layers.{number}" for number in range(layers)):
        modules += [f"{layer}.mlp.{name}" for name in ("gate", "shared_expert_gate")]
        modules += [f"{layer}.linear_attn.{name}" for name in ("in_proj_a", "in_proj_b", "conv1d")]
    return modules


def tokenizer() -> dict[str, Any]:
    """One token for each byte, the marks of the chat format at their ids, and words that nobody says at all others."""
    marks = [(MARKS + number, mark, True) for number, mark in enumerate(TURNS)]
    marks += [(THINKING + number, mark, False) for number, mark in enumerate(("<think>", "</think>"))]
    words = [*alphabet(), *(f"<unused{number}>" for number in range(256, VOCABULARY))]
    for number, mark, _ in marks:
        words[number] = mark
    vocabulary = {word: number for number, word in enumerate(words)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": at, "content": mark, **flags, "special": special} for at, mark, special in marks],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocabulary, "merges": [],
        },
    }  # fmt: skip


def alphabet() -> list[str]:
    """The letter that stands for each byte, as GPT-2 chose them: itself where it can be printed, else one above 255."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    letters = {byte: chr(byte) for byte in printed} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def tokenizer_config() -> dict[str, Any]:
    """How transformers loads it."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURNS[2],
        "pad_token": TURNS[0],
        "model_max_length": 262144,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }


if __name__ == "__main__":
    sys.exit(main())
