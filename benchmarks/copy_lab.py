"""What `make bench-copy` measures with: a lab, images from scratch, and what each host has sent, got and computed."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bascule.lab import hosts
from bascule.lab.spec import Host, Lab

MIB = 1 << 20
CGROUPS = Path("/sys/fs/cgroup/cpuacct")  # cgroup v1; without it no CPU is told
# Bytes of files as engine images have them: many small ones, a few shared objects of many MiB.
SIZES = (2_000, 8_000, 30_000, 120_000, 1_000_000, 8_000_000, 40_000_000)
WEIGHTS = (400, 300, 200, 60, 20, 6, 3)


@dataclass(frozen=True)
class Counts:
    """What hosts have done since they began."""

    sent: dict[str, int]  # bytes, all interfaces but lo
    got: dict[str, int]
    cpu: dict[str, float]  # seconds

    def since(self, before: Counts) -> Counts:
        """The difference."""
        return Counts(*({key: now[key] - then[key] for key in now} for now, then in self._pairs(before)))  # type: ignore[arg-type]

    def _pairs(self, before: Counts) -> tuple[tuple[dict[str, float], dict[str, float]], ...]:
        return ((self.sent, before.sent), (self.got, before.got), (self.cpu, before.cpu))  # type: ignore[return-value]


class CopyLab:
    """Hosts h1 (the head) to hN, with images on the head."""

    def __init__(self, size: int) -> None:
        self.lab = Lab("imgbench", hosts.folder_of("imgbench"), size, 92)

    def __enter__(self) -> CopyLab:
        hosts.up(self.lab)
        for host in self.lab.hosts:
            self._own_cgroup(host)
            shutil.copy(self.lab.host_folder(host) / "client_key", self.lab.host_folder(self.head) / f"key-{host.name}")
        return self

    def __exit__(self, *_: object) -> None:
        hosts.down(self.lab.name)

    @property
    def head(self) -> Host:
        """The host that has the images."""
        return self.lab.hosts[0]

    def host(self, name: str) -> Host:
        """By name."""
        return next(host for host in self.lab.hosts if host.name == name)

    def run(self, name: str, script: str) -> str:
        """A line of shell as root of a host. Raises CalledProcessError."""
        words = hosts.inside(self.host(name), ("sh", "-c", script))
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def build(self, tag: str, layers: Sequence[tuple[str, int]]) -> None:
        """An image on the head with a layer of so many MiB for each name."""
        folder = self.lab.host_folder(self.head) / "build"
        folder.mkdir(exist_ok=True)
        for name, size in layers:
            if not (folder / f"{name}.tar").exists():
                write_layer(folder / f"{name}.tar", name, size * MIB)
        lines = ["FROM scratch", *(f"ADD {name}.tar /" for name, _ in layers), 'CMD ["/nothing"]']
        (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
        self.run("h1", f"docker build --quiet --tag {tag} /run/host/build")

    def limit(self, rate: str) -> None:
        """Hold every host's fabric to a rate; "" lifts it."""
        for host in self.lab.hosts:
            hosts.limit(host, "fabric", rate)

    def empty(self, names: Sequence[str], but: str = "") -> None:
        """Remove every image but one, and the spool, of these hosts, and let the disk come to rest."""
        listed = "docker image ls --format '{{.Repository}}:{{.Tag}}'"
        for name in names:
            self.run(name, f"{listed} | grep -vx '{but}' | xargs -r docker rmi -f; rm -rf /home/op/.cache")
        subprocess.run(["sync"], check=True)

    def baseline(self, image: str, name: str) -> None:
        """What one would do by hand on the head, over the fabric: docker save | ssh docker load."""
        options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        to = f"ssh -i /run/host/key-{name} {options} op@{self.host(name).address('fabric')}"
        self.run("h1", f"docker save {image} | {to} docker load -q")

    def counts(self) -> Counts:
        """Of all hosts, now."""
        sent, got, cpu = {}, {}, {}
        for host in self.lab.hosts:
            lines = Path(f"/proc/{hosts.first_process(host)}/net/dev").read_text().splitlines()[2:]
            rows = [line.split(":")[1].split() for line in lines if not line.strip().startswith("lo:")]
            got[host.name] = sum(int(row[0]) for row in rows)
            sent[host.name] = sum(int(row[8]) for row in rows)
            usage = CGROUPS / host.namespace / "cpuacct.usage"
            cpu[host.name] = int(usage.read_text()) / 1e9 if usage.exists() else 0.0
        return Counts(sent, got, cpu)

    def _own_cgroup(self, host: Host) -> None:
        """All of a host's processes, and those they will start, count together."""
        if not CGROUPS.is_dir():
            return
        group = CGROUPS / host.namespace
        group.mkdir(exist_ok=True)
        listed = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True)
        for pid in listed.stdout.split():
            (group / "cgroup.procs").write_text(pid)


def write_layer(path: Path, name: str, size: int) -> None:
    """A tar of files: half noise, half words, the same for the same name."""
    chance = random.Random(name)
    noise = chance.randbytes(64 * MIB)
    words = b" ".join(chance.choice((b"def", b"return", b"self", b"tensor", b"kernel")) for _ in range(12 * MIB))
    with tarfile.open(path, "w") as layer:
        number = 0
        while size > 0:
            length = min(size, chance.choices(SIZES, WEIGHTS)[0])
            start = chance.randrange(20 * MIB)
            entry = tarfile.TarInfo(f"usr/lib/{name}/{number % 97}/{number}")
            entry.size = length
            layer.addfile(entry, io.BytesIO((noise if number % 2 else words)[start : start + length]))
            size -= length
            number += 1
