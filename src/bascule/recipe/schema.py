"""What a recipe may say; its meaning key by key is told in example.yaml."""

from __future__ import annotations

import ipaddress
import shlex
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from bascule.core.decide import BUDGET
from bascule.core.layout import API_PORT, RENDEZVOUS_PORT
from bascule.core.nouns import Node
from bascule.engines.catalogue import ENGINES
from bascule.recipe.destinations import NAME, name_of

Port = Annotated[int, Field(ge=1, le=65535)]
Name = Annotated[str, Field(pattern=NAME)]
Title = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Text = Annotated[str, Field(min_length=1)]


class Mistake(ValueError):
    """A mistake that only several keys together show, and where it stands."""

    def __init__(self, says: str, *loc: int | str) -> None:
        super().__init__(says)
        self.loc = loc


def _ip(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"{text!r} is no IPv4 address") from None


def _words(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


def _named(value: Any) -> Any:
    """A node given as `user@host:22` is named after its host."""
    if not isinstance(value, str):
        return value
    return {"name": name_of(value), "host": value}


def _numbers(value: Any) -> Any:
    """One number, or a text of some, as a command line has it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    return value.split() if isinstance(value, str) else value


def _texts(value: Any) -> Any:
    """Numbers are fine as values of variables."""
    if not isinstance(value, dict):
        return value
    return {key: _text(item) for key, item in value.items()}


def _text(item: Any) -> Any:
    return str(item) if isinstance(item, int | float) and not isinstance(item, bool) else item


Ip = Annotated[str, AfterValidator(_ip)]
Words = Annotated[list[str], BeforeValidator(_words)]
Variables = Annotated[dict[str, str | None], BeforeValidator(_texts)]  # None: one that bascule sets is left out
Indexes = Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(_numbers), Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NodeSpec(_Part):
    """One machine."""

    name: Name
    host: str = ""
    address: Ip | None = None
    run_dir: str | None = None
    gpus: Indexes | None = None

    @field_validator("gpus")
    @classmethod
    def _each_gpu_once(cls, gpus: list[int] | None) -> list[int] | None:
        for place, index in enumerate(gpus or ()):
            if index in (gpus or ())[:place]:
                raise ValueError(f"GPU {index} stands twice in `gpus`")
        return gpus

    @model_validator(mode="after")
    def _host_is_the_name(self) -> Self:
        self.host = self.host or self.name
        return self

    def node(self) -> Node:
        """The node, before anything was read from it."""
        gpus = None if self.gpus is None else tuple(self.gpus)
        return Node(self.name, self.host, self.address, self.run_dir, gpus=gpus)


class CandidateSpec(_Part):
    """One engine in one artefact, with settings."""

    name: Title | None = None
    engine: str
    venv: Text | None = None
    pythonpath: Text | None = None
    python: Text | None = None
    image: Text | None = None
    load_format: Text | None = None
    model: Text | None = None
    nodes: list[str] | None = None
    tensor_parallel: Annotated[int, Field(ge=1)] | None = None
    pipeline_parallel: Annotated[int, Field(ge=1)] = 1
    args: Words = []
    env: Variables = {}
    env_on: dict[str, Variables] = {}

    @field_validator("engine")
    @classmethod
    def _engine_is_known(cls, engine: str) -> str:
        if engine not in ENGINES:
            raise ValueError(f"engine `{engine}` is not known; there are {', '.join(ENGINES)}")
        return engine

    @model_validator(mode="after")
    def _one_artefact(self) -> Self:
        if sum(one is not None for one in (self.venv, self.pythonpath, self.image)) != 1:
            raise ValueError("a candidate has one of `venv`, `pythonpath` and `image`")
        if self.python is not None and self.pythonpath is None:
            raise ValueError("`python` is the interpreter for a `pythonpath`; a venv and an image have their own")
        return self


class Recipe(_Part):
    """One service: a model, the nodes, and what may serve it."""

    service: Name
    model: Text
    nodes: Annotated[list[Annotated[NodeSpec, BeforeValidator(_named)]], Field(min_length=1)]
    port: Port = API_PORT
    rendezvous_port: Port = RENDEZVOUS_PORT
    context: Annotated[int, Field(ge=16)] | None = None
    served_name: str | None = None
    budget: Annotated[int, Field(ge=1, le=100)] = BUDGET
    candidates: list[CandidateSpec] = []

    @model_validator(mode="after")
    def _names_fit_together(self) -> Self:
        names = [node.name for node in self.nodes]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise Mistake(f"two nodes have the same name: {name}", "nodes", number)
        for number, candidate in enumerate(self.candidates):
            for key in ("nodes", "env_on"):
                for name in getattr(candidate, key) or ():
                    if name not in names:
                        raise Mistake(
                            f"there is no node {name}; there are {', '.join(names)}", "candidates", number, key
                        )
        if self.port == self.rendezvous_port:
            raise Mistake(f"port and rendezvous_port are both {self.port}", "port")
        return self
