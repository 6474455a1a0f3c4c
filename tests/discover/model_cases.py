"""Configurations like real ones, and safetensors files that are made of zeros."""

from __future__ import annotations

import json
import math
from pathlib import Path

from bascule.discover.safetensors import BITS

# Qwen3.5-122B-A10B: all is in text_config; the numbers that an estimate needs.
QWEN35 = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 3072,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 64,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "moe_intermediate_size": 1024,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 32,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "shared_expert_intermediate_size": 1024,
        "vocab_size": 248320,
    },
    "vision_config": {
        "depth": 27,
        "hidden_size": 1152,
        "in_channels": 3,
        "intermediate_size": 4304,
        "num_position_embeddings": 2304,
        "out_hidden_size": 3072,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_deepseek.DeepseekV3Config",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM",
    },
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GLM_FLASH = {
    "architectures": ["Glm4MoeLiteForCausalLM"],
    "model_type": "glm4_moe_lite",
    "dtype": "bfloat16",
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 10240,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 64,
    "n_shared_experts": 1,
    "num_attention_heads": 20,
    "num_hidden_layers": 47,
    "num_key_value_heads": 20,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "vocab_size": 154880,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float16",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "num_attention_heads": 64,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "quantization_config": {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    },
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
AWQ = {"bits": 4, "group_size": 128, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm"}
GPTQ = {"bits": 8, "dynamic": {"-:.*\\.self_attn": {}}, "group_size": 128, "quant_method": "gptq", "sym": True}
NVFP4 = {
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"group_size": 16, "num_bits": 4, "type": "float"}}
    },
    "format": "nvfp4-pack-quantized",
    "ignore": ["lm_head", "re:.*mlp.gate$"],
    "quant_method": "compressed-tensors",
}
MODELOPT = {
    "producer": {"name": "modelopt", "version": "0.29.0"},
    "quantization": {
        "exclude_modules": ["lm_head", "model.layers.0.self_attn*"],
        "group_size": 16,
        "kv_cache_quant_algo": "FP8",
        "quant_algo": "NVFP4",
    },
}
OMNI = {
    "model_type": "qwen3_omni_moe",
    "talker_config": {"text_config": {"hidden_size": 1024}},
    "thinker_config": {
        "architectures": ["Qwen3OmniMoeThinkerForConditionalGeneration"],
        "audio_config": {"d_model": 1280},
        "dtype": "bfloat16",
        "text_config": {"hidden_size": 2048, "model_type": "qwen3_omni_moe_text"},
    },
}


def header(tensors: dict[str, tuple[str, list[int]]]) -> bytes:
    """The beginning of a safetensors file with these tensors: name -> dtype and shape."""
    entries, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return framed(entries)


def framed(entries: object) -> bytes:
    """A header as it lies in a file, behind its length."""
    raw = json.dumps(entries).encode()
    return len(raw).to_bytes(8, "little") + raw


def size_of(head: bytes) -> int:
    """Bytes of the file that begins like this."""
    entries = json.loads(head[8:])
    return len(head) + max((entry["data_offsets"][1] for name, entry in entries.items() if name[0] != "_"), default=0)


def write(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> int:
    """A file of zeros (sparse) that begins with such a header; gives its size in bytes."""
    head = header(tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size_of(head))
    return size_of(head)
