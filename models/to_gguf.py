#!/usr/bin/env python3
"""Convert the adder's checkpoint to one GGUF file of the architecture qwen35moe, for llama.cpp."""

from __future__ import annotations

import argparse
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Config: TypeAlias = dict[str, Any]

ARCHITECTURE = "qwen35moe"
IDLE_MERGE = "[PAD0] [PAD0]"  # llama.cpp wants at least one merge; this one never applies
PLAIN_TYPES = {"F16": "<f2", "F32": "<f4"}
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")

OUTER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.gate_proj": "ffn_gate_exps.weight",
    "mlp.experts.up_proj": "ffn_up_exps.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
}


# Reading the checkpoint


def read_array(raw: bytes, dtype: str, shape: list[int]) -> Array:
    """Raw little-endian values as float32."""
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    if dtype in PLAIN_TYPES:
        return np.frombuffer(raw, PLAIN_TYPES[dtype]).astype("<f4").reshape(shape)
    raise SystemExit(f"to_gguf: tensors of type {dtype} are not supported")


def read_tensors(path: Path) -> Iterator[tuple[str, Array]]:
    """The names and values of a safetensors file."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    start = 8 + length
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            yield name, read_array(content[start + first : start + last], entry["dtype"], entry["shape"])


def split_experts(tensors: dict[str, Array]) -> dict[str, Array]:
    """Every layer's experts as three stacks, whether they are stored fused or one by one."""
    split: dict[str, Array] = {}
    single: dict[str, dict[int, Array]] = {}
    for name, values in tensors.items():
        one = re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(\w+)\.weight", name)
        if one:
            single.setdefault(f"{one[1]}.{one[3]}", {})[int(one[2])] = values
        elif name.endswith("experts.gate_up_proj"):
            stem = name.removesuffix("gate_up_proj")
            split[f"{stem}gate_proj"], split[f"{stem}up_proj"] = np.split(values, 2, axis=1)
        else:
            split[name] = values
    for name, experts in single.items():
        split[name] = np.stack([experts[number] for number in sorted(experts)])
    return split


# Rearranging weights


def tile_heads(values: Array, axis: int, config: Config) -> Array:
    """Put the value heads of the delta net, grouped by key head, in the order in which key heads repeat."""
    groups = config["linear_num_key_heads"]
    per_group = config["linear_num_value_heads"] // groups
    shape = values.shape
    split = values.reshape(*shape[:axis], groups, per_group, -1, *shape[axis + 1 :])
    return split.swapaxes(axis, axis + 1).reshape(shape)


def tile_value_rows(values: Array, config: Config) -> Array:
    """The same for the last part of rows that hold queries, keys and values."""
    keys = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    return np.concatenate([values[:keys], tile_heads(values[keys:], 0, config)])


def convert_delta_net(part: str, values: Array, config: Config) -> Array:
    """The values of one tensor of a gated delta net as llama.cpp stores them."""
    match part:
        case "in_proj_qkv.weight":
            return tile_value_rows(values, config)
        case "conv1d.weight":
            return tile_value_rows(values.squeeze(1), config)
        case "A_log":
            return tile_heads(-np.exp(values), 0, config)
        case "in_proj_z.weight" | "in_proj_a.weight" | "in_proj_b.weight" | "dt_bias":
            return tile_heads(values, 0, config)
        case "out_proj.weight":
            return tile_heads(values, 1, config)
        case _:
            return values


def convert_values(name: str, values: Array, config: Config) -> Array:
    """The values of a tensor as llama.cpp stores them; the name is that of the checkpoint."""
    _, in_delta_net, part = name.partition(".linear_attn.")
    if in_delta_net:
        return convert_delta_net(part, values, config)
    if name.endswith("norm.weight"):
        return values + 1  # the checkpoint stores the distance from one
    if name.endswith("shared_expert_gate.weight"):
        return values.reshape(-1)
    return values


def convert_name(name: str) -> str:
    """The name that llama.cpp gives a tensor."""
    inner = LAYER.fullmatch(name)
    if inner and inner[2] in LAYER_NAMES:
        return f"blk.{inner[1]}.{LAYER_NAMES[inner[2]]}"
    if name in OUTER_NAMES:
        return OUTER_NAMES[name]
    raise SystemExit(f"to_gguf: no place for the tensor {name}")


def wants_half(name: str, values: Array) -> bool:
    """Whether a tensor may be stored as f16: matrices, but not those that llama.cpp wants in f32."""
    return values.ndim >= 2 and not any(part in name for part in ("ffn_gate_inp", "ssm_conv1d"))


# Writing


def add_shape(writer: gguf.GGUFWriter, config: Config) -> None:
    """The sizes that all transformers have."""
    writer.add_name("adder")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def add_rope(writer: gguf.GGUFWriter, config: Config) -> None:
    """The rotary embedding; the sections matter for images alone, but must be there."""
    rope = config["rope_parameters"]
    rotated = int(config["head_dim"] * rope["partial_rotary_factor"])
    side = rotated // 8
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(rotated)
    writer.add_rope_dimension_sections([rotated // 2 - 2 * side, side, side, 0])


def add_experts(writer: gguf.GGUFWriter, config: Config) -> None:
    """The sizes of the experts."""
    writer.add_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def add_delta_net(writer: gguf.GGUFWriter, config: Config) -> None:
    """The sizes of the gated delta net, in the words of state space models."""
    heads = config["linear_num_value_heads"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * heads)
    writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)


def token_kind(special: bool | None) -> gguf.TokenType:
    """The kind of a token: None if the tokenizer did not add it, else whether it is special."""
    if special is None:
        return gguf.TokenType.NORMAL
    return gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict[str, Any], config: Config, template: str) -> None:
    """The tokens, filled up to the size of the embedding, and the chat template."""
    added = {token["content"]: token for token in tokenizer["added_tokens"]}
    numbers = tokenizer["model"]["vocab"] | {text: token["id"] for text, token in added.items()}
    texts = [f"[PAD{number}]" for number in range(config["vocab_size"])]
    kinds = [gguf.TokenType.UNUSED] * len(texts)
    for text, number in numbers.items():
        texts[number] = text
        kinds[number] = token_kind(added[text]["special"] if text in added else None)
    merges = [" ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges or [IDLE_MERGE])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_bos_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)


def convert(source: Path, out: Path, half: bool) -> None:
    """Write the GGUF file of a checkpoint."""
    config = json.loads((source / "config.json").read_text())
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    template = (source / "chat_template.jinja").read_text()
    writer = gguf.GGUFWriter(out, ARCHITECTURE)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    add_shape(writer, config)
    add_rope(writer, config)
    add_experts(writer, config)
    add_delta_net(writer, config)
    add_tokenizer(writer, tokenizer, config, template)
    for name, values in split_experts(dict(read_tensors(source / "model.safetensors"))).items():
        kept = np.ascontiguousarray(convert_values(name, values, config))
        new_name = convert_name(name)
        stored = kept.astype(np.float16) if half and wants_half(new_name, kept) else kept
        writer.add_tensor(new_name, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Convert the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder of the checkpoint")
    parser.add_argument("out", type=Path, help="the GGUF file to write")
    parser.add_argument("--f16", action="store_true", help="store matrices as f16 instead of f32")
    options = parser.parse_args()
    convert(options.source, options.out, options.f16)


if __name__ == "__main__":
    main()
