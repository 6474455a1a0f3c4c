"""The command `bascule fit`: whether a model fits on machines, in which layouts, and how fast it can be at best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

INTERRUPTED = 130

app = App(name="fit", help="Tell whether a model fits on machines, in which layouts, and how fast it can be at best.")

Repeated = Parameter(negative="")


@dataclass(frozen=True)
class Asked:
    """What is asked of a model.

    Parameters
    ----------
    node
        A machine whose memory is read, as an SSH destination, or name=…,host=…; repeat it. Without it and without
        --gpu it is this machine.
    gpu
        Machines that nobody has yet: the name of their GPU, and how many each has, as in H100:8.
    nodes
        How many of these machines.
    engine
        Whose rules count: vllm or sglang.
    engine_version
        Of which release, such as 0.24.0; left out: the newest that was looked at.
    context
        Tokens of one sequence that have to fit; left out: as many as fit.
    sequences
        Sequences of that context at once that have to fit.
    cache_bytes
        Bytes of one number in the KV cache: 1 for FP8; left out: as the model's numbers.
    utilisation
        The share of the memory that the engine is given, such as 0.85; left out: one is proposed.
    drafts
        Count the layers that predict more tokens, too.
    bandwidth
        What was measured of the memory, in 10^9 bytes a second; left out: what the data sheet of the GPU says.
    link
        How the machines exchange: rdma or sockets; left out: by their interfaces, rdma for --gpu.
    all
        Every layout, also those that an engine would refuse.
    json
        Print data for programs.
    """

    node: Annotated[tuple[str, ...], Repeated] = ()
    gpu: str = ""
    nodes: int = 1
    engine: str = "vllm"
    engine_version: str = ""
    context: int | None = None
    sequences: int | None = None
    cache_bytes: int | None = None
    utilisation: float | None = None
    drafts: Annotated[bool, Repeated] = False
    bandwidth: float | None = None
    link: str = ""
    all: Annotated[bool, Repeated] = False
    json: Annotated[bool, Repeated] = False


@app.default
def fit(model: str, *, asked: Annotated[Asked, Parameter(name="*")] = Asked()) -> int:
    """Tell whether a model fits on machines, in which layouts, and how fast it can be at best; nothing is started.

    Exit status 0 when at least one layout fits, 4 when none does or it is not known.

    Parameters
    ----------
    model
        A folder, a config.json, or owner/name on a hub.
    """
    from bascule.fitting.answer import answer
    from bascule.interrupt import run

    status: int = run(answer(model, asked), INTERRUPTED)
    return status
