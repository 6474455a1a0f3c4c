"""How fast weights travel between two hosts of a lab: bascule, `rsync -a` over ssh and `ssh cat`, in turn.

Both hosts are on this machine and their files in memory, so that neither a disk nor a cable hides the difference.
Bascule's time includes its verification by sha256; what the others wrote is compared outside of their time.
Needs root, sshd and rsync. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bascule.core.nouns import Node
from bascule.distribute.weights.copy import copy_weights
from bascule.distribute.weights.progress import Receipt
from bascule.lab import hosts
from bascule.lab.spec import USERS, Lab
from bascule.remote.connect import connect

NAME, NET = "wbench", 98
WANTED = 1.3  # times rsync's rate


def main() -> None:
    """Make the lab, run everything in turn, print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of weights, in files of 512 MB")
    parser.add_argument("--small", type=int, default=0, help="files of 1 KB instead of weights")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if os.getuid() or not shutil.which("rsync"):
        raise SystemExit("error[bench]: needs root and rsync; apt-get install rsync")
    with tempfile.TemporaryDirectory() as state:
        subprocess.run(("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", state), check=True)
        os.environ["XDG_STATE_HOME"] = state
        try:
            lab = Lab(NAME, hosts.folder_of(NAME), 2, NET)
            hosts.up(lab, docker=False)
            print(json.dumps(Bench(lab, options).run()))
        finally:
            hosts.down(NAME)
            subprocess.run(("umount", "--lazy", state), check=True)


class Bench:
    """One model on h1, copied to h2 again and again."""

    def __init__(self, lab: Lab, options: argparse.Namespace) -> None:
        self.lab, self.rounds = lab, options.rounds
        self.one, self.other = (lab.host_folder(host) / "home/op" for host in lab.hosts)
        os.environ["BASCULE_SSH"] = f"ssh -F {lab.folder}/ssh_config"
        self.bytes = self._write(options)
        self.nodes = [Node(host.name, host.name) for host in lab.hosts]
        self._let_in()
        self._count_cpu()

    def run(self) -> dict[str, object]:
        """All rounds; every contender once in each, in another order each time."""
        contenders: dict[str, Callable[[], None]] = {"bascule": self.bascule, "rsync": self.rsync, "ssh_cat": self.cat}
        if not (self.one / "m/0.safetensors").exists():
            del contenders["ssh_cat"]
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        cpu: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(self.rounds):
            names = list(contenders)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                before = self._cpu()
                taken[name].append(self._measure(contenders[name]))
                cpu[name].append(self._cpu() - before)
                rate = self.bytes / taken[name][-1] / 1e6
                print(
                    f"round {turn + 1}  {name:<8} {taken[name][-1]:.2f} s  {rate:.0f} MB/s  {cpu[name][-1]:.2f} s CPU"
                )
        rates = {name: self.bytes / median(seconds) for name, seconds in taken.items()}
        ratios = {
            f"times_{name}": round(median(b / a for a, b in zip(taken["bascule"], taken[name], strict=True)), 2)
            for name in contenders
            if name != "bascule"
        }
        figures = {f"{name}_mb_s": round(rate / 1e6) for name, rate in rates.items()}
        seconds = {f"{name}_s": round(median(each), 2) for name, each in taken.items()}
        seconds |= {f"{name}_cpu_s": round(median(each), 2) for name, each in cpu.items()}
        return {
            "bytes": self.bytes,
            **figures,
            **seconds,
            **ratios,
            "verified": True,
            "enough": ratios["times_rsync"] >= WANTED,
            "load": round(os.getloadavg()[0], 2),
            "cores": os.cpu_count(),
        }

    def bascule(self) -> None:
        """A receipt says that it is verified."""
        done = asyncio.run(copy_weights("~/m", self.nodes[0], self.nodes[1:], connect(self.nodes), lambda _: None))
        if not isinstance(done["h2"], Receipt):
            raise SystemExit(f"error[bench]: {done}")

    def rsync(self) -> None:
        """As one would: on h1, to h2's fabric address."""
        self._on_h1(f"rsync -a -e {shlex.quote(self._ssh)} m op@{self._address}:")

    def cat(self) -> None:
        """One ssh, one stream of bytes for each file."""
        far = f"{self._ssh} op@{self._address}"
        self._on_h1(f'{far} mkdir m && cd m && for each in *; do {far} "cat > m/$each" < $each || exit 1; done')

    def _measure(self, copy: Callable[[], None]) -> float:
        shutil.rmtree(self.other / "m", ignore_errors=True)
        began = time.perf_counter()
        copy()
        taken = time.perf_counter() - began
        if _checksums(self.other / "m") != self.checksums:
            raise SystemExit("error[bench]: what arrived is not what was sent")
        return taken

    def _cpu(self) -> float:
        """Seconds of CPU that both hosts have used; unlike the clock it minds little what else runs here."""
        group = _group(self.lab.name)
        usage = group / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / 1e9
        return int((group / "cpu.stat").read_text().split()[1]) / 1e6

    def _count_cpu(self) -> None:
        group = _group(self.lab.name)
        group.mkdir(exist_ok=True)
        for host in self.lab.hosts:
            for pid in subprocess.check_output(("ip", "netns", "pids", host.namespace), text=True).split():
                (group / "cgroup.procs").write_text(pid)

    def _write(self, options: argparse.Namespace) -> int:
        (self.one / "m").mkdir()
        if options.small:
            for number in range(options.small):
                path = self.one / f"m/{number // 1000}/{number}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(os.urandom(1000))
        left = 0 if options.small else int(options.gigabytes * 1e9)
        for number in range(-(-left // 512_000_000)):
            size = min(512_000_000, left - number * 512_000_000)
            (self.one / f"m/{number}.safetensors").write_bytes(os.urandom(size))
        subprocess.run(("chown", "-R", str(USERS["op"]), self.one / "m"), check=True)
        self.checksums = _checksums(self.one / "m")
        return sum(path.stat().st_size for path in (self.one / "m").rglob("*") if path.is_file())

    def _let_in(self) -> None:
        """H1's user may log in to h2, over the fabric."""
        folder = self.lab.host_folder(self.lab.hosts[1])
        self._address = self.lab.hosts[1].address("fabric")
        shutil.copy(folder / "client_key", self.one / "key")
        shutil.copy(self.lab.folder / "known_hosts", self.one / "known_hosts")
        for name in ("key", "known_hosts"):
            os.chown(self.one / name, USERS["op"], USERS["op"])
        self._ssh = "ssh -i /home/op/key -o UserKnownHostsFile=/home/op/known_hosts -o BatchMode=yes"

    def _on_h1(self, script: str) -> None:
        subprocess.run(("ssh", "-F", f"{self.lab.folder}/ssh_config", "h1", script), check=True)


def _group(lab: str) -> Path:
    """A control group for all hosts; `lab down` removes groups of such a name."""
    top = Path("/sys/fs/cgroup")
    return (top / "cpuacct" if (top / "cpuacct").exists() else top) / f"{lab}-hosts"


def _checksums(root: Path) -> dict[str, str]:
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                found[str(path.relative_to(root))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


if __name__ == "__main__":
    main()
