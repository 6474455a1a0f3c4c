"""What `bascule fit` says: the model, the machines, and a line for each layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bascule.core.choose import Choice
from bascule.core.fit import Engine, Fit, NodeFit, Room, Wish
from bascule.core.nouns import Model
from bascule.core.parallel import Layout
from bascule.core.roofline import Bound
from bascule.core.shape import Shape

MOST = 6  # layouts of a kind that are shown unless all are asked for
_GIB = 1 << 30
_MEMORIES: Mapping[str, str] = {
    "full": "full",
    "sliding": "sliding",
    "chunked": "in chunks",
    "latent": "latent",
    "recurrent": "recurrent",
    "none": "without attention",
}


@dataclass(frozen=True, slots=True)
class Told:
    """All that is told."""

    model: Model
    shape: Shape
    rooms: Sequence[Room]
    engine: Engine
    wish: Wish
    choices: Sequence[Choice]


def fit_lines(told: Told, *, whole: bool = False) -> list[str]:
    """The table; `whole`: every layout."""
    legal = [choice for choice in told.choices if choice.fit.legal and (whole or _worth_a_line(choice, told.choices))]
    refused = [choice for choice in told.choices if not choice.fit.legal and (whole or not choice.fit.layout.experts)]
    shown = [*_some(legal, whole), *_some(refused, whole)]
    several = len(told.rooms) > 1
    width = max((len(_place(choice.fit.layout, several=several)) for choice in shown), default=0)
    lines = [f"model    {_model(told)}", *_machines(told.rooms), ""]
    lines += [_line(choice, several, width) for choice in _some(legal, whole)]
    lines += _left_out(len(legal), whole, "layouts")
    for choice in _some(refused, whole):
        lines += _refused(choice.fit, several, width, None if whole else 1)
    return [*lines, *_left_out(len(refused), whole, "layouts that the engine would refuse"), *_notes(told)]


def _worth_a_line(choice: Choice, choices: Sequence[Choice]) -> bool:
    """Whole experts on each rank are worth a line where slices of all of them are refused or too large."""
    layout = choice.fit.layout
    if not layout.experts:
        return True
    plain_one = next(one.fit for one in choices if one.fit.layout == replace(layout, experts=False))
    return not plain_one.legal or (choice.fit.fits is True and plain_one.fits is not True)


def plain(told: Told) -> dict[str, Any]:
    """As `--json` gives it."""
    shape = told.shape
    return {
        "model": {"path": told.model.path, "bytes": told.model.bytes, "counted": shape.exact, "context": shape.context},
        "engine": told.engine.name,
        "token_bytes": _token_bytes(told),
        "state_bytes": _state_bytes(told),
        "nodes": told.rooms,
        "layouts": [_row(choice) for choice in told.choices],
    }


def _row(choice: Choice) -> dict[str, Any]:
    one = choice.fit
    return {
        "layout": {**_fields(one.layout), "ranks": one.layout.ranks, "says": str(one.layout)},
        "fits": one.fits,
        "refusals": one.refusals,
        "unknown": one.unknown,
        "context": one.context,
        "sequences": one.sequences,
        "tokens": one.tokens,
        "utilisation": one.utilisation,
        "nodes": one.nodes,
        "bound": choice.bound,
    }


def _fields(layout: Layout) -> dict[str, Any]:
    return {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "nodes": layout.nodes,
        "experts": layout.experts,
    }


def _model(told: Told) -> str:
    """Its size, its layers and what a token and a sequence take, on one rank."""
    shape = told.shape
    counts = Counter(shape.layers[kind].mixer.memory for kind in shape.order)
    layers = " + ".join(f"{count} {_MEMORIES[memory]}" for memory, count in counts.items())
    size = sum(told.choices[0].fit.nodes[0].parts.values()) if not told.model.bytes else told.model.bytes
    words = [
        f"{told.model.path}   {_gib(size)} GiB{'' if told.model.bytes_exact else ' by its config.json'}",
        f"{len(shape.order)} layers: {layers}",
        f"{_kib(_token_bytes(told))} a token",
    ]
    if state := _state_bytes(told):
        words.append(f"{state / (1 << 20):.0f} MiB a sequence")
    return " · ".join(words)


def _token_bytes(told: Told) -> int:
    """Bytes of one token in the caches of all layers, without parallelism."""
    number = told.wish.number or told.shape.number
    return sum(told.shape.layers[kind].mixer.token_bytes(1, number) for kind in told.shape.order)


def _state_bytes(told: Told) -> int:
    states = [told.shape.layers[kind].mixer.state for kind in told.shape.order]
    return sum(state.rank_bytes(1) for state in states if state)


def _machines(rooms: Sequence[Room]) -> Iterator[str]:
    """A line for each kind of machine."""
    kinds: dict[tuple[Any, ...], list[str]] = {}
    for room in rooms:
        kinds.setdefault((room.device, room.gpus, room.total, room.kind, room.bandwidth, room.unknown), []).append(
            room.node
        )
    for (device, gpus, total, kind, bandwidth, unknown), names in kinds.items():
        size = f"{_gib(total)} GiB{' unified' if kind == 'unified' else ''}" if total else f"memory ? ({unknown})"
        speed = f"{bandwidth / 1e9:.0f} GB/s" if bandwidth else "bandwidth ?"
        many = f"{gpus} × " if gpus > 1 else ""
        yield f"nodes    {_some_names(names)}   {many}{device or 'GPU ?'} · {size} · {speed}"


def _some_names(names: Sequence[str]) -> str:
    return " ".join(names) if len(names) <= 6 else f"{' '.join(names[:3])} … {names[-1]} ({len(names)})"


def _line(choice: Choice, several: bool, width: int) -> str:
    one = choice.fit
    word = {True: "fits", None: "unknown", False: "no"}[one.fits]
    words = [_memory(one)]
    if one.fits:
        words += [
            f"context up to {one.context}",
            f"room for {one.sequences} at once",
            f"utilisation {one.utilisation:.2f}",
        ]
    if choice.bound and one.fits is not False:
        words.append(_speed(choice.bound))
    return f"{word:<8} {_place(one.layout, several=several):<{width}}   {' · '.join(words)}"


def _place(layout: Layout, *, several: bool) -> str:
    where = f"{layout.nodes} node{'s' if layout.nodes > 1 else ''}"
    gpus = f"{layout.on_each} GPUs each" if layout.on_each > 1 else ""
    return ", ".join(word for word in (str(layout), where if several else "", gpus) if word)


def _memory(one: Fit) -> str:
    """The node that has least room to spare: weights + all else of what it may take."""
    node = min(one.nodes, key=_spare)
    if node.room is None or node.total is None:
        return f"{_gib(node.weights)} + {_gib(node.overhead)} GiB a rank of ? ({one.unknown})"
    where = f" on {node.node}" if len({(each.weights, each.room) for each in one.nodes}) > 1 else " a rank"
    return f"{_gib(node.weights)} + {_gib(node.overhead + node.cache)} of {_gib(node.room)} GiB{where}"


def _spare(node: NodeFit) -> int:
    return (node.room or 0) - node.weights - node.overhead - node.cache


def _speed(speed: Bound) -> str:
    if speed.tok_s is None:
        return f"speed ? ({speed.unknown})"
    share = f", {speed.exchanges} exchanges take {speed.lost:.0%} of it" if speed.exchanges and speed.lost else ""
    fast = f"{speed.tok_s:.0f}" if speed.tok_s >= 10 else f"{speed.tok_s:.2g}"
    return f"at most {fast} tok/s{share}"


def _refused(one: Fit, several: bool, width: int, most: int | None) -> Iterator[str]:
    shown = one.refusals[:most]
    for at, refusal in enumerate(shown):
        place = _place(one.layout, several=several) if at == 0 else ""
        yield f"{'illegal' if at == 0 else '':<8} {place:<{width}}   {refusal.code}: {refusal.says}"
        yield f"{'':<8} {'':<{width}}     try: {refusal.remedy}"
    if more := len(one.refusals) - len(shown):
        yield f"{'':<8} {'':<{width}}     and {more} more reason{'s' if more > 1 else ''}: --all"


def _some(choices: Sequence[Choice], whole: bool) -> Sequence[Choice]:
    return choices if whole else choices[:MOST]


def _left_out(count: int, whole: bool, what: str) -> list[str]:
    return [] if whole or count <= MOST else [f"{'':<8} and {count - MOST} more {what}: --all"]


def _notes(told: Told) -> Iterator[str]:
    """What a person has to know to use these figures."""
    best = told.choices[0].fit if told.choices else None
    if best and best.fits and best.utilisation is not None:
        flag = "--mem-fraction-static" if told.engine.name == "sglang" else "--gpu-memory-utilization"
        yield ""
        yield f"flags    {flag} {best.utilisation:.2f}" + (f" --max-num-seqs {told.wish.sequences}" * _limits(told))
    if any(room.kind == "unified" for room in told.rooms):
        yield "note     of unified memory the system and the page cache use the rest; more than 0.9 has frozen machines"


def _limits(told: Told) -> bool:
    return told.wish.sequences is not None and told.engine.name == "vllm"


def _gib(size: int) -> str:
    value = size / _GIB
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB"
