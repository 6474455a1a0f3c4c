"""The commands of `bascule lab`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from bascule.errors import RecipeError
from bascule.lab import hosts, images
from bascule.lab.spec import MOST_HOSTS, NETWORKS, Host, Lab
from bascule.show.plain import out, print_json

app = App(name="lab", help="Hosts for rehearsal on this machine, each with its own network, sshd and dockerd.")

Name = Annotated[str, Parameter(name="--lab")]
Which = Literal["fabric", "lan", "both"]
Service = Literal["sshd", "dockerd"]


@app.command
def up(size: int = 2, *, lab: Name = hosts.DEFAULT, net: int = 87, docker: bool = True) -> int:
    """Make hosts h1, h2, …: each with its own network, sshd and dockerd, on this machine. Needs root.

    Parameters
    ----------
    size
        How many.
    lab
        The lab's name.
    net
        Its addresses are 10.NET.0.N (the fabric) and 10.NET.1.N (the LAN).
    docker
        Give each host a dockerd.
    """
    if not 1 <= size <= MOST_HOSTS or not 1 <= net <= 254:
        raise RecipeError(
            "usage", f"a lab has 1 to {MOST_HOSTS} hosts in a net from 1 to 254", advice="bascule lab up 2"
        )
    made = Lab(lab, hosts.folder_of(lab), size, net)
    hosts.up(made, docker=docker)
    for host in made.hosts:
        out(f"{host.name}   fabric {host.address('fabric')}   lan {host.address('lan')}")
    out(f"ssh -F {made.folder}/ssh_config h1      BASCULE_SSH='ssh -F {made.folder}/ssh_config' bascule up …")
    return 0


@app.command
def down(*, lab: Name = hosts.DEFAULT) -> int:
    """Remove a lab with everything in it, also one that was left half made.

    Parameters
    ----------
    lab
        The lab's name.
    """
    out(f"{lab}: removed" if hosts.down(lab) else f"{lab}: there was nothing")
    return 0


@app.command
def status(*, lab: Name = hosts.DEFAULT, json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Show the hosts of a lab.

    Parameters
    ----------
    lab
        The lab's name.
    json
        Print data for programs.
    """
    found = hosts.find(lab)
    rows = [
        {
            "host": host.name,
            "pid": hosts.first_process(host),
            **{network: host.address(network) for network in NETWORKS},
        }
        for host in found.hosts
    ]
    if json:
        print_json(rows)
    else:
        out("\n".join("   ".join(f"{key} {value}" for key, value in row.items()) for row in rows))
    return 0


@app.command(name="exec")
def execute(host: str, *words: Annotated[str, Parameter(allow_leading_hyphen=True)], lab: Name = hosts.DEFAULT) -> int:
    """Run a command inside a host, as its root.

    Parameters
    ----------
    host
        Which, as h1.
    words
        The command.
    lab
        The lab's name.
    """
    command = hosts.inside(_host(lab, host), words or ("sh",))
    os.execvp(command[0], command)


@app.command
def image(environment: Path, tag: str, *, host: str = "h1", lab: Name = hosts.DEFAULT) -> int:
    """Build an engine image on a host, from a Python environment here: Debian, torch, the engine.

    Parameters
    ----------
    environment
        The environment, as .engines/vllm-0.32.0.
    tag
        The image's name.
    host
        Where to build it.
    lab
        The lab's name.
    """
    found = hosts.find(lab)
    base = images.base_layer(found.folder.parent.parent / "lab-cache")
    images.build(_host(lab, host), found.host_folder(_host(lab, host)), environment, tag, base)
    return 0


@app.command
def cut(one: str, other: str, *, network: Which = "both", one_way: bool = False, lab: Name = hosts.DEFAULT) -> int:
    """Drop all packets between two hosts, without an answer, until `heal`.

    Parameters
    ----------
    one
        A host, as h1.
    other
        The other host.
    network
        Only on this network.
    one_way
        Drop them only where the first host stands.
    lab
        The lab's name.
    """
    networks = NETWORKS if network == "both" else (network,)
    hosts.cut(_host(lab, one), _host(lab, other), networks, one_way=one_way)
    return 0


@app.command
def heal(*, lab: Name = hosts.DEFAULT) -> int:
    """Undo every cut and limit, and start every sshd and dockerd that was stopped.

    Parameters
    ----------
    lab
        The lab's name.
    """
    hosts.heal(hosts.find(lab))
    return 0


@app.command
def limit(host: str, rate: str, *, network: Which = "both", lab: Name = hosts.DEFAULT) -> int:
    """Hold a host's links to a rate, such as 1gbit; `none` lifts it.

    Parameters
    ----------
    host
        Which, as h1.
    rate
        As tc has it: 1gbit, 100mbit, or none.
    network
        Only on this network.
    lab
        The lab's name.
    """
    for each in NETWORKS if network == "both" else (network,):
        hosts.limit(_host(lab, host), each, "" if rate == "none" else rate)
    return 0


@app.command
def stop(host: str, service: Service, *, lab: Name = hosts.DEFAULT) -> int:
    """Stop a host's sshd or dockerd until `start` or `heal`.

    Parameters
    ----------
    host
        Which, as h1.
    service
        sshd or dockerd.
    lab
        The lab's name.
    """
    hosts.stop(hosts.find(lab), _host(lab, host), service)
    return 0


@app.command
def start(host: str, service: Service, *, lab: Name = hosts.DEFAULT) -> int:
    """Start a host's sshd or dockerd again.

    Parameters
    ----------
    host
        Which, as h1.
    service
        sshd or dockerd.
    lab
        The lab's name.
    """
    hosts.start(hosts.find(lab), _host(lab, host), service)
    return 0


def _host(lab: str, name: str) -> Host:
    found = hosts.find(lab)
    for host in found.hosts:
        if host.name == name:
            return host
    raise RecipeError(
        "usage", f"no host {name} in lab {lab}", advice=f"there are {', '.join(h.name for h in found.hosts)}"
    )
