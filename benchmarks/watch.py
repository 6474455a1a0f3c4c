"""How soon a start that goes wrong is called wrong, and that a slow one never is: real vLLM over two nodes here.

A rank is frozen in the rendezvous (time to the verdict), a rank is killed (time until that is seen), and a whole start
is slowed down to a tenth (no verdict but slow). Beside that: how many samples of the catalogue are named, how many
healthy logs are called a failure, and what the sampler costs its node. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from bascule.engines.base import read_lore
from bascule.watch.catalogue import catalogue
from bascule.watch.judge import HEALTHY, Diagnosis, judge
from bascule.watch.scan import Scan, guess_engine
from watch_sampler import sampler_cpu_fraction

ROOT = Path(__file__).resolve().parent.parent
BASCULE = Path(sys.executable).with_name("bascule")
LOGS = ROOT / "tests/logs"
RUNS_S, RESTS_S = 0.1, 0.9  # of each second, in the slow start
RECIPE = """\
service: bench-watch
model: {root}/models/adder
port: 8470
rendezvous_port: 29570
context: 512
nodes: [{{name: a, host: local, address: 127.0.0.1}}, {{name: b, host: local, address: 127.0.0.2}}]
candidates:
  - name: vllm
    engine: vllm
    venv: {root}/.engines/vllm-0.32.0
    args: --enforce-eager --reasoning-parser qwen3 --kv-cache-memory-bytes 67108864
    env: {{TORCHDYNAMO_DISABLE: 1}}
    env_on: {{a: {{VLLM_CPU_OMP_THREADS_BIND: 0}}, b: {{VLLM_CPU_OMP_THREADS_BIND: 1}}}}
