"""The venv runtime: a rank is a detached process group with a run folder, found again after the controller died."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from bascule.core.nouns import Glimpse, Node, RankPlan, RankState
from bascule.errors import NodeTrouble
from bascule.remote import shell
from bascule.remote.runner import Result, Runner

MARK = "BASCULE_RANK"  # in the environment of everything a rank starts: its folder, since names may come twice
TERM_GRACE = 6  # seconds from TERM to KILL; a rank that waits in rendezvous ignores TERM anyway


def rank_name(service: str, generation: str, rank: int) -> str:
    """The folder of a rank, under the run folder of its node; services have no dots in their names."""
    return f"{service}.{generation}.r{rank}"


def start_script(root: str, name: str, plan: RankPlan, label: Mapping[str, str]) -> str:
    """A script for one node that starts a rank and returns at once; it leaves nothing when it fails.

    It is one function and its call: a shell whose input ends early has run nothing of it.
    """
    folder = f"{root}/{name}"
    quoted = shell.line((folder,))
    files = {"label": "".join(f"{key}={value}\n" for key, value in label.items()), "run": _leader(folder, plan)}
    lines = (
        f"mkdir -p {shell.line((root,))}\n"
        f"mkdir {quoted}\n"
        f"trap 'rm -rf {quoted}' EXIT\n"
        f"cd {quoted}\n"
        + "".join(shell.here_document(path, text) for path, text in {**plan.files, **files}.items())
        + f"{MARK}={quoted} setsid sh ./run </dev/null >/dev/null 2>&1 &\n"
        "tries=50; while [ ! -s pid ] && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done\n"
        "[ -s pid ]\n"
        "trap - EXIT\n"
    )
    return f"set -eu; umask 077\nstart() {{\n{lines}}}\nstart\n"


class VenvRuntime:
    """Detached process groups, each with a run folder."""

    async def start(self, runner: Runner, node: Node, name: str, plan: RankPlan, label: Mapping[str, str]) -> Result:
        """See Runtime.start."""
        return await runner.run(("sh", "-s"), stdin=start_script(root_of(node), name, plan, label), within=20)

    async def observe(self, runner: Runner, node: Node, cursors: Mapping[str, str]) -> list[Glimpse]:
        """See Runtime.observe; a cursor is the number of bytes of the log already read."""
        words = [word for name, cursor in cursors.items() for word in (name, cursor or "0")]
        result = await _call(runner, "observe", root_of(node), *words)
        return parse_glimpses(result.stdout)

    async def find(self, runner: Runner, node: Node, service: str = "") -> list[RankState]:
        """See Runtime.find; from the labels in the run folders."""
        result = await _call(runner, "list", root_of(node), service)
        return parse_states(result.text, node.name)

    async def stop(self, runner: Runner, node: Node, names: Sequence[str], grace: int) -> None:
        """See Runtime.stop; also ends what the ranks started."""
        if not names:
            return
        result = await _call(runner, "stop", root_of(node), str(grace), *names, within=grace + 25)
        if not result.ok:
            raise NodeTrouble("not-stopped", f"a rank on {node.name} did not end", seen=result.complaint)

    async def remove(self, runner: Runner, node: Node, names: Sequence[str]) -> None:
        """See Runtime.remove; the run folders."""
        if names:
            await _call(runner, "remove", root_of(node), *names)


def root_of(node: Node) -> str:
    """Where a node keeps the run folders. Raises NodeTrouble when that could not be read."""
    if node.facts.run_dir is None:
        why = node.facts.unknown.get("run_dir", "its facts were not read")
        raise NodeTrouble("no-run-folder", f"{node.name} has no run folder", seen=why)
    return node.facts.run_dir


def parse_glimpses(out: bytes) -> list[Glimpse]:
    """Blocks of `=== NAME ALIVE EXIT BYTES OFFSET`, then so many bytes of log from OFFSET on, and a newline."""
    glimpses = []
    while out.startswith(b"=== "):
        head, _, rest = out.partition(b"\n")
        name, alive, code, size, offset = head.decode().split()[1:]
        gained, out = rest[: int(size)], rest[int(size) + 1 :]
        cursor = str(int(offset) + len(gained))
        glimpses.append(Glimpse(name, alive == "1", int(code) if code != "-" else None, gained, cursor))
    return glimpses


def parse_states(text: str, node: str) -> list[RankState]:
    """Blocks of `=== NAME` and key=value lines."""
    blocks = [block.splitlines() for block in text.split("=== ")[1:]]
    return [_state(block[0], dict(_pairs(block[1:])), node) for block in blocks]


def _state(name: str, label: dict[str, str], node: str) -> RankState:
    service, generation, rank = (
        name.split(".", 1)[0],
        name.split(".", 1)[1].rpartition(".")[0],
        name.rpartition(".r")[2],
    )
    alive = label.pop("alive", "0") == "1"
    code, pid, began = label.pop("exit", ""), label.pop("pid", ""), label.get("started_at", "")
    return RankState(
        service,
        generation,
        int(rank) if rank.isdigit() else -1,
        label.get("node", node),
        alive,
        int(code) if code.lstrip("-").isdigit() else None,
        int(pid) if pid.isdigit() else None,
        float(began) if began else None,
        label,
    )


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        key, equals, value = line.partition("=")
        if equals:
            yield key, value


def _leader(folder: str, plan: RankPlan) -> str:
    """The rank's leader: notes who it is, runs the engine with the log as its output, notes how it ended."""
    path = shell.line((":".join(_programs(plan)),))
    return (
        f"# rank {plan.rank} on {plan.node}: the leader of its process group\n"
        "trap : TERM INT HUP\n"
        'echo "$$ $(sed \'s/^.*) //\' /proc/$$/stat | cut -d " " -f 20) $(cat /proc/sys/kernel/random/boot_id)" >pid\n'
        + (f'export PATH={path}:"$PATH"\n' if _programs(plan) else "")
        + shell.exports({**plan.env, MARK: folder})
        + f"{shell.line(plan.argv)} >log 2>&1\n"
        "echo $? >exit.new; mv exit.new exit\n"
    )


def _programs(plan: RankPlan) -> list[str]:
    """Folders of programs that come with the engine: those in folders of packages, and beside its interpreter."""
    packages = [f"{folder}/bin" for folder in plan.env.get("PYTHONPATH", "").split(":") if folder]
    return [*packages, plan.argv[0].rpartition("/")[0]] if "/" in plan.argv[0] else packages


async def _call(runner: Runner, function: str, *words: str, within: float = 30) -> Result:
    library = resources.files("bascule.launch").joinpath("venv.sh").read_text()
    return await runner.run(("sh", "-s", "--", function, *words), stdin=library, within=within)


def label_of(service: str, generation: str, plan: RankPlan, **more: object) -> dict[str, str]:
    """The label of a rank; values are one line each, structures as JSON."""
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in more.items()}
    return {"service": service, "generation": generation, "rank": str(plan.rank), "node": plan.node, **plain}
