"""Newer dockerds on hosts of a lab, from Debian suites in chroots; made once per machine, 400 MB each."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.lab import hosts
from bascule.lab.spec import Host, Lab

CACHE = Path(os.environ.get("BASCULE_TEST_CHROOTS", "/var/cache/bascule-test"))
PACKAGES = "docker.io,docker-cli,containerd,runc,iproute2"


def chroot_of(suite: str) -> Path:
    """A suite with its docker; made in CI, elsewhere only found."""
    folder = CACHE / f"docker-{suite}"
    if not (folder / "usr/sbin/dockerd").exists():
        if "CI" not in os.environ or not shutil.which("mmdebstrap"):
            pytest.skip(f"no docker of {suite}: mmdebstrap --variant=minbase --include={PACKAGES} {suite} {folder}")
        make(suite, folder)
    return folder


def make(suite: str, folder: Path) -> None:
    """From Debian's packages."""
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder.with_suffix(".new"), ignore_errors=True)
    words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"]
    valid = '--aptopt=Acquire::Check-Valid-Until "false"'  # a mirror may be a few days late
    subprocess.run([*words, valid, suite, str(folder.with_suffix(".new"))], check=True)
    folder.with_suffix(".new").rename(folder)


@contextlib.contextmanager
def newer(lab: Lab, host: Host, folder: Path, *options: str) -> Iterator[None]:
    """Runs instead of the host's own dockerd, with a data root of its own."""
    hosts.stop(lab, host, "dockerd")
    log = lab.host_folder(host) / "newer.log"
    with log.open("ab") as said:
        subprocess.Popen(
            hosts.inside(host, ("sh", "-c", SCRIPT, "sh", str(folder), *options)),
            stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    until = time.monotonic() + 30
    probe = hosts.inside(host, ("sh", "-c", "test -e /run/newer.pid && docker version"))
    while subprocess.run(probe, capture_output=True, check=False).returncode:
        assert time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(0.2)
    try:
        yield
    finally:
        subprocess.run(hosts.inside(host, ("sh", "-c", END)), capture_output=True, check=False)
        hosts.start(lab, host, "dockerd")


# Its root must be a mount point: docker remounts it private before it unpacks a layer.
SCRIPT = r"""
folder=$1; shift
while pgrep -x dockerd >/dev/null; do sleep 0.1; done
rm -f /run/docker.sock
mountpoint -q "$folder" || mount --bind "$folder" "$folder"
for name in run proc sys dev; do mountpoint -q "$folder/$name" || mount --rbind "/$name" "$folder/$name"; done
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$folder" dockerd \
  --data-root /run/host/newer --exec-root /run/newer --pidfile /run/newer.pid --host unix:///run/docker.sock \
  --group 64000 --bridge none --iptables=false --ip-masq=false "$@"
"""
END = r"""
kill "$(cat /run/newer.pid)"
rm -f /run/newer.pid
while pgrep -x dockerd; do sleep 0.1; done
rm -rf /run/host/newer
"""
