#!/usr/bin/env python3
"""Two drills on a service that serves: a rank is frozen in the middle of an answer, then killed while nobody asks.

usage: drill.py SERVICE [--patience SECONDS] -- BASCULE...     BASCULE: the words that start bascule

Each line is a JSON object with seconds since the drill began. `bascule watch` is what must see both; beside it the
drill tells what /health says, what the GPU does, and how far the answer is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()
SPIN = 40.0  # seconds that the frozen rank's peer is looked at in any case
GPU = ("nvidia-smi", "--query-gpu=index,utilization.gpu,power.draw,memory.used", "--format=csv,noheader,nounits")


def main(words: Sequence[str] | None = None) -> int:
    """Freeze, thaw, kill."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("service")
    parser.add_argument("bascule", nargs="+")
    parser.add_argument("--patience", type=float, default=100.0, help="seconds until a drill is given up")
    options = parser.parse_args(words)
    status = _status(options.bascule, options.service)
    rank = next(one for one in status["ranks"] if one["rank"] == 1)
    tell("begin", url=status["url"], rank=rank["pid"], gpu=_gpu())
    _freeze(options, status, rank["pid"])
    _kill(options, status, rank["pid"])
    return 0


def tell(what: str, **more: Any) -> None:
    """One line, on standard output."""
    print(json.dumps({"at": round(time.monotonic() - BEGAN, 2), "what": what, **more}), flush=True)


def _freeze(options: argparse.Namespace, status: dict[str, Any], leader: int) -> None:
    """SIGSTOP for all of rank 1 while an answer is under way: its peer spins in a collective, and nothing says so."""
    watch = Watch(options.bascule, options.service)
    answer = Request(status["url"], status["model"])
    answer.wait_for(8, options.patience)
    tell("before", tokens=answer.tokens, gpu=_gpu())
    _signal(leader, signal.SIGSTOP)
    tell("frozen", tokens=answer.tokens)
    frozen = time.monotonic()
    while (waited := time.monotonic() - frozen) < options.patience and (waited < SPIN or not watch.ended):
        time.sleep(5)
        tell("meanwhile", tokens=answer.tokens, health=_health(status["url"]), gpu=_gpu())
    watch.end()
    _signal(leader, signal.SIGCONT)
    tell("thawed", tokens=answer.tokens)
    answer.wait_for(answer.tokens + 8, 30)
    tell("after", tokens=answer.tokens, trouble=answer.trouble, gpu=_gpu())
    answer.enough = True
    answer.thread.join(30)


def _kill(options: argparse.Namespace, status: dict[str, Any], leader: int) -> None:
    """SIGKILL for all of rank 1 while nobody asks: the head notices nothing, and /health goes on being green."""
    watch = Watch(options.bascule, options.service)
    time.sleep(8)
    tell("before", health=_health(status["url"]), gpu=_gpu())
    _signal(leader, signal.SIGKILL)
    tell("killed")
    until = time.monotonic() + options.patience
    while time.monotonic() < until and not watch.ended:
        time.sleep(1)
        tell("meanwhile", health=_health(status["url"]))
    watch.end()


class Watch:
    """`bascule watch` beside the drill; each of its lines is told when it comes."""

    def __init__(self, bascule: Sequence[str], service: str) -> None:
        words = [*bascule, "watch", service, "--json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    @property
    def ended(self) -> bool:
        """True once it has told trouble and gone."""
        return self.process.poll() is not None

    def end(self) -> None:
        """Let it go; a watch that is interrupted leaves the service alone."""
        if not self.ended:
            self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.thread.join(5)
        tell("watch-ended", status=self.process.poll())

    def _read(self) -> None:
        for line in self.process.stdout or ():
            tell("watch", line=line.rstrip()[:4000])


class Request:
    """A long streamed answer; `tokens` are the chunks that came so far."""

    def __init__(self, url: str, model: str, tokens: int = 300) -> None:
        self.tokens, self.trouble, self.enough = 0, "", False
        self.thread = threading.Thread(target=self._ask, args=(url, model, tokens), daemon=True)
        self.thread.start()

    def wait_for(self, tokens: int, seconds: float) -> None:
        """Until so many came, or the answer ended, or the time is over."""
        until = time.monotonic() + seconds
        while self.tokens < tokens and self.thread.is_alive() and time.monotonic() < until:
            time.sleep(0.1)

    def _ask(self, url: str, model: str, tokens: int) -> None:
        body = {"model": model, "prompt": "one two three ", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(
            f"{url}/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=400) as stream:
                for line in stream:
                    self.tokens += line.startswith(b"data: {")
                    if self.enough:
                        return
        except OSError as trouble:
            self.trouble = str(trouble)


def _status(bascule: Sequence[str], service: str) -> dict[str, Any]:
    done = subprocess.run([*bascule, "status", service, "--json"], capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def _signal(leader: int, number: int) -> None:
    """To every process of a rank: those of its leader's session, the leader last."""
    for pid in [*(pid for pid in _session(leader) if pid != leader), leader]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _session(leader: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found.append(int(stat.parent.name))
    return found


def _health(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/health", timeout=3) as answer:
            return str(answer.status)
    except OSError as trouble:
        return str(trouble)


def _gpu() -> list[str]:
    try:
        return subprocess.run(GPU, capture_output=True, text=True, timeout=10, check=False).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


if __name__ == "__main__":
    sys.exit(main())
