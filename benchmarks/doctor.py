"""How long `bascule doctor --no-proof` takes for 2 hosts of a lab, and for 32 nodes that are addresses of one of them.

All of them, and this side, share the CPUs of this machine. Each round begins without open connections, so that it
pays for every handshake. Needs root, sshd and dockerd. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bascule.lab import hosts
from bascule.lab.spec import Lab

NAME, NET = "docbench", 84
FEW, MANY = 2, 32
FIRST = 101  # last number of the first of the many addresses
BASCULE = str(Path(sys.executable).with_name("bascule"))


def main() -> None:
    """Make the lab, ask in turn, print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if os.getuid():
        raise SystemExit("error[bench]: needs root: it makes network namespaces")
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory(prefix="b") as sockets:
        os.environ |= {"XDG_STATE_HOME": state, "XDG_RUNTIME_DIR": sockets}
        lab = Lab(NAME, hosts.folder_of(NAME), FEW, NET)
        try:
            hosts.up(lab)
            spread(lab)
            os.environ["BASCULE_SSH"] = f"ssh -F {lab.folder}/ssh_config"
            groups = {FEW: [host.name for host in lab.hosts], MANY: [f"n{number}" for number in range(MANY)]}
            taken = {size: [measure(names, sockets) for _ in range(rounds)] for size, names in groups.items()}
        finally:
            end_masters(sockets)
            hosts.down(NAME)
    figures: dict[str, float] = {}
    for size, rows in taken.items():
        wall, cpu = (round(median(row[at] for row in rows), 2) for at in (0, 1))
        print(f"{size:>2} nodes   {wall:.2f} s   {cpu:.2f} s CPU of ours and ssh   (median of {rounds})")
        figures |= {f"doctor_{size}_nodes_s": wall, f"doctor_{size}_nodes_cpu_s": cpu}
    print(json.dumps(figures))


def spread(lab: Lab) -> None:
    """Give the first host as many addresses as there shall be nodes; its sshd lets all of them knock at once."""
    host, folder = lab.hosts[0], lab.host_folder(lab.hosts[0])
    addresses = [f"10.{NET}.1.{FIRST + number}" for number in range(MANY)]
    for address in addresses:
        command = ("ip", "-n", host.namespace, "addr", "add", f"{address}/24", "dev", "lan0")
        subprocess.run(command, check=True)
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    with (lab.folder / "known_hosts").open("a") as known:
        known.write(f"{','.join(addresses)} {key}\n")
    with (lab.folder / "ssh_config").open("a") as config:
        for number, address in enumerate(addresses):
            config.write(
                f"Host n{number}\n  HostName {address}\n  User op\n  IdentityFile {folder}/client_key\n"
                f"  IdentitiesOnly yes\n  UserKnownHostsFile {lab.folder}/known_hosts\n  StrictHostKeyChecking yes\n"
            )
    with (folder / "sshd_config").open("a") as sshd:
        sshd.write(f"MaxStartups {2 * MANY}\n")
    hosts.stop(lab, host, "sshd")
    hosts.start(lab, host, "sshd")


def measure(names: Sequence[str], sockets: str) -> tuple[float, float]:
    """Seconds on the wall and of CPU for one call that finds no open connection."""
    end_masters(sockets)
    words = [word for name in names for word in ("--node", name)]
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(
        [BASCULE, "doctor", *words, "--no-proof", "--json"], capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - began, os.times()
    rows = json.loads(done.stdout)["nodes"] if done.returncode in (0, 3) else []
    if done.returncode or not all(row["facts"]["docker"] for row in rows):
        raise SystemExit(f"error[bench]: not all {len(names)} nodes were read: {done.stderr or done.stdout[:2000]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu


def end_masters(sockets: str) -> None:
    """End all shared connections."""
    for control in Path(sockets).glob("bascule-*/*"):
        subprocess.run(["ssh", "-o", f"ControlPath={control}", "-O", "exit", "x"], capture_output=True, check=False)


if __name__ == "__main__":
    main()
