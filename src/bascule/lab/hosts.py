"""Makes, changes and removes the hosts of a lab; needs root on Linux."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from bascule import settings
from bascule.errors import BasculeError
from bascule.lab import accounts
from bascule.lab.spec import (
    NETWORKS,
    Host,
    Lab,
    Network,
    boot,
    drop,
    make_network,
    make_switch,
    shape,
    ssh_config,
    undrop,
)

TOOLS = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "ssh-keygen": "openssh-client"}
WITH_DOCKER = {"dockerd": "docker.io", "docker": "docker.io"}
READY_WITHIN = 30.0  # seconds for sshd and dockerd of all hosts
ANSWERS = {"sshd": "ss -Hltn sport = :22 | grep -q .", "dockerd": "docker version >/dev/null 2>&1"}  # as a shell asks
DEFAULT = "bascule-lab"


def folder_of(name: str) -> Path:
    """Where a lab keeps its hosts' files."""
    return settings.state_dir() / "labs" / name


def find(name: str) -> Lab:
    """The lab of this name, as it was made. Raises BasculeError when there is none."""
    try:
        raw = json.loads((folder_of(name) / "lab.json").read_text())
    except (OSError, ValueError):
        raise BasculeError("no-lab", f"there is no lab {name}", advice="bascule lab up") from None
    return Lab(name, folder_of(name), raw["size"], raw["net"])


def up(lab: Lab, *, docker: bool = True, docker_options: Sequence[str] = ()) -> None:
    """Make all hosts and wait until their sshd and dockerd answer; half-made ones are removed."""
    _needs(TOOLS | (WITH_DOCKER if docker else {}))
    down(lab.name)
    lab.folder.mkdir(parents=True)
    lab.folder.joinpath("lab.json").write_text(json.dumps({"size": lab.size, "net": lab.net}))
    try:
        _run_all(make_switch(lab))
        for host in lab.hosts:
            _run_all(make_network(lab, host))
            accounts.furnish(lab, host)
            wanted = lab.host_folder(host) / "dockerd.wanted"
            if docker:
                wanted.write_text(" ".join(docker_options))
            _boot(lab, host)
        accounts.write_known_hosts(lab)
        lab.folder.joinpath("ssh_config").write_text(ssh_config(lab))
        _wait_ready(lab, docker)
    except BaseException:
        down(lab.name)
        raise


def down(name: str) -> bool:
    """Remove a lab entirely, also one whose making or whose maker was killed; False when there was nothing."""
    spaces = [space for space in _namespaces() if space.startswith(f"{name}-") and _is_of(name, space)]
    for space in spaces:
        _end_processes(space)
    for space in spaces:
        _run(("ip", "netns", "delete", space), check=False)
    _run(("ip", "link", "delete", f"{name[:9]}-lan"), check=False)
    _remove_cgroups(name)
    folder = folder_of(name)
    there = folder.exists()
    if there:
        shutil.rmtree(folder)
    return bool(spaces) or there


def first_process(host: Host) -> int:
    """The pid of a host's first process, as this machine sees it. Raises BasculeError when it has died."""
    for pid in _pids(host.namespace):
        status = Path(f"/proc/{pid}/status")
        try:
            line = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:"))
        except (OSError, StopIteration):
            continue
        _, *pids = line.split()
        if len(pids) == 2 and pids[-1] == "1":  # that of a container there is the first one further in
            return pid
    raise BasculeError("host-dead", f"{host.name} of lab {host.lab} is not running", advice="bascule lab up")


def inside(host: Host, words: Sequence[str]) -> tuple[str, ...]:
    """The command that runs words inside a host, as its root."""
    return ("nsenter", "--target", str(first_process(host)), "--all", "--", *words)


def cut(one: Host, other: Host, networks: Iterable[Network] = NETWORKS, *, one_way: bool = False) -> None:
    """Drop all packets between two hosts; one_way drops them only where `one` stands."""
    for network in networks:
        _run_all(drop(one, other, network))
        if not one_way:
            _run_all(drop(other, one, network))


def heal(lab: Lab) -> None:
    """Undo every cut and every shaping, and start what was stopped."""
    for host in lab.hosts:
        _run(undrop(host))
        for network in NETWORKS:
            limit(host, network, "")
        for service in ("sshd", "dockerd"):
            start(lab, host, service)


