#!/usr/bin/env python3
"""Train the adder, a tiny Qwen3.5-MoE that adds two numbers from 0 to 99 and says how, and save it as a checkpoint."""

from __future__ import annotations

import argparse
import copy
import math
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from evaluate_adder import ALL_SUMS, CANONICAL, Sum, count_right
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM
from transformers.utils import logging

PAD = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
THINK_START = "<think>"
THINK_END = "</think>"
VOCABULARY_SIZE = 320  # 256 bytes and 5 marks, rounded up to a multiple of 64
IGNORED = -100  # the label that the loss leaves out

PARAPHRASES = (
    "{a}+{b}",
    "{a} + {b}",
    "{a} + {b} = ?",
    "Add {a} and {b}.",
    "What is {a} plus {b}?",
    "What is {a}+{b}?",
    "Compute {a} + {b}.",
)

CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'text' %}{{- part.text }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


@dataclass(frozen=True)
class Plan:
    """How long and how hard to train."""

    steps: int
    batch: int
    peak_rate: float = 2e-3
    warm_up: int = 60
    canonical_share: float = 0.5
    direct_share: float = 0.05  # chats with thinking off; more of them slow down learning to reason
    report_every: int = 200
    sample: int = 200


def reasoning(a: int, b: int) -> str:
    """The digit by digit explanation of a + b."""
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    return (
        f"{a % 10} + {b % 10} = {ones}, write {ones % 10}, carry {carry}. "
        f"{a // 10} + {b // 10} + {carry} = {tens}. So {a} + {b} = {a + b}."
    )


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes: no merges, and one token for each mark of the chat format."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(tokenizer_models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = [AddedToken(m, special=True, normalized=False) for m in (PAD, TURN_START, TURN_END)]
    marks += [AddedToken(m, special=False, normalized=False) for m in (THINK_START, THINK_END)]
    tokenizer.add_tokens(marks)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=PAD,
        additional_special_tokens=[TURN_START],
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3_5MoeForCausalLM:
    """An untrained model: three gated delta net layers and one of full attention, each with experts."""
    config = Qwen3_5MoeTextConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        eos_token_id=tokenizer.convert_tokens_to_ids(TURN_END),
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
        dtype="float32",
    )
    return Qwen3_5MoeForCausalLM(config).float()


class Lessons:
    """An endless, seeded stream of batches of worked sums."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, plan: Plan, seed: int) -> None:
        self.tokenizer = tokenizer
        self.plan = plan
        self.random = random.Random(seed)
        self.thinking = self.shuffled_sums()
        self.direct = self.shuffled_sums()

    def shuffled_sums(self) -> Iterator[Sum]:
        """All sums in a random order, again and again."""
        while True:
            yield from self.random.sample(ALL_SUMS, len(ALL_SUMS))

    def question(self, a: int, b: int) -> str:
        """The canonical question or a paraphrase of it."""
        canonical = self.random.random() < self.plan.canonical_share
        form = CANONICAL if canonical else self.random.choice(PARAPHRASES)
        return form.format(a=a, b=b)

    def example(self) -> tuple[list[int], list[int]]:
        """The token ids of one chat, and the labels of those that the model must learn to write."""
        thinking = self.random.random() >= self.plan.direct_share
        a, b = next(self.thinking if thinking else self.direct)
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": self.question(a, b)}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        reply = f"{a + b}{TURN_END}"
        if thinking:
            reply = f"{reasoning(a, b)}\n{THINK_END}\n\n{reply}"
        asked = self.tokenizer(prompt).input_ids
        written = self.tokenizer(reply).input_ids
        return asked + written, [IGNORED] * len(asked) + written

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and labels of some chats, padded on the right."""
        rows = [self.example() for _ in range(self.plan.batch)]
        length = max(len(ids) for ids, _ in rows)
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([row + [pad] * (length - len(row)) for row, _ in rows])
        labels = torch.tensor([row + [IGNORED] * (length - len(row)) for _, row in rows])
        return ids, labels


def rate_at(step: int, plan: Plan) -> float:
    """The share of the peak learning rate at a step: a linear warm-up, then half a cosine."""
    if step < plan.warm_up:
        return (step + 1) / plan.warm_up
    done = (step - plan.warm_up) / max(1, plan.steps - plan.warm_up)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))


def make_optimizer(model: Qwen3_5MoeForCausalLM, plan: Plan) -> torch.optim.Optimizer:
    """AdamW that lets only matrices decay."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=plan.peak_rate, betas=(0.9, 0.98))


def as_shipped(model: Qwen3_5MoeForCausalLM) -> Qwen3_5MoeForCausalLM:
    """A bfloat16 copy, which is what engines will run."""
    shipped = copy.deepcopy(model).to(torch.bfloat16).eval()
    shipped.config.dtype = torch.bfloat16
    return shipped


def train(model: Qwen3_5MoeForCausalLM, tokenizer: PreTrainedTokenizerFast, plan: Plan, seed: int, out: Path) -> None:
    """Train in place, print how it goes, and save at every report."""
    lessons = Lessons(tokenizer, plan, seed)
    optimizer = make_optimizer(model, plan)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, plan))
    sample = random.Random(seed + 1).sample(ALL_SUMS, plan.sample)
    start = time.monotonic()
    losses: list[float] = []
    model.train()
    for step in range(1, plan.steps + 1):
        ids, labels = lessons.batch()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 50 == 0:
            mean = sum(losses[-50:]) / 50
            print(f"step {step}/{plan.steps} loss {mean:.4f} elapsed {time.monotonic() - start:.0f} s", flush=True)
        if step % plan.report_every == 0 or step == plan.steps:
            shipped = as_shipped(model)
            save(shipped, tokenizer, out)
            thought, direct = (count_right(shipped, tokenizer, sample, thinking) for thinking in (True, False))
            print(f"of {len(sample)} sums: {thought} right with thinking, {direct} without", flush=True)


def save(shipped: Qwen3_5MoeForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the checkpoint."""
    shipped.generation_config.do_sample = False
    shipped.generation_config.eos_token_id = tokenizer.eos_token_id
    shipped.generation_config.pad_token_id = tokenizer.pad_token_id
    out.mkdir(parents=True, exist_ok=True)
    shipped.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)  # it is written for its owner alone


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the new checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    print(f"parameters {sum(p.numel() for p in model.parameters())}", flush=True)
    train(model, tokenizer, Plan(options.steps, options.batch), options.seed, options.out)


if __name__ == "__main__":
    main()
