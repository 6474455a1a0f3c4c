"""The tree of errors: bad input, lost machines and bugs; what an engine does wrong is a Finding instead.

BasculeError               code, exit status, what was seen, what to try
├── RecipeError        2   a recipe or a command line that can't be meant; file:line:column
├── ModelError         2   a model that is missing or broken, in a folder or on a hub
├── ProbeError         2   something to probe that is not there
├── NodeUnreachable    3   a node that doesn't answer
├── NodeTrouble        4   a node that answers and can't do it: disk full, no rights
└── Busy               2   another bascule works on the same service
"""

from __future__ import annotations


class BasculeError(Exception):
    """An error that a person can act on: a code to search for, what was seen, what to try."""

    exit_status = 1
    run: int | None = None  # the run in whose journal more is to be read

    def __init__(self, code: str, says: str, *, seen: str = "", advice: str = "") -> None:
        super().__init__(says)
        self.code = code
        self.says = says
        self.seen = seen
        self.advice = advice


class RecipeError(BasculeError):
    """A recipe or command line that can't be meant."""

    exit_status = 2


class ModelError(BasculeError):
    """A model folder that is missing or broken."""

    exit_status = 2


class ProbeError(BasculeError):
    """Something to probe that is not there, or that can't be asked so."""

    exit_status = 2


class Busy(BasculeError):
    """Another bascule works on the same service."""

    exit_status = 2


class NodeUnreachable(BasculeError):
    """A node that does not answer; carries what ssh said."""

    exit_status = 3


class NodeTrouble(BasculeError):
    """A node that answers and still can't do what was asked."""

    exit_status = 4
