"""Which files are the weights of a model, and what they hold together (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bascule.core.nouns import Quantization
from bascule.discover.jsons import broken, is_count, json_object
from bascule.discover.safetensors import parse_header
from bascule.discover.tensors import Place
from bascule.errors import ModelError

INDEX = "model.safetensors.index.json"
MAX_INDEX = 32 * 1024 * 1024  # bytes; the 200 000 tensors of a model of 1e12 parameters in 4 bits take 23 MB
_MOST = 2**53  # bytes of weights
_PART = re.compile(r"(.*)-(\d{1,6})-of-(\d{1,6})\.safetensors")
# Of a trainer, or a second copy in Mistral's own layout. Source: vllm 0.32.0, model_loader/weight_utils.py.
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin")
_COPY = "consolidated"


@dataclass(frozen=True, slots=True)
class Index:
    """What model.safetensors.index.json says: the files, and bytes of all tensors (None when it doesn't)."""

    files: frozenset[str]
    total: int | None


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of a safetensors file, at least 8 where it has them, and its size in bytes."""

    size: int
    first: bytes


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of the weights and whether they were counted, and parameters; None is not known."""

    bytes: int | None
    exact: bool = True
    parameters: int | None = None
    parts: Mapping[Place, int] | None = field(default=None, compare=False)  # bytes by layer and part, where counted


def parse_index(place: str, raw: bytes) -> Index:
    """The facts of an index. Raises ModelError."""
    found = json_object(place, raw, MAX_INDEX)
    names = found.get("weight_map")
    if not isinstance(names, dict) or not names or not all(map(_is_file, names.values())):
        raise broken(f"{place} has no weight_map of files", names)
    metadata = found.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    return Index(frozenset(names.values()), total if is_count(total, _MOST) else None)


def weight_files(place: str, sizes: Mapping[str, int], index: Index | None) -> dict[str, int]:
    """The files that an engine loads of those there, with their sizes in bytes; none where that can't be told.

    An index decides. Without one it is all safetensors files, else all GGUF files, else all of PyTorch's.
    Raises ModelError when some are missing.
    """
    if index and any("/" in name for name in index.files):
        return {}  # nobody looks into folders below
    if index:
        there = {name: size for name, size in sizes.items() if name in index.files}
        _all_there(place, there, index.files, INDEX)
        return there
    for ending in (".safetensors", ".gguf", ".bin"):
        there = {name: size for name, size in sizes.items() if name.endswith(ending) and name not in _NO_WEIGHTS}
        own = {name: size for name, size in there.items() if not name.startswith(_COPY)}
        if there:
            _all_there(place, there, _numbered(there), "the number in the names")
            return own or there
    return {}


def weigh(place: str, heads: Mapping[str, Head], quantization: Quantization | None) -> Weights:
    """Bytes and parameters of safetensors files, from their headers; where one wasn't read, bytes of the files.

    Raises ModelError when a file can't be loaded.
    """
    shards = [parse_header(f"{place}/{name}", head.first, head.size, quantization) for name, head in heads.items()]
    read = [shard for shard in shards if shard]
    if len(read) < len(shards):
        return Weights(sum(head.size for head in heads.values()))
    counts = [shard.parameters for shard in read]
    total = None if None in counts else sum(count or 0 for count in counts)
    parts = Counter[Place]()
    for shard in read:
        parts.update(shard.parts)
    return Weights(sum(shard.bytes for shard in read), parameters=total, parts=dict(parts))


def _is_file(name: object) -> bool:
    if not isinstance(name, str) or len(name) > 300 or not name.isprintable():
        return False
    return name.endswith(".safetensors") and not name.startswith("/") and ".." not in name


def _numbered(names: Iterable[str]) -> list[str]:
    """Every file of a row like model-00001-of-00003.safetensors of which one is there."""
    rows = {(match[1], match[3], len(match[2])) for match in map(_PART.fullmatch, names) if match}
    return [
        f"{stem}-{number:0{width}}-of-{count}.safetensors"
        for stem, count, width in sorted(rows)[:10]
        for number in range(1, min(int(count), 10_000) + 1)
    ]


def _all_there(place: str, there: Mapping[str, int], wanted: Iterable[str], says: str) -> None:
    missing = sorted(set(wanted) - set(there))
    if missing and there:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelError(
            "model-incomplete",
            f"{place} lacks {len(missing)} of its files of weights",
            seen=f"by {says}: {', '.join(missing[:3])}{more}"[:400],
            advice="finish the download or the copy of the model",
        )
