"""What `up` and `plan` may be told besides what to serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

Repeated = Parameter(negative="")


@dataclass(frozen=True)
class Wish:
    """For which nodes, and where to look for candidates.

    Parameters
    ----------
    node
        Without a recipe: a node, as an SSH destination, or name=…,host=…,address=…; `local` is this machine.
        Repeat it; the first is the head.
    venv
        Without a recipe: where to look for engines on the nodes. Repeatable.
    service
        The name of the service, instead of the recipe's.
    port
        Where the head answers, instead of the recipe's.
    trust
        Where no candidates are named: a publisher on a public registry whose images may be taken. Repeatable.
    search
        Where no candidates are named: ask registries too, when something on the nodes would do.
    """

    node: Annotated[tuple[str, ...], Repeated] = ()
    venv: Annotated[tuple[str, ...], Repeated] = ()
    service: str | None = None
    port: int | None = None
    trust: Annotated[tuple[str, ...], Repeated] = ()
    search: Annotated[bool, Repeated] = False
