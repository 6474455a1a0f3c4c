"""What is known before the first start, told from its events: nodes, addresses, the model, candidates (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bascule.core.units import rate
from bascule.show.say import Plain, Say, evidence

if TYPE_CHECKING:
    from bascule.journal import Event
    from bascule.show.story import Narrator


def _run_started(story: Narrator, event: Event) -> Iterator[Say]:
    nodes = ", ".join(node["name"] for node in event.data["nodes"])
    run = f"run {event.run}" if event.run else "plan: nothing is started"
    yield Say("", f"{event.data['service']} on {nodes}   {run}", "strong")
    if story.whole:
        yield Say("asked", f"{event.data['source']}   {event.at.astimezone():%Y-%m-%d %H:%M:%S}")


def _nodes(story: Narrator, event: Event) -> Iterator[Say]:
    for node in event.data["nodes"]:
        facts = node["facts"]
        parts = [facts["arch"] or "?", f"{facts['cores'] or '?'} cores"]
        if facts["memory_bytes"]:
            parts.append(f"{facts['memory_bytes'] / 2**30:.0f} GiB")
        parts += [_gpu(gpu) for gpu in facts["gpus"] or []]
        yield Say("node", f"{node['name']}   {node['host']}   {' · '.join(parts)}")
        for what, why in facts["unknown"].items() if story.whole else ():
            yield Say("", f"{node['name']}   {what} could not be read: {why}", "dim")


def _gpu(gpu: Plain | str) -> str:
    """Journals of before had its name alone."""
    return gpu if isinstance(gpu, str) else " ".join(filter(None, (gpu["name"], gpu["sm"])))


def _model(story: Narrator, event: Event) -> Iterator[Say]:
    model = event.data["model"]
    size = f" · {model['bytes'] / 1e6:,.1f} MB" if model["bytes"] else ""
    yield Say("model", f"{model['path']}   {', '.join(model['architectures'])}{size}")


def _candidates(story: Narrator, event: Event) -> Iterator[Say]:
    story.budget = event.data.get("budget", 0)
    for candidate in event.data["candidates"]:
        story.number_of(candidate)
    yield Say("candidates", str(len(story.numbers)))


def _probed(story: Narrator, event: Event) -> Iterator[Say]:
    candidate, finding = event.data["candidate"], event.data["finding"]
    verdict, tone = {"ok": ("yes", "good"), "hopeless": ("no", "bad")}.get(finding["fate"], ("unknown", "dim"))
    yield Say(f"{story.number_of(candidate)}", f"{candidate['name']:<22} {verdict:<8} {finding['says']}", tone)
    yield Say("", f"{'':<31} {finding['evidence'][0]['source']}", "dim")
    if story.whole:
        yield from evidence(finding)


def _remembered(story: Narrator, event: Event) -> Iterator[Say]:
    changes, name = ", ".join(event.data["changes"]), event.data["candidate"]["name"]
    yield Say("known", f"{name} served with {changes} in run {event.data['since']}: used from the start", "strong")


def _addresses(story: Narrator, event: Event) -> Iterator[Say]:
    proven = event.data["proven"]
    plan, told = proven["plan"], [one for one in proven["notices"] if story.whole or one["weight"] != "note"]
    if plan and len(plan["rows"]) > 1:
        tells = " ⇄ ".join(f"{row['node']} {row['zmq']['ip']} ({row['zmq']['interface']})" for row in plan["rows"])
        yield Say("fabric", f"{tells}   {_measured(proven['pairs'])}".rstrip())
        if story.whole:
            yield Say("", plan["because"], "dim")
    if proven["findings"][0]["fate"] not in ("ok", "unknown"):
        yield Say("", f"{proven['findings'][0]['code']}: {proven['findings'][0]['says']}", "bad")
    for notice in told:
        yield Say("", f"{notice['code']}: {notice['says']}", "dim")


def _fitted(story: Narrator, event: Event) -> Iterator[Say]:
    """A line for each layout that is new, and each refusal."""
    fitness = event.data["fitness"]
    told = fit_text(fitness)
    if fitness["refused"]:
        yield Say(f"{story.number_of(event.data['candidate'])}", f"{'no':<8} {fitness['refused']['says']}", "bad")
        yield Say("     try", fitness["refused"]["advice"])
    elif story.whole or (told and fitness["fit"] and story.layouts.get("told") != told):
        story.layouts["told"] = told
        yield Say("fits", told or f"unknown: {fitness['unknown']}")


def fit_text(fitness: Plain) -> str:
    """Memory, context and bound of a layout; "" when nothing is known of it."""
    found, bound = fitness["fit"], fitness["bound"] or {}
    if not found or not found["nodes"]:
        return ""
    node = max(found["nodes"], key=lambda one: one["weights"] + one["overhead"])
    word = {True: "", False: "does not fit: ", None: "unknown whether it fits: "}[found["fits"]]
    room = f" of {size(node['room'])}" if node["room"] else ""
    words = [f"{word}{fitness['layout']}: {size(node['weights'])} + {size(node['overhead'])}{room} a rank"]
    words += [f"context up to {found['context']}"] if found["fits"] else []
    words += [f"at most {bound['tok_s']:.0f} tok/s"] if bound.get("tok_s") else []
    return " · ".join(words)


def size(count: float) -> str:
    """Bytes in the unit that a person would choose."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _measured(pairs: Sequence[Plain]) -> str:
    """The slowest of all pairs."""
    bad = [f"{pair['origin']} → {pair['target']} {pair['outcome']}" for pair in pairs if pair["outcome"] != "reached"]
    if bad:
        return " · ".join(bad[:3])
    trips = [pair["round_trip_s"] for pair in pairs if pair["round_trip_s"] is not None]
    rates = [pair["rate"] for pair in pairs if pair["rate"] is not None]
    words = [f"{rate(min(rates))} TCP"] if rates else []
    return " · ".join([*words, *([f"{1000 * max(trips):.2f} ms"] if trips else [])])


def _discovered(story: Narrator, event: Event) -> Iterator[Say]:
    data = event.data
    held, refused, unread = len(data["held"]), len(data["refused"]), data["unread"]
    yield Say("found", f"{len(data['candidates'])} could serve it · {refused} could not · {held} held back")
    for row in data["held"][:3]:
        yield Say("", f"{row['names'][0]}: {row['because']}", "dim")
    for one in unread if story.whole else ():
        yield Say("", f"{one['source']} was not read: {one['why']}", "dim")


def _trusted(story: Narrator, event: Event) -> Iterator[Say]:
    yield Say("trusted", f"{', '.join(event.data['publishers'])}: said at the terminal, for this run")


def _asking(story: Narrator, event: Event) -> Iterator[Say]:
    """What is waited for, when registries are asked."""
    yield Say("asking", event.data["says"], "dim")


TELLERS: Mapping[str, Callable[[Narrator, Event], Iterator[Say]]] = {
    "run-started": _run_started,
    "nodes": _nodes,
    "addresses": _addresses,
    "model": _model,
    "asking": _asking,
    "discovered": _discovered,
    "trusted": _trusted,
    "candidates": _candidates,
    "fitted": _fitted,
    "probed": _probed,
    "remembered": _remembered,
}
