"""Which code runs on which GPU: NVIDIA's rules, applied to each fat binary by itself, never to a library's union.

Source: CUDA Programming Guide, "Compute Capabilities": machine code runs on later minors of its major; code of a
family (`f`, from CUDA 12.9) on the same and later minors; code of one architecture (`a`) nowhere else; PTX is compiled
by the driver for the same and any later architecture.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from bascule.probe.kernels.fatbin import Code, FatBinary, Library

LABELS = 4  # kinds of dead fat binaries that a sentence names
GENERATIONS = 3  # major architectures


class Way(IntEnum):
    """How code comes to run on a GPU; from the worst to the best."""

    DEAD = 0
    JIT = 1  # the driver compiles its PTX at the first use
    FAMILY = 2  # made for an earlier member of the family: some kernels refuse to run there
    NATIVE = 3


@dataclass(frozen=True, slots=True)
class Tally:
    """A library's fat binaries that carry code, by how they run on one GPU."""

    library: Library
    sm: int
    native: tuple[FatBinary, ...]
    family: tuple[FatBinary, ...]
    jit: tuple[FatBinary, ...]
    dead: tuple[FatBinary, ...]

    @property
    def total(self) -> int:
        """How many there are; 0 = no GPU code."""
        return len(self.native) + len(self.family) + len(self.jit) + len(self.dead)

    @property
    def near(self) -> tuple[FatBinary, ...]:
        """The dead ones for an earlier GPU of this generation, as sm_120a on sm_121: an engine may choose them."""
        return tuple(binary for binary in self.dead if _near(binary.codes, self.sm))

    @property
    def general(self) -> tuple[FatBinary, ...]:
        """The dead ones with plain code for GENERATIONS or more: what is built so widely is wanted on every GPU."""
        return tuple(
            binary
            for binary in self.dead
            if len({code.sm // 10 for code in binary.codes if not code.suffix}) >= GENERATIONS
        )

    @property
    def isa(self) -> tuple[int, int] | None:
        """The PTX ISA that a driver must know to compile what is left to it."""
        return max((isa for binary in self.jit if (isa := _lowest_isa(binary, self.sm))), default=None)


def target(gpu: str) -> int | None:
    """The SM of a GPU: 121 for `sm_121`, `121`, `12.1`; None for another kind of name, e.g. gfx1151."""
    match = re.fullmatch(r"(?:sm_?|compute_)?(\d{1,2})\.?(\d)[af]?", gpu.strip(), re.IGNORECASE | re.ASCII)
    return int(match[1] + match[2]) if match and match[1] != "0" else None


def way(code: Code, sm: int) -> Way:
    """How one entry runs on a GPU."""
    if code.suffix == "a":
        fits = code.sm == sm
    elif code.suffix == "f" or code.kind == "cubin":
        fits = code.sm // 10 == sm // 10 and code.sm <= sm
    else:
        fits = code.sm <= sm
    if not fits:
        return Way.DEAD
    if code.kind == "ptx":
        return Way.JIT
    return Way.FAMILY if code.suffix == "f" and code.sm != sm else Way.NATIVE


def tally(library: Library, sm: int) -> Tally:
    """A library's fat binaries by how they run; one without any code is not counted."""
    ways: dict[Way, list[FatBinary]] = {way: [] for way in Way}
    for binary in library.binaries:
        if binary.codes:
            ways[max(way(code, sm) for code in binary.codes)].append(binary)
    return Tally(library, sm, *(tuple(ways[way]) for way in (Way.NATIVE, Way.FAMILY, Way.JIT, Way.DEAD)))


def describe(found: Tally) -> str:
    """How a library's fat binaries run, e.g. `43 of 103 fat binaries have nothing for sm_121: 16 only sm_120a`."""
    if not found.total:
        return "no GPU code of CUDA"
    all_of_them = f"{found.total} fat {'binary' if found.total == 1 else 'binaries'}"
    if not found.dead:
        parts = [f"{all_of_them}, each with something for sm_{found.sm}"]
    elif len(found.dead) == found.total:
        parts = [f"{all_of_them}, none with anything for sm_{found.sm}: {labels(found.dead, found.sm)}"]
    else:
        dead = f"{len(found.dead)} of {all_of_them} have nothing for sm_{found.sm}"
        parts = [f"{dead}: {labels(found.dead, found.sm)}"]
    if found.jit:
        parts.append(f"{len(found.jit)} only as PTX")
    if found.family:
        parts.append(f"{len(found.family)} by code of the family ({_reach(found.family, found.sm)})")
    return "; ".join(parts)


def labels(binaries: Sequence[FatBinary], sm: int) -> str:
    """What fat binaries are for, e.g. `16 only sm_120a, 20 only sm_90a`; of near ones, the code that comes nearest."""
    counts = Counter(_listed(_near(binary.codes, sm) or binary.codes) for binary in binaries)
    rows = [f"{count} only {label}" for label, count in counts.most_common(LABELS)]
    rest = sum(count for _, count in counts.most_common()[LABELS:])
    return ", ".join([*rows, f"{rest} only others"] if rest else rows)


def _near(codes: Sequence[Code], sm: int) -> list[Code]:
    return [code for code in codes if code.sm // 10 == sm // 10 and code.sm < sm]


def _reach(binaries: Iterable[FatBinary], sm: int) -> str:
    return _listed([code for binary in binaries for code in binary.codes if way(code, sm) is Way.FAMILY])


def _listed(codes: Sequence[Code]) -> str:
    ordered = sorted(codes, key=lambda code: (code.sm, code.suffix, code.kind))
    kinds = {"cubin": "sm", "ptx": "compute"}
    return "/".join(dict.fromkeys(f"{kinds[code.kind]}_{code.sm}{code.suffix}" for code in ordered))


def _lowest_isa(binary: FatBinary, sm: int) -> tuple[int, int] | None:
    return min((code.isa for code in binary.codes if way(code, sm) is Way.JIT and code.isa), default=None)
