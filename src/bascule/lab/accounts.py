"""A host's own accounts, keys and sshd configuration; the machine's own files are not touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bascule.lab.spec import DOCKER_GROUP, USERS, Host, Lab

_SSHD = """\
Port 22
HostKey /run/host/host_key
AuthorizedKeysFile /run/host/authorized_keys
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
PrintMotd no
"""


def furnish(lab: Lab, host: Host) -> None:
    """Write everything that a host needs before it boots."""
    folder = lab.host_folder(host)
    for name in ("etc", "home", "tmp", "docker"):
        (folder / name).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    for name in ("root", "root.work"):
        (folder / name).mkdir(mode=0o700)
    _write_accounts(folder / "etc")
    names = [f"{each.address('lan')} {each.name}\n" for each in lab.hosts]
    (folder / "etc/hosts").write_text("".join(["127.0.0.1 localhost\n", *names]))
    for name in (".bashrc", ".profile", ".bash_profile"):  # what a login runs on this machine is none of the host's
        (folder / "root" / name).touch()
    for user, uid in USERS.items():
        home = folder / "home" / user
        home.mkdir()
        os.chown(home, uid, uid)
    for key in ("host_key", "client_key"):
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{host.name} of {lab.name}", "-f", folder / key)
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    (folder / "authorized_keys").write_text((folder / "client_key.pub").read_text())
    (folder / "authorized_keys").chmod(0o644)
    (folder / "sshd_config").write_text(_SSHD)


def write_known_hosts(lab: Lab) -> None:
    """The host keys of all hosts, under their LAN and fabric addresses."""
    lines = []
    for host in lab.hosts:
        key = (lab.host_folder(host) / "host_key.pub").read_text().split()[:2]
        lines.append(f"{host.address('lan')},{host.address('fabric')} {' '.join(key)}\n")
    (lab.folder / "known_hosts").write_text("".join(lines))


def _write_accounts(etc: Path) -> None:
    """The machine's accounts, without its people, and the lab's users."""
    system = [line for line in Path("/etc/passwd").read_text().splitlines() if int(line.split(":")[2]) < 1000]
    people = [f"{name}:x:{uid}:{uid}::/home/{name}:/bin/sh" for name, uid in USERS.items()]
    (etc / "passwd").write_text("\n".join([*system, *people]) + "\n")
    groups = [line for line in Path("/etc/group").read_text().splitlines() if line.split(":")[0] != "docker"]
    own = [f"{name}:x:{uid}:" for name, uid in USERS.items()]
    (etc / "group").write_text("\n".join([*groups, *own, f"docker:x:{DOCKER_GROUP}:op"]) + "\n")
    shadow = [f"{line.split(':')[0]}:*:19000:0:99999:7:::" for line in [*system, *people]]
    (etc / "shadow").write_text("\n".join(shadow) + "\n")
    (etc / "shadow").chmod(0o640)
