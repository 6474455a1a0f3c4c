"""How an image gets to other hosts: `bascule copy image` side by side with `docker save | ssh docker load`.

Real sshd and dockerd on hosts in network namespaces of this machine, so all hosts share its cores. Bytes are the
interfaces' own counts, CPU is per host. The last line is one JSON object; each figure there is a ratio of medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from copy_lab import CopyLab, Counts

from bascule import settings
from bascule.core.nouns import Node
from bascule.distribute.images.copy import CopyProgress, Receipt, copy_image
from bascule.remote.connect import connect

LAYERS = (("rootfs", 120), ("cuda", 300), ("torch", 400), ("packages", 260))  # MiB: 90 % of the image
OLD, NEW = ("old", 120), ("new", 120)
TARGETS = ("h2", "h3", "h4", "h5")


@dataclass(frozen=True)
class Run:
    """One measured copy."""

    seconds: float
    counts: Counts

    @property
    def sent(self) -> int:
        """Bytes that the head sent."""
        return self.counts.sent["h1"]


def main() -> None:
    """All cases in turn, ours and the baseline interleaved."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--user", default="root", help="whom bascule logs in as on the head; op has no root there")
    words.add_argument("--rate", default="1gbit", help="of held links, as tc writes it")
    words.add_argument("--four", action="store_true", help="only the copies to four targets over held links")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.environ.update(XDG_STATE_HOME=state, XDG_RUNTIME_DIR=state)
        with CopyLab(1 + len(TARGETS)) as lab:
            os.environ[settings.SSH_VARIABLE] = f"ssh -F {lab.lab.folder}/ssh_config"
            lab.build("engine:old", (*LAYERS, OLD))
            lab.build("engine:new", (*LAYERS, NEW))
            head = f"{asked.user}@h1"
            lab.limit(asked.rate)
            print(json.dumps(four(lab, asked.rounds, head) if asked.four else all_cases(lab, asked, head)))


def all_cases(lab: CopyLab, asked: argparse.Namespace, head: str) -> dict[str, float]:
    """The figures."""
    found: dict[str, float] = {}
    rounds = asked.rounds
    for rate, mark in ((asked.rate, ""), ("", "_unshaped")):
        lab.limit(rate)
        print(f"-- links {f'held to {rate}' if rate else 'not held'}")
        full, base = pairs(lab, rounds, head, prepared=False)
        found[f"time_ratio_empty{mark}"] = ratio([run.seconds for run in full], [run.seconds for run in base])
        part, base = pairs(lab, rounds, head, prepared=True)
        found[f"time_ratio_90{mark}"] = ratio([run.seconds for run in part], [run.seconds for run in base])
        found[f"bytes_ratio_90{mark}"] = ratio([run.sent for run in part], [run.sent for run in base])
        if rate:
            once = median(run.sent for run in full)
            found["resume_bytes_ratio"] = round(resumed(lab, head) / once, 3)
            found |= four(lab, rounds, head, once)
    return found


def four(lab: CopyLab, rounds: int, head: str, once: float | None = None) -> dict[str, float]:
    """What four targets cost; `once`: bytes that the head sends to one, left out when they are not known."""
    together, one_by_one = zip(*(many(lab, head) for _ in range(rounds)), strict=True)
    sent = median(run.sent for run in together)
    found = {"targets4_head_bytes_ratio": round(sent / once, 3)} if once else {}
    times = [run.seconds for run in together], [run.seconds for run in one_by_one]
    return {**found, "targets4_time_ratio_vs_baseline": ratio(*times)}


def pairs(lab: CopyLab, rounds: int, head: str, *, prepared: bool) -> tuple[list[Run], list[Run]]:
    """Ours and the baseline in turn to one target: empty, or with all layers but the last."""
    ours, base = [], []
    name = "90 % there" if prepared else "empty"
    if prepared:
        ask(head, "engine:old", ("h2",))
    for _ in range(rounds):
        for kept, what, do in (
            (base, "baseline", lambda: lab.baseline("engine:new", "h2")),
            (ours, "bascule", lambda: ask(head, "engine:new", ("h2",))),
        ):
            lab.empty(("h2",), but="engine:old" if prepared else "")
            kept.append(measured(lab, f"{name:<11} {what}", do))
    return ours, base


def many(lab: CopyLab, head: str) -> tuple[Run, Run]:
    """Four empty targets: ours at once, the baseline one after the other."""
    lab.empty(TARGETS)
    base = measured(lab, "4 targets   baseline", lambda: [lab.baseline("engine:new", name) for name in TARGETS])
    lab.empty(TARGETS)
    return measured(lab, "4 targets   bascule", lambda: ask(head, "engine:new", TARGETS)), base


def resumed(lab: CopyLab, head: str) -> int:
    """Bytes that the head sends for the second try, when the first was ended half way."""
    lab.empty(("h2",))

    async def half() -> None:
        over = asyncio.Event()
        nodes = [Node("h1", head), Node("h2", "h2")]
        watch: Callable[[CopyProgress], None] = lambda at: over.set() if at.done > at.total / 2 else None  # noqa: E731
        copying = asyncio.create_task(copy_image("engine:new", nodes[0], nodes[1:], connect(nodes), watch))
        await over.wait()
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)

    measured(lab, "cut at half bascule", lambda: asyncio.run(half()))
    return measured(lab, "second try  bascule", lambda: ask(head, "engine:new", ("h2",))).sent


def ask(head: str, image: str, targets: Sequence[str]) -> None:
    """Copy with bascule; anything but a receipt ends the benchmark."""
    nodes = [Node("h1", head), *(Node(name, name) for name in targets)]
    outcomes = asyncio.run(copy_image(image, nodes[0], nodes[1:], connect(nodes), lambda _: None))
    wrong = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, Receipt)}
    assert not wrong, wrong


def measured(lab: CopyLab, name: str, do: Callable[[], object]) -> Run:
    """Time it, and print what it took."""
    before, began = lab.counts(), time.perf_counter()
    do()
    run = Run(time.perf_counter() - began, lab.counts().since(before))
    cpu = " ".join(f"{seconds:.1f}" for seconds in run.counts.cpu.values())
    print(f"{name:<21} {run.seconds:6.1f} s   head sent {run.sent / 1e6:7.1f} MB   CPU s by host {cpu}", flush=True)
    return run


def ratio(ours: Sequence[float], base: Sequence[float]) -> float:
    """Of medians."""
    return round(median(ours) / median(base), 3)


if __name__ == "__main__":
    main()