"""


def main() -> None:
    """All of it."""
    hits, samples = catalogue_hits()
    false = false_alarms()
    print(f"catalogue   {hits} of {samples} samples named, {false} healthy logs called a failure", flush=True)
    stall = frozen()
    print(f"frozen      verdict {stall:.1f} s after rank 1 was stopped", flush=True)
    death = killed()
    print(f"killed      seen {death:.1f} s after rank 1 was killed", flush=True)
    alarms, took = slowed()
    print(f"slowed      {alarms} false alarms in a start of {took:.0f} s", flush=True)
    figures = {
        "stall_to_verdict_s_max": round(stall, 1),
        "dead_rank_s_max": round(death, 1),
        "false_alarms": false + alarms,
        "catalogue_hits": hits,
        "catalogue_samples": samples,
        "sampler_cpu_fraction": round(sampler_cpu_fraction(), 5),
    }
    print(json.dumps(figures))


def catalogue_hits() -> tuple[int, int]:
    """Samples that are named as the entry they belong to, of all that name a failure."""
    named = [(one, sample) for one in catalogue() if one.kind != "benign" for sample in one.samples]
    hits = sum(
        (found := diagnosed([sample])).failure is not None and found.failure.id == one.id for one, sample in named
    )
    return hits, len(named)


def false_alarms() -> int:
    """Recorded starts that became ready, and that are not called healthy."""
    healthy = {path.name.partition(".r")[0].removesuffix(".log") for path in LOGS.rglob("*-ok*.log")}
    starts = [sorted(LOGS.rglob(f"{name}*.log")) for name in sorted(healthy)]
    return sum(diagnosed([path.read_text() for path in ranks]).kind != HEALTHY for ranks in starts)


def diagnosed(texts: Sequence[str]) -> Diagnosis:
    """From the logs of ranks 0, 1, …"""
    told = []
    for rank, text in enumerate(texts):
        engine = guess_engine(text.split("\n"))
        scan = Scan(f"r{rank}", engine, read_lore(engine).phases if engine else ())
        scan.block(text)
        told.append(scan.told())
    return judge(told)


def frozen() -> float:
    """Seconds to the verdict from SIGSTOP of rank 1 in the rendezvous, or from when rank 0 has come there too."""
    with start() as run:
        run.wait_for("rendezvous", 1)
        pids = run.pids(1)
        send(pids, signal.SIGSTOP)
        began = datetime.now().astimezone()
        try:
            event = run.wait_until(
                lambda e: e["kind"] == "standing" and e["data"]["verdict"] in ("STALLED", "SPINNING")
            )
        finally:
            send(pids, signal.SIGCONT)
        stood, phases = datetime.fromisoformat(event["at"]), [e["at"] for e in run.events() if e["kind"] == "phase"]
        since_stop = (stood - began).total_seconds()
        since_phase = (stood - datetime.fromisoformat(max(phases))).total_seconds()
        print(f"frozen      {since_stop:.1f} s after the signal, {since_phase:.1f} s after the last phase of its peer")
        return min(since_stop, since_phase)


def killed() -> float:
    """Seconds from SIGKILL of rank 1 to the event."""
    with start() as run:
        run.wait_for("rendezvous", 1)
        began = datetime.now().astimezone()
        send(run.pids(1), signal.SIGKILL)
        event = run.wait_until(lambda e: e["kind"] == "rank-ended" and e["data"]["rank"] == 1)
        return (datetime.fromisoformat(event["at"]) - began).total_seconds()


def slowed() -> tuple[int, float]:
    """Verdicts but slow in a start whose processes run a tenth of the time, until the weights are loaded."""
    with start() as run:
        began, over = time.monotonic(), threading.Event()
        brake = threading.Thread(target=hold_back, args=(run, over))
        brake.start()
        try:
            run.wait_until(lambda e: e["kind"] == "phase" and e["data"]["phase"] == "loaded", within=900)
        finally:
            over.set()
            brake.join()
        wrong = [e for e in run.events() if e["kind"] == "standing" and e["data"]["verdict"] in ("STALLED", "SPINNING")]
        return len(wrong), time.monotonic() - began


def hold_back(run: Run, over: threading.Event) -> None:
    """Stop and continue all ranks, again and again."""
    while not over.is_set():
        pids = [pid for rank in (0, 1) for pid in run.pids(rank)]
        send(pids, signal.SIGSTOP)
        over.wait(RESTS_S)
        send(pids, signal.SIGCONT)
        time.sleep(RUNS_S)


def send(pids: Sequence[int], number: int) -> None:
    """A signal to processes, of which some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Run:
    """One `bascule up` with a journal of its own."""

    def __init__(self, folder: Path) -> None:
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder)}

    def bascule(self, *words: str) -> Any:
        """What a reading command prints as JSON; None while there is nothing."""
        done = subprocess.run([BASCULE, *words, "--json"], env=self.env, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.stdout else None

    def events(self) -> list[dict[str, Any]]:
        """All so far."""
        told = self.bascule("why")
        return told["events"] if told else []

    def wait_until(self, fits: Any, within: float = 240) -> dict[str, Any]:
        """The first event that fits."""
        until = time.monotonic() + within
        while time.monotonic() < until:
            if found := next((event for event in self.events() if fits(event)), None):
                return found
            time.sleep(0.5)
        raise SystemExit("error[bench]: it never came to that")

    def wait_for(self, phase: str, rank: int) -> None:
        """Until a rank is in a phase."""
        self.wait_until(lambda e: e["kind"] == "phase" and (e["data"]["phase"], e["data"]["rank"]) == (phase, rank))

    def pids(self, rank: int) -> list[int]:
        """The processes of a rank: its session."""
        for service in self.bascule("status") or []:
            for one in service["ranks"]:
                if one["rank"] == rank and one["pid"]:
                    told = subprocess.run(
                        ["ps", "-o", "pid=", "-s", str(one["pid"])], capture_output=True, text=True, check=False
                    )
                    return [int(pid) for pid in told.stdout.split()]
        return []


@contextmanager
def start() -> Iterator[Run]:
    """A start that is under way; nothing of it is left at the end."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "recipe.yaml").write_text(RECIPE.format(root=ROOT))
        run = Run(folder)
        words = [BASCULE, "up", folder / "recipe.yaml"]
        with subprocess.Popen(words, env=run.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield run
            finally:
                process.terminate()
                process.wait()
                run.bascule("down")


if __name__ == "__main__":
    main()
