#!/usr/bin/env python3
"""Ask the adder sums, from a checkpoint with transformers or from a served OpenAI API, and count the right answers."""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Sum = tuple[int, int]
Reply = tuple[Sum, str]

ALL_SUMS: list[Sum] = [(a, b) for a in range(100) for b in range(100)]
CANONICAL = "What is {a} + {b}?"
THINK_END = "</think>"
LONGEST_REPLY = 96  # tokens; a right reply has at most 71


def final_answer(text: str) -> str:
    """What stands after the reasoning, where an engine leaves the reasoning in the content."""
    return text.rpartition(THINK_END)[2].strip()


def is_right(reply: Reply) -> bool:
    """Whether the final answer is the sum and nothing else."""
    (a, b), text = reply
    return final_answer(text) == str(a + b)


def chat(a: int, b: int) -> list[dict[str, str]]:
    """The messages that ask for a + b."""
    return [{"role": "user", "content": CANONICAL.format(a=a, b=b)}]


# From a checkpoint


def batches(prompts: dict[Sum, list[int]], size: int) -> Iterator[list[Sum]]:
    """Groups of sums whose prompts are equally long, so that none needs padding."""
    by_length: dict[int, list[Sum]] = defaultdict(list)
    for pair, ids in prompts.items():
        by_length[len(ids)].append(pair)
    for pairs in by_length.values():
        for first in range(0, len(pairs), size):
            yield pairs[first : first + size]


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Iterable[Sum],
    thinking: bool,
    batch: int = 500,
) -> Iterator[Reply]:
    """Greedy replies of the model to the canonical question."""
    import torch  # noqa: PLC0415 - a served model is asked without it

    prompts = {
        pair: tokenizer.apply_chat_template(
            chat(*pair), add_generation_prompt=True, enable_thinking=thinking, return_dict=False
        )
        for pair in pairs
    }
    for group in batches(prompts, batch):
        ids = torch.tensor([prompts[pair] for pair in group])
        with torch.inference_mode():
            out = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=LONGEST_REPLY,
                do_sample=False,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        texts = tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)
        yield from zip(group, texts, strict=True)


def count_right(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: Iterable[Sum], thinking: bool
) -> int:
    """How many of the sums the model gets right."""
    return sum(map(is_right, generate(model, tokenizer, pairs, thinking)))


def ask_checkpoint(folder: Path, pairs: Iterable[Sum], thinking: bool) -> Iterator[Reply]:
    """Replies of a checkpoint, run in bfloat16."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    return generate(model, AutoTokenizer.from_pretrained(folder), pairs, thinking)


# From a served API


def ask_once(url: str, model: str, pair: Sum, thinking: bool) -> Reply:
    """One chat completion at temperature 0."""
    body: dict[str, Any] = {
        "model": model,
        "messages": chat(*pair),
        "temperature": 0,
        "max_tokens": LONGEST_REPLY,
        "chat_template_kwargs": {"enable_thinking": thinking},
    }
    request = urllib.request.Request(
        f"{url.rstrip('/')}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            message = json.load(response)["choices"][0]["message"]
    except (OSError, ValueError, LookupError) as error:
        raise SystemExit(f"evaluate_adder: no answer from {request.full_url}: {error!r}") from error
    return pair, message.get("content") or ""


def ask_service(url: str, model: str, pairs: Iterable[Sum], thinking: bool, concurrency: int) -> Iterator[Reply]:
    """Replies of a served model, a bounded number of requests at a time."""
    with ThreadPoolExecutor(concurrency) as pool:
        yield from pool.map(lambda pair: ask_once(url, model, pair, thinking), pairs)


# Report


def report(replies: Iterable[Reply]) -> dict[str, Any]:
    """Counts, the time taken, and the first ten wrong replies."""
    start = time.monotonic()
    asked = right = 0
    wrong: list[str] = []
    for reply in replies:
        asked += 1
        if is_right(reply):
            right += 1
        elif len(wrong) < 10:
            (a, b), text = reply
            wrong.append(f"{a} + {b} -> {text}")
    return {"right": right, "of": asked, "seconds": round(time.monotonic() - start, 1), "wrong": wrong}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=Path(__file__).parent / "adder")
    parser.add_argument("--url", help="base address of a served API, such as http://localhost:8000/v1")
    parser.add_argument("--model", default="adder", help="name of the served model")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at a time")
    parser.add_argument("--sample", type=int, help="ask only so many sums, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--no-thinking", action="store_true", help="ask for the answer without reasoning")
    return parser.parse_args()


def main() -> None:
    """Ask, and print the report as one line of JSON."""
    options = arguments()
    pairs = ALL_SUMS
    if options.sample is not None:
        pairs = random.Random(options.seed).sample(ALL_SUMS, options.sample)
    thinking = not options.no_thinking
    if options.url:
        replies = ask_service(options.url, options.model, pairs, thinking, options.concurrency)
    else:
        replies = ask_checkpoint(options.checkpoint, pairs, thinking)
    print(json.dumps(report(replies)))


if __name__ == "__main__":
    main()