def limit(host: Host, network: Network, rate: str) -> None:
    """Hold a host's link to a rate in both directions, such as 1gbit; "" lifts it."""
    for command in shape(host, network, rate):
        _run(command, check="add" in command)


def stop(lab: Lab, host: Host, service: str) -> None:
    """Stop a host's sshd or dockerd, until it is started again."""
    lab.host_folder(host).joinpath(f"{service}.stopped").touch()
    words = f'kill -TERM "$(cat /run/{service}.keeper)"; pkill -x {service} || true'
    _run(inside(host, ("sh", "-c", words)), check=False)


def start(lab: Lab, host: Host, service: str) -> None:
    """Start a host's sshd or dockerd again, if it was stopped, and wait until it answers."""
    flag = lab.host_folder(host) / f"{service}.stopped"
    if flag.exists():
        flag.unlink()
        _wait_for(lab, host, ANSWERS[service])


def _boot(lab: Lab, host: Host) -> None:
    init = lab.host_folder(host) / "init.sh"
    init.write_text(resources.files("bascule.lab").joinpath("host_init.sh").read_text())
    with lab.host_folder(host).joinpath("init.log").open("ab") as log:
        subprocess.Popen(
            boot(lab, host, init), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _wait_ready(lab: Lab, docker: bool) -> None:
    for host in lab.hosts:
        _wait_for(lab, host, ANSWERS["sshd"] + (f" && {ANSWERS['dockerd']}" if docker else ""))


def _wait_for(lab: Lab, host: Host, probe: str) -> None:
    until = time.monotonic() + READY_WITHIN
    while not _answers(host, probe):
        if time.monotonic() > until:
            logs = [lab.host_folder(host) / f"{name}.log" for name in ("init", "sshd", "dockerd")]
            seen = "\n".join(line for log in logs if log.exists() for line in log.read_text().splitlines()[-3:])
            raise BasculeError("lab-not-ready", f"{host.name} did not come up in {READY_WITHIN:g} s", seen=seen)
        time.sleep(0.1)


def _answers(host: Host, probe: str) -> bool:
    try:
        return _run(inside(host, ("sh", "-c", probe)), check=False).returncode == 0
    except BasculeError:
        return False


def _namespaces() -> list[str]:
    listed = _run(("ip", "netns", "list"), check=False).stdout.splitlines()
    return [line.split()[0] for line in listed if line.strip()]


def _is_of(name: str, space: str) -> bool:
    rest = space.removeprefix(f"{name}-")
    return rest == "switch" or (rest[:1] == "h" and rest[1:].isdigit())


def _pids(space: str) -> list[int]:
    listed = _run(("ip", "netns", "pids", space), check=False).stdout.split()
    return [int(pid) for pid in listed]


def _end_processes(space: str) -> None:
    for _ in range(50):
        pids = [pid for pid in _pids(space) if pid != os.getpid()]
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _remove_cgroups(name: str) -> None:
    """Control groups outlive their processes; the deepest go first."""
    for top in Path("/sys/fs/cgroup").glob(f"*/{name}-h*"):
        _rmdirs(top)
    for top in Path("/sys/fs/cgroup").glob(f"{name}-h*"):
        _rmdirs(top)


def _rmdirs(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            continue


def _needs(tools: dict[str, str]) -> None:
    if os.getuid() != 0:
        raise BasculeError(
            "lab-needs-root", "a lab needs root: it makes network namespaces", advice="sudo bascule lab up"
        )
    tools = {**tools, "/usr/sbin/sshd": "openssh-server", "iptables": "iptables"}
    if missing := {package for tool, package in tools.items() if not shutil.which(tool)}:
        raise BasculeError(
            "lab-needs-tools",
            f"not installed: {', '.join(sorted(missing))}",
            advice=f"apt-get install {' '.join(sorted(missing))}",
        )


def _run_all(commands: Iterable[Sequence[str]]) -> None:
    for command in commands:
        _run(command)


def _run(command: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise BasculeError("lab-command", f"`{' '.join(command)}` failed", seen=done.stderr.strip())
    return done
