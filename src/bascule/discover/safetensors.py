"""The header of a safetensors file: the bytes of its tensors, and the parameters that they hold (pure).

The format: 8 bytes, the length of the header as a little-endian number; the header, a JSON object of tensors with
dtype, shape and data_offsets; then the tensors without gaps. Source: safetensors 0.8.0, which refuses what is refused
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bascule.core.nouns import Quantization
from bascule.discover.facts import scale_names
from bascule.discover.jsons import broken, is_count, json_object
from bascule.discover.tensors import Place, weigh_parts
from bascule.errors import ModelError

MAX_HEADER = 100_000_000  # bytes; safetensors reads none that is longer
MAX_READ = 32 * 1024 * 1024  # bytes of a header that is read here; 74 000 experts in one file take 10 MB
_MOST = 2**53  # of one side of a shape, or an offset
_POINTER = b"version https://git-lfs"

# dtype -> bits of one element, as safetensors 0.8.0 knows them.
BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


@dataclass(frozen=True, slots=True)
class Shard:
    """What one file holds: bytes of tensors, and parameters; None where packed ones can't be counted."""

    bytes: int
    parameters: int | None
    parts: Mapping[Place, int] = field(default_factory=dict, compare=False)  # bytes by layer and part


def header_length(head: bytes) -> int:
    """Bytes of the header, from the first 8 bytes of a file."""
    return int.from_bytes(head[:8], "little")


def parse_header(place: str, head: bytes, size: int, quantization: Quantization | None) -> Shard | None:
    """What a file of `size` bytes holds, from its first bytes; None when they end before its header does.

    Raises ModelError when the safetensors library would refuse the file.
    """
    length = _checked_length(place, head, size)
    if length > len(head) - 8:
        return None
    entries = json_object(f"the header of {place}", head[8 : 8 + length], MAX_HEADER)
    entries.pop("__metadata__", None)
    tensors = [(name, *_tensor(place, name, entry)) for name, entry in entries.items()]
    end = 0
    for begins, ends, name in sorted((begins, ends, name) for name, _, _, begins, ends in tensors):
        if begins != end:
            what = "overlaps another one" if begins < end else "leaves a gap before it"
            raise broken(f"{place}: tensor {name[:80]!r} {what}", [begins, ends])
        end = ends
    _checked_size(place, 8 + length + end, size)
    counts = [parameters_of(name, dtype, count, quantization) for name, dtype, count, _, _ in tensors]
    parts = weigh_parts((name, ends - begins) for name, _, _, begins, ends in tensors)
    return Shard(end, None if None in counts else sum(count or 0 for count in counts), parts)


def parameters_of(name: str, dtype: str, count: int, quantization: Quantization | None) -> int | None:
    """Parameters in a tensor of `count` elements; None when they are packed and nothing says how.

    A tensor of a model that isn't quantized holds one per element. Of a quantized one, scales and zero points hold
    none; weights of 4 bits lie in pairs in U8 or I8 (NVFP4, MXFP4, bitsandbytes), or in words of 32 bits (GPTQ, AWQ:
    `qweight`; compressed-tensors: `weight_packed`) of which one holds 32 / bits. FP8 and F4 have one per element.
    """
    if quantization is None:
        return count
    if dtype == "F8_E8M0" or scale_names().search(name):  # E8M0 has powers of two only: it is a scale
        return 0
    bits = quantization.bits
    packed = name.endswith(("qweight", "weight_packed"))
    if dtype in ("U8", "I8") and (bits == 4 or (packed and dtype == "U8")):
        return count * 2
    if dtype in ("I32", "U32") and packed:
        return count * 32 // bits if bits else None
    return None if dtype == "U8" and bits is None else count


def _checked_length(place: str, head: bytes, size: int) -> int:
    if head.startswith(_POINTER):
        raise ModelError(
            "model-incomplete",
            f"{place} is a pointer of Git LFS, not the weights",
            seen=head[:40].decode(errors="replace"),
            advice="fetch the weights: `git lfs pull` in the model's folder",
        )
    length = header_length(head)
    if len(head) < 8 or size < 8 or not 2 <= length <= MAX_HEADER:
        raise broken(f"{place} is no safetensors file", head[:16])
    if length + 8 > size:
        _checked_size(place, 8 + length, size)
    return length


def _checked_size(place: str, wanted: int, size: int) -> None:
    if size < wanted:
        raise ModelError(
            "model-incomplete",
            f"{place} is cut short",
            seen=f"{size} bytes of {wanted}",
            advice="fetch the file again",
        )
    if size > wanted:
        raise broken(f"{place} is longer than its header says", f"{size} bytes, not {wanted}")


def _tensor(place: str, name: str, entry: Any) -> tuple[str, int, int, int]:
    """dtype, elements, and where its bytes begin and end."""
    if not isinstance(entry, dict):
        raise broken(f"{place}: tensor {name[:80]!r} is no object", entry)
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        raise broken(f"{place}: tensor {name[:80]!r} lacks dtype, shape or data_offsets", entry)
    if len(shape) > 64 or not all(is_count(side, _MOST) for side in shape):
        raise broken(f"{place}: tensor {name[:80]!r} has no shape", shape)
    if len(offsets) != 2 or not all(is_count(place, _MOST) for place in offsets) or offsets[0] > offsets[1]:
        raise broken(f"{place}: tensor {name[:80]!r} has no offsets", offsets)
    count = math.prod(shape)
    bits = BITS.get(dtype)
    if bits is not None and count * bits != (offsets[1] - offsets[0]) * 8:
        raise broken(f"{place}: shape and offsets of tensor {name[:80]!r} disagree", entry)
    return dtype, count, offsets[0], offsets[1]
