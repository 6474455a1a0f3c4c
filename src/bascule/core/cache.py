"""What engines set aside for sequences: blocks of tokens and states as vLLM has them, pools as SGLang has them.

Sources: vllm 0.32.0, v1/core/kv_cache_utils.py (get_kv_cache_groups, get_max_concurrency_for_kv_cache_config),
v1/kv_cache_interface.py and platforms/interface.py (one page size for states and attention); sglang 0.5.15,
srt/model_executor/pool_configurator.py and model_runner_kv_cache_mixin.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bascule.core.shape import Mixer


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How an engine divides the memory for sequences."""

    kind: Literal["blocks", "pools"] = "blocks"
    block: int = 16  # tokens; the least, and what blocks are a multiple of
    states: int = 2  # blocks: states that a sequence holds; pools: slots of states for each sequence that runs
    checkpoints: int = 0  # blocks: states more that a sequence holds in Mamba-2 layers
    state_ratio: float = 0.9  # pools: memory of states over that of tokens
    window_ratio: float = 0.8  # pools: tokens of sliding layers over those of full ones


class Cache(Protocol):
    """The memory for sequences of one rank."""

    def needs(self, context: int, sequences: int) -> int:
        """Bytes for so many sequences of so many tokens."""

    def sequences(self, available: int, context: int) -> int:
        """Sequences of so many tokens that fit into so many bytes."""

    def tokens(self, available: int, context: int) -> int:
        """What the engine will print as the size of its cache, in tokens, when sequences may have `context`."""


def cache_of(
    everywhere: Counter[Mixer], own: Counter[Mixer], tensor: int, number: int, step: int, rules: CacheRules
) -> Cache:
    """The cache of a rank that holds its `own` layers of those `everywhere`.

    `tensor`: ranks that share each layer; `number`: bytes of one number in it; `step`: tokens of one engine step.
    """
    if rules.kind == "pools":
        return _pools(own, tensor, number, rules)
    return _blocks(everywhere, own, tensor, number, step, rules)


def largest_context(cache: Cache, available: int, most: int) -> int:
    """The longest single sequence, up to `most` tokens; 0 when none fits."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cache.needs(middle, 1) <= available else (low, middle - 1)
    return low


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that are alike: how many rows of blocks they need, and how many tokens a block holds."""

    mixer: Mixer
    rows: int
    block: int  # tokens; of states 0

    def needs(self, context: int, step: int, rules: CacheRules) -> int:
        """Blocks of one sequence."""
        if self.mixer.state:
            return self.rows * (rules.states + (rules.checkpoints if self.mixer.state.mamba else 0))
        tokens, extra = context, 0
        if self.mixer.memory == "sliding":  # it may begin in the middle of a block
            tokens, extra = min(self.mixer.window - 1 + step, context), 1
        elif self.mixer.memory == "chunked":
            tokens = min(self.mixer.window + step, context)
        return self.rows * (-(-tokens // self.block) + extra)


@dataclass(frozen=True, slots=True)
class Blocks:
    """One pool of blocks of equal size, of which every group of layers takes its own (vLLM)."""

    bytes: int  # of one block on this rank
    groups: tuple[Group, ...]
    step: int
    rules: CacheRules

    def _each(self, context: int) -> int:
        return max(sum(group.needs(context, self.step, self.rules) for group in self.groups), 1)

    def needs(self, context: int, sequences: int) -> int:
        """Bytes; one block is never given to a sequence."""
        return (sequences * self._each(context) + 1) * self.bytes

    def sequences(self, available: int, context: int) -> int:
        """Whole sequences."""
        return max(available // self.bytes - 1, 0) // self._each(context)

    def tokens(self, available: int, context: int) -> int:
        """As get_kv_cache_capacity counts them."""
        return max(available // self.bytes, 0) * context // self._each(context)


@dataclass(frozen=True, slots=True)
class Pools:
    """A pool of tokens and one of states, in a fixed proportion (SGLang)."""

    token: float  # bytes of one token on this rank
    state: int  # bytes of the states of one sequence; 0 = it has none
    slots: int
    ratio: float

    def needs(self, context: int, sequences: int) -> int:
        """Bytes; the pool that is short decides."""
        tokens = sequences * context * self.token
        if not self.state:
            return -int(-tokens // 1)
        states = sequences * self.slots * self.state
        return -int(-max(tokens * (1 + self.ratio), states * (1 + self.ratio) / self.ratio) // 1)

    def sequences(self, available: int, context: int) -> int:
        """Whole sequences."""
        most = self.tokens(available, context) // max(context, 1)
        return min(most, self._held(available) // self.slots) if self.state else most

    def tokens(self, available: int, context: int) -> int:
        """As max_total_num_tokens."""
        del context
        left = max(available - self._held(available) * self.state, 0)
        return int(left // self.token) if self.token else 0

    def _held(self, available: int) -> int:
        """States that the pool has room for."""
        if not self.state:
            return 0
        return int(max(available, 0) * self.ratio / (1 + self.ratio) // self.state)


def _pools(own: Counter[Mixer], tensor: int, number: int, rules: CacheRules) -> Pools:
    slides = sum(own[mixer] * mixer.token_bytes(tensor, number) for mixer in own if mixer.window)
    keeps = sum(own[mixer] * mixer.token_bytes(tensor, number) for mixer in own if not mixer.window)
    state = sum(own[mixer] * mixer.state.rank_bytes(tensor) for mixer in own if mixer.state)
    return Pools(keeps + slides * (rules.window_ratio if keeps else 1.0), state, rules.states, rules.state_ratio)


def _blocks(
    everywhere: Counter[Mixer], own: Counter[Mixer], tensor: int, number: int, step: int, rules: CacheRules
) -> Blocks:
    counts = Counter({mixer: count for mixer, count in everywhere.items() if mixer.memory != "none"})
    if all(mixer.memory in ("full", "latent") for mixer in counts):
        size = rules.block * sum(own[mixer] * mixer.token_bytes(tensor, number) for mixer in counts)
        return Blocks(max(size, 1), (Group(next(iter(counts), Mixer("full")), 1, rules.block),), step, rules)
    page = _page(list(counts), tensor, number, rules.block)
    rows = _rows(list(counts.values()))
    groups = tuple(
        Group(mixer, many, 0 if mixer.state else page // mixer.token_bytes(tensor, number))
        for mixer, many in zip(counts, rows, strict=True)
    )
    # The widest row of this rank decides; layers of a kind are dealt out to its rows in turn.
    deep = max(-(-own[mixer] // many) for mixer, many in zip(counts, rows, strict=True))
    return Blocks(max(page * deep, 1), groups, step, rules)


def _page(kinds: Sequence[Mixer], tensor: int, number: int, block: int) -> int:
    """Bytes of one block in one layer: equal in all, and large enough for a state."""
    token = max((mixer.token_bytes(tensor, number) for mixer in kinds if not mixer.state), default=0)
    state = max((mixer.state.rank_bytes(tensor) for mixer in kinds if mixer.state), default=0)
    if not token:
        return max(state, 1)
    return max(-(-state // (block * token)), 1) * block * token


def _rows(counts: Sequence[int]) -> list[int]:
    """Rows of blocks of each kind of layer, so that all rows are about as deep as the rarest kind has layers."""
    least, most = min(counts), max(counts)
    depth = most if most < least * 1.5 else least
    return [-(-count // depth) for count in counts]
