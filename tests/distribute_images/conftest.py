"""A lab of three hosts and small images on the first one, for all tests of this folder that are marked lab."""

from __future__ import annotations

import asyncio
import io
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bascule.core.nouns import Finding, Node
from bascule.distribute.images.copy import CopyProgress, Receipt, copy_image
from bascule.lab import hosts
from bascule.lab.spec import Host, Lab
from bascule.remote.connect import connect
from lab_parts import lab_of

MIB = 1 << 20


@dataclass
class Bench:
    """The lab, and short words for what the tests do with it."""

    lab: Lab

    def host(self, name: str) -> Host:
        return next(host for host in self.lab.hosts if host.name == name)

    def run(self, name: str, *words: str, check: bool = True) -> str:
        """A command as root of a host; its standard output."""
        done = subprocess.run(hosts.inside(self.host(name), words), capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def node(self, destination: str) -> Node:
        """A node by its ssh destination, such as root@h1."""
        return Node(destination.rsplit("@", maxsplit=1)[-1], destination)

    def layers(self, name: str, image: str) -> str:
        return self.run(
            name, "docker", "image", "inspect", "--format", "{{.Id}} {{.RootFS.Layers}}", image, check=False
        )

    def remove_images(self, name: str) -> None:
        self.run(name, "sh", "-c", "docker image ls -aq | sort -u | xargs -r docker rmi -f")

    def clean(self) -> None:
        """Targets as new, nothing cut, everything running."""
        hosts.heal(self.lab)
        for host in self.lab.hosts[1:]:
            self.run(host.name, "sh", "-c", "until docker version >/dev/null 2>&1; do sleep 0.1; done")
            self.run(host.name, "rm", "-rf", "/home/op/.cache/bascule", "/root/.cache/bascule")
            self.remove_images(host.name)

    def references(self, name: str) -> list[str]:
        said = self.run(name, "docker", "image", "ls", "-a", "--digests", "--format", "{{.Repository}}:{{.Tag}}")
        return sorted(said.splitlines())

    def spooled(self, name: str) -> list[str]:
        said = self.run(name, "sh", "-c", "cd /home/op/.cache/bascule/spool 2>/dev/null && ls || true")
        return [line for line in said.splitlines() if line != "lock"]

    def copy(
        self, image: str, source: str, *targets: str, watch: Callable[[CopyProgress], None] = lambda _: None
    ) -> dict[str, Receipt | Finding]:
        return asyncio.run(self.copying(image, source, *targets, watch=watch))

    async def copying(
        self, image: str, source: str, *targets: str, watch: Callable[[CopyProgress], None] = lambda _: None
    ) -> dict[str, Receipt | Finding]:
        nodes = [self.node(each) for each in (source, *targets)]
        return await copy_image(image, nodes[0], nodes[1:], connect(nodes), watch)


@pytest.fixture(scope="session")
def lab_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Made once: a lab takes a second, its images another."""
    with lab_of(tmp_path_factory, "imgtest", 3, 91) as made:
        bench = Bench(made)
        build(bench, "img:v1", (("base", 12), ("middle", 20), ("top", 4)))
        build(bench, "img:v2", (("base", 12), ("middle", 20), ("other", 3)))
        yield bench


@pytest.fixture
def bench(lab_of_three: Bench) -> Bench:
    lab_of_three.clean()
    return lab_of_three


def build(bench: Bench, tag: str, layers: Sequence[tuple[str, int]], host: str = "h1") -> None:
    """An image from scratch with a layer of so many MiB for each name."""
    folder = bench.lab.host_folder(bench.host(host)) / "build"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, size in layers:
        write_layer(folder / f"{name}.tar", name, size * MIB)
    lines = ["FROM scratch", *(f"ADD {name}.tar /" for name, _ in layers), "ENV PATH=/bin", 'CMD ["/nothing"]']
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    bench.run(host, "docker", "build", "--quiet", "--tag", tag, "/run/host/build")


def write_layer(path: Path, name: str, size: int) -> None:
    """A tar of files with noise, the same for the same name."""
    noise = random.Random(name).randbytes(size)
    with tarfile.open(path, "w") as layer:
        for number, start in enumerate(range(0, size, MIB)):
            entry = tarfile.TarInfo(f"{name}/{number}")
            entry.size = len(noise[start : start + MIB])
            layer.addfile(entry, io.BytesIO(noise[start : start + MIB]))
