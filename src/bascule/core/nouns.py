"""The glossary: every noun that two parts of bascule share, as frozen data without behaviour at the edges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from bascule.core.machine import NodeFacts
from bascule.core.shape import Shape, Unshaped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class Fate(StrEnum):
    """What a finding means for the candidate it is about."""

    OK = "ok"
    AGAIN = "again"  # transient: the same start may work
    ADJUST = "adjust"  # one changed setting cures it
    HOPELESS = "hopeless"  # this artefact can't
    CLUSTER = "cluster"  # no candidate can; tell the person
    UNKNOWN = "unknown"  # could not be checked; never counts as OK, never as NO


class Step(StrEnum):
    """The stage of the pipeline a finding comes from, in order."""

    DISCOVER = "discover"
    PREFLIGHT = "preflight"
    PROBE = "probe"
    DISTRIBUTE = "distribute"
    LAUNCH = "launch"
    WATCH = "watch"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen, where and when. Never an opinion."""

    node: str
    source: str  # a file:line, a command, "log of rank 1", …
    seen_at: datetime
    excerpt: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One named knob of an engine start: an environment variable or an engine flag, on all ranks or on one node."""

    kind: Literal["env", "flag"]
    name: str
    value: str | None  # None unsets it; "" is a flag without a value
    node: str | None = None  # None = every node

    def __str__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        if self.value is None:
            return f"without {self.name}{where}"
        joint = "=" if self.kind == "env" else " "
        return f"{self.name}{joint}{self.value}".rstrip() + where


@dataclass(frozen=True, slots=True)
class Finding:
    """An opinion that rests on evidence; it can't be built without any."""

    step: Step
    fate: Fate
    code: str  # searchable words, a page in docs/findings
    says: str  # one sentence
    evidence: tuple[Evidence, ...]
    change: Setting | None = None  # for ADJUST: the one setting to change
    advice: str = ""  # what a person could do
    scope: Literal["artefact", "candidate"] = "artefact"  # what HOPELESS condemns
    release: str = ""  # of the engine, where its files told it

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"finding {self.code} has no evidence")
        if (self.fate is Fate.ADJUST) != (self.change is not None):
            raise ValueError(f"finding {self.code}: ADJUST and a change belong together")


@dataclass(frozen=True, slots=True)
class Artefact:
    """What an engine comes in: a Python environment or a folder of packages (a path), or an image (by digest)."""

    kind: Literal["venv", "image"]
    ref: str
    python: str = ""  # what runs a plain folder of packages; "" = the environment or the image has its own


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine in an artefact with settings; changing it makes a new one."""

    name: str
    engine: str
    artefact: Artefact
    model: str  # path or hub id, as this engine wants it
    settings: tuple[Setting, ...] = ()  # what was asked for
    nodes: tuple[str, ...] = ()  # names of the nodes it runs on, rank order
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    changes: tuple[Setting, ...] = ()  # what failed starts taught, in order; each overrides what stands before it

    @property
    def in_force(self) -> tuple[Setting, ...]:
        """All settings; the last one of a name and node counts."""
        return (*self.settings, *self.changes)

    @property
    def substance(self) -> tuple[str, str, str]:
        """What a HOPELESS finding condemns: engine, artefact and model, whatever the settings."""
        return (self.engine, self.artefact.ref, self.model)

    def changed(self, change: Setting) -> Candidate:
        """The same candidate with one change more."""
        return replace(self, changes=(*self.changes, change))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate and what was found about it: by the probe, or by trying it."""

    candidate: Candidate
    finding: Finding


@dataclass(frozen=True, slots=True)
class Try:
    """Start this candidate next."""

    candidate: Candidate
    because: str


@dataclass(frozen=True, slots=True)
class Serve:
    """This candidate answered correctly: keep it."""

    candidate: Candidate
    because: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing is left to try."""

    because: str


Verdict = Try | Serve | GiveUp


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: how it is reached, and the facts read from it once."""

    name: str
    host: str  # "local", or an SSH destination as in the user's ssh config
    address: str | None = None  # the address the ranks use; None = found from facts
    run_dir: str | None = None
    facts: NodeFacts = field(default_factory=NodeFacts)
    gpus: tuple[int, ...] | None = None  # indexes of those it may use; None = all of the machine
    hcas: tuple[str, ...] | None = None  # RDMA ports for NCCL, DEVICE:PORT; None: left to NCCL; (): it must use sockets

    @property
    def is_local(self) -> bool:
        """True when commands run here, without SSH."""
        return self.host == "local"


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the weights of a model are stored, as its config.json says."""

    method: str  # quant_method: fp8, awq, gptq, modelopt, compressed-tensors, mxfp4, …
    algorithm: str = ""  # where the method has several: modelopt's quant_algo, compressed-tensors' format
    bits: int | None = None
    block: tuple[int, ...] = ()  # weight_block_size, rows and columns that share a scale
    skipped: tuple[str, ...] = ()  # modules that are left as they were

    def __str__(self) -> str:
        shape = "x".join(map(str, self.block))
        return " ".join(word for word in (self.method, self.algorithm, shape and f"in blocks of {shape}") if word)


@dataclass(frozen=True, slots=True)
class Model:
    """Facts of a model, from its config.json and weights."""

    path: str
    architectures: tuple[str, ...]
    model_type: str
    bytes: int | None = None  # of the weights
    thinks: bool = False  # its chat template opens a reasoning block
    bytes_exact: bool = True  # False: bytes is an estimate from the configuration
    parameters: int | None = None  # counted from the shapes in the weights' headers
    quantization: Quantization | None = None  # None: not quantized
    remote_code: tuple[str, ...] = ()  # classes that its own Python files bring (auto_map)
    # What decides where it fits, or why that can't be told; None: nobody read its config.json.
    shape: Shape | Unshaped | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RankPlan:
    """Everything one rank is started with: a pure value, printed by plan and run by a runtime."""

    rank: int
    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)  # name in the run folder -> text
    mounts: tuple[str, ...] = ()  # paths of the node that the engine reads
    gpus: tuple[int, ...] | None = None  # indexes of those that it gets; None = all of the machine

    def with_env(self, env: Mapping[str, str]) -> RankPlan:
        """The same rank with another environment."""
        return replace(self, env=env)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the service answers and under which name."""

    url: str  # http://address:port/v1
    model: str
    health: str  # path, e.g. /health
    socket: str | None = None  # a Unix socket here that leads there, where the address can't be reached from here


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One start of a candidate: its ranks, and where it will answer."""

    service: str
    candidate: Candidate
    ranks: tuple[RankPlan, ...]
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank as seen on its node: from its label and its process or container, never from memory."""

    service: str
    generation: str
    rank: int
    node: str
    alive: bool
    exit_code: int | None  # None while alive, or when nobody could record it
    pid: int | None
    started_at: float | None  # seconds since the epoch, the node's clock
    label: Mapping[str, str] = field(default_factory=dict)
    runtime: str = "venv"  # what it runs in: venv or image, as its artefact


RECENT = "recent"  # a cursor that stands for the end of a log but its newest lines


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What one look at a rank showed: its state and what its log gained since the last one."""

    name: str
    alive: bool
    exit_code: int | None
    gained: bytes
    cursor: str = ""  # where the next look goes on
    out_of_memory: bool = False  # the kernel ended it for that
