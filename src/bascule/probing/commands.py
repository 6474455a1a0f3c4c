"""The command `bascule probe`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from bascule.errors import RecipeError

INTERRUPTED = 130

app = App(
    name="probe",
    help="Prove from their files whether engines can serve models: nothing is started or imported, no GPU is needed.",
)

Repeated = Parameter(negative="")


@dataclass(frozen=True)
class Asked:
    """What is asked of every target.

    Parameters
    ----------
    model
        A folder, a config.json, owner/name on a hub, or an architecture such as LlamaForCausalLM. Repeatable.
    gpu
        Do the compiled kernels run on this GPU? Such as sm_121.
    engine
        The engine to ask about, where a target has several.
    flag
        A flag that the engine shall know, with its value, as in --flag "--reasoning-parser qwen3". Repeatable.
    node
        Where images, containers and environments are: an SSH destination.
    platform
        Which image of several in a registry, such as linux/arm64.
    insecure
        Speak http with the registry; one on this machine is asked so anyway.
    run
        At the end, also import the engine's own registry: in an image without network, GPU, capabilities or a
        writable root.
    json
        One JSON object a line for each target and model.
    """

    model: Annotated[tuple[str, ...], Repeated]
    gpu: str = ""
    engine: str = ""
    flag: Annotated[tuple[str, ...], Parameter(negative="", allow_leading_hyphen=True)] = ()
    node: str = "local"
    platform: str = ""
    insecure: Annotated[bool, Repeated] = False
    run: Annotated[bool, Repeated] = False
    json: Annotated[bool, Repeated] = False


@app.default
def probe(*targets: str, asked: Annotated[Asked, Parameter(name="*")]) -> int:
    """Prove from their files whether engines can serve models: nothing is started or imported, no GPU is needed.

    Several targets or models give a matrix. Exit status 0 when a target can serve one of the models, 4 when none can.

    Parameters
    ----------
    targets
        An image or a container on the node, a Python environment, a wheel or a folder of wheels, a `docker save`
        archive, or an image in a registry that nobody has pulled. `venv:`, `wheel:`, `archive:`, `image:`,
        `container:` or `registry:` before it says which, where that isn't plain.
    """
    from bascule.interrupt import run
    from bascule.probing.answer import answer

    if not targets:
        raise RecipeError("usage", "nothing to probe", advice="bascule probe TARGET… --model MODEL")
    status: int = run(answer(targets, asked), INTERRUPTED)
    return status
