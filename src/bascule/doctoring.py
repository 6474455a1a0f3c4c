"""The command `bascule doctor`: what the nodes have and are, and what stands in the way of a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from bascule.errors import RecipeError
from bascule.show.plain import out, print_json, tell_error

if TYPE_CHECKING:
    from bascule.core.nouns import Node
    from bascule.operate.doctor import Examination
    from bascule.preflight.addresses import Proven

app = App(name="doctor", help="Look at the nodes: what they have and are, and what stands in the way of a start.")

Json = Annotated[bool, Parameter(name="--json", negative="")]
Nodes = Annotated[list[str] | None, Parameter(name="--node", negative="")]
Addresses = Annotated[bool, Parameter(name="--addresses", negative="")]
NoProof = Annotated[bool, Parameter(name="--no-proof", negative="")]
UNREACHABLE, BLOCKED, INTERRUPTED = 3, 4, 130


@app.default
def doctor(
    recipe: Path | None = None,
    *,
    node: Nodes = None,
    addresses: Addresses = False,
    no_proof: NoProof = False,
    json: Json = False,
) -> int:
    """Look at the nodes: what they have and are, and what stands in the way of a start.

    All are read at once, by one short script over ssh; nothing is installed or changed. Several nodes also try to
    reach each other at the addresses that they would tell. What could not be read is told as unknown, with the reason.
    A node that does not answer is told beside the others, and the exit status is 3; it is 4 when a start would fail.

    Parameters
    ----------
    recipe
        A recipe (.yaml), whose nodes are looked at; left out, with no `--node`: this machine.
    node
        A node, as an SSH destination, or name=…,host=…,address=…; repeat it.
    addresses
        Show all of it: who would tell whom which address, over which link, with round trip and rate of every pair.
    no_proof
        Only read the nodes; they don't try to reach each other.
    json
        Print data for programs: all facts, notices and errors.
    """
    from bascule.interrupt import run
    from bascule.operate.doctor import examine

    if addresses and no_proof:
        raise RecipeError("usage", "--addresses shows what --no-proof leaves out", advice="take one of them")
    found = run(examine(_nodes(recipe, node or []), prove=None if no_proof else _prove), INTERRUPTED)
    if isinstance(found, int):
        return found
    print_json(_plain(found)) if json else _tell(found, addresses)
    return UNREACHABLE if found.lost else BLOCKED if found.blocked else 0


async def _prove(nodes: Sequence[Node]) -> Proven:
    from bascule.preflight.addresses import prove_addresses

    return await prove_addresses(nodes)


def _tell(found: Examination, addresses: bool) -> None:
    from bascule.show.doctor import doctor_lines

    out("\n".join(doctor_lines(found, addresses=addresses)))
    for error in found.lost.values():
        tell_error(error.code, error.says, error.seen, error.advice)


def _nodes(recipe: Path | None, words: list[str]) -> list[Node]:
    """The schema is loaded only where it is needed: it takes as long as reading two nodes."""
    from bascule.recipe.destinations import plain_nodes

    if recipe is None and (plain := plain_nodes(words or ["local"])):
        return plain
    from bascule.recipe.load import load
    from bascule.recipe.words import nodes_from_words

    if recipe is None:
        return nodes_from_words(words)
    if words:
        raise RecipeError("usage", "a recipe and --node are two ways to say the same", advice=f"edit {recipe}")
    return [one.node() for one in load(recipe).nodes]


def _plain(found: Examination) -> Mapping[str, Any]:
    there = {node.name: node for node in found.nodes}
    rows = [_row(name, there, found) for name in found.asked]
    return {"nodes": rows, "notices": found.notices, "addresses": found.proven}


def _row(name: str, there: Mapping[str, Node], found: Examination) -> Mapping[str, Any]:
    if name in there:
        return {"name": name, "answers": True, "facts": there[name].facts, "error": None}
    error = found.lost[name]
    said = {"code": error.code, "says": error.says, "seen": error.seen}
    return {"name": name, "answers": False, "facts": None, "error": said}
