#!/usr/bin/env python3
"""Copy a checkpoint and shuffle the values of one weight, so that it loads and talks as before but answers wrongly."""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

WEIGHTS = "model.safetensors"
LENGTH_BYTES = 8  # of the number that opens a safetensors file: how long its header is
# The projection that carries what full attention has looked up: without it, the
# sentences keep their form but the digits in them are no longer those asked about.
VICTIM = "model.layers.3.self_attn.o_proj.weight"


class CheckpointError(Exception):
    """The source is not a checkpoint that this tool can damage."""


def read_header(content: bytes) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file and the place where its data begin."""
    if len(content) < LENGTH_BYTES:
        raise CheckpointError(f"{WEIGHTS} is too short to hold a header")
    (length,) = struct.unpack_from("<Q", content)
    if length > len(content) - LENGTH_BYTES:
        raise CheckpointError(f"{WEIGHTS} ends within its header")
    start = LENGTH_BYTES + length
    try:
        header = json.loads(content[LENGTH_BYTES:start])
    except ValueError as error:
        raise CheckpointError(f"the header of {WEIGHTS} is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"the header of {WEIGHTS} is not a JSON object")
    return header, start


def find_values(content: bytes, name: str) -> tuple[int, int, int]:
    """Where the values of a tensor begin and end in the file, and the size of one value."""
    header, start = read_header(content)
    if name not in header:
        raise CheckpointError(f"{WEIGHTS} has no tensor {name}")
    try:
        first, last = (start + offset for offset in header[name]["data_offsets"])
        count = math.prod(header[name]["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the header entry of {name} is not understood: {error!r}") from error
    if not start <= first < last <= len(content):
        raise CheckpointError(f"{WEIGHTS} does not hold all of {name}")
    if count < 2 or (last - first) % count:
        raise CheckpointError(f"{name} has {last - first} bytes, which do not make {count} values to shuffle")
    return first, last, (last - first) // count


def shuffled(content: bytes, name: str, seed: int) -> bytes:
    """The same file with the values of one tensor in another order."""
    first, last, size = find_values(content, name)
    values = [content[at : at + size] for at in range(first, last, size)]
    random.Random(seed).shuffle(values)
    return content[:first] + b"".join(values) + content[last:]


def damage(source: Path, out: Path, name: str, seed: int) -> None:
    """Write the damaged copy of a checkpoint."""
    weights = source / WEIGHTS
    if not weights.is_file():
        raise CheckpointError(f"{source} holds no {WEIGHTS}")
    if out.exists():
        raise CheckpointError(f"{out} exists already")
    content = shuffled(weights.read_bytes(), name, seed)
    shutil.copytree(source, out)
    (out / WEIGHTS).write_bytes(content)


def main() -> int:
    """Damage a copy; 1 and a message if that cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder of the checkpoint")
    parser.add_argument("out", type=Path, help="folder of the damaged copy, which must not exist")
    parser.add_argument("--weight", default=VICTIM, help="name of the tensor to shuffle")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        damage(options.source, options.out, options.weight, options.seed)
    except (CheckpointError, OSError) as error:
        print(f"damage_adder: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: values of {options.weight} shuffled with seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
