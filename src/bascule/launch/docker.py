"""The docker runtime: a rank is a container whose first process is the engine, found again by its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources

from bascule.core.machine import DockerFacts
from bascule.core.nouns import Glimpse, Node, RankPlan, RankState
from bascule.core.plain import is_secret
from bascule.engines.baked import without_baked
from bascule.errors import NodeTrouble
from bascule.remote import docker, shell
from bascule.remote.runner import Result, Runner

SECRETS = "secrets.sh"


class DockerRuntime:
    """Containers by docker or podman, whichever works on the node."""

    async def start(self, runner: Runner, node: Node, name: str, plan: RankPlan, label: Mapping[str, str]) -> Result:
        """Create and start one container; it leaves nothing when it fails."""
        image = await inspect(runner, node, label["artefact"])
        if image:
            plan = without_baked(plan, image.env)
        script = start_script(node, name, plan, label, image.entrypoint if image else ())
        result = await runner.run(("sh", "-s"), stdin=script, within=120)
        return replace(result, stderr=docker.first_error(result.stderr))

    async def observe(self, runner: Runner, node: Node, cursors: Mapping[str, str]) -> list[Glimpse]:
        """One look at ranks of a node; a rank of which the daemon says nothing now is left out."""
        words = [word for name, cursor in cursors.items() for word in (name, cursor or "-")]
        result = await self._call(runner, node, "observe", *words)
        return docker.parse_glimpses(result.stdout)

    async def find(self, runner: Runner, node: Node, service: str = "") -> list[RankState]:
        """The ranks of a service on a node, or of all services."""
        if node.facts.docker is None:
            return []
        result = await self._call(runner, node, "list", service)
        if not result.ok:
            raise NodeTrouble("docker-silent", f"docker on {node.name} does not answer", seen=result.complaint)
        return docker.parse_states(result.text, node.name)

    async def stop(self, runner: Runner, node: Node, names: Sequence[str], grace: int) -> None:
        """End ranks. Raises NodeTrouble when something is left."""
        if names:
            result = await self._call(runner, node, "stop", str(grace), *names, within=grace + 25)
            if not result.ok:
                raise NodeTrouble("not-stopped", f"a rank on {node.name} did not end", seen=result.complaint)

    async def remove(self, runner: Runner, node: Node, names: Sequence[str]) -> None:
        """Remove the containers of ranks that have ended."""
        if names:
            await self._call(runner, node, "remove", *names)

    async def _call(self, runner: Runner, node: Node, function: str, *words: str, within: float = 30) -> Result:
        library = resources.files("bascule.launch").joinpath("docker.sh").read_text()
        command = " ".join(docker_of(node).command)
        return await runner.run(("sh", "-s", "--", function, command, *words), stdin=library, within=within)


async def inspect(runner: Runner, node: Node, image: str) -> docker.ImageFacts | None:
    """What an image says of itself on a node; None when it can't be read, as in a dry run."""
    words = (*docker_of(node).command, "image", "inspect", image)
    result = await runner.run(words, within=30)
    return docker.parse_image(result.text) if result.ok and result.stdout.strip() else None


def docker_of(node: Node) -> DockerFacts:
    """The container engine of a node. Raises NodeTrouble that says what is missing."""
    if node.facts.docker is None:
        why = node.facts.unknown.get("docker", "its facts were not read")
        raise NodeTrouble("no-docker", f"{node.name} can't run images", seen=why, advice=_advice(why))
    return node.facts.docker


def _advice(why: str) -> str:
    if "permission denied" in why:
        return "add the SSH user there to the group docker, or let it use sudo without a password"
    if "Cannot connect" in why or "daemon" in why:
        return "start dockerd there"
    return "install docker or podman there"


def start_script(node: Node, name: str, plan: RankPlan, label: Mapping[str, str], entrypoint: Sequence[str]) -> str:
    """A script for one node: create, copy the rank's files in, start; one function, so that it runs whole or not."""
    command = shell.line(docker_of(node).command)
    open_plan, secrets = without_secrets(plan)
    argv = with_secrets(open_plan.argv) if secrets else open_plan.argv
    program, words = docker.command_words(entrypoint, argv)
    create = list(docker.run_words(open_plan, name, label["artefact"], node.facts, label))
    placed = [*(("--entrypoint", program) if program else ()), "--workdir", docker.FOLDER]
    create[-1:-1] = placed
    files = {**plan.files, **({SECRETS: shell.exports(secrets)} if secrets else {})}
    container = shell.line((f"{docker.PREFIX}.{name}",))
    lines = [
        f"{command} {shell.line((*create, *words))} >/dev/null",
        f"trap '{command} rm -f {container} >/dev/null' EXIT",
    ]
    if files or command.endswith("podman"):  # podman doesn't make the working directory by itself
        lines += ["folder=$(mktemp -d)", f"trap 'rm -rf \"$folder\"; {command} rm -f {container} >/dev/null' EXIT"]
        lines += [shell.here_document(path, text, "folder") for path, text in files.items()]
        lines += [
            'find "$folder" -type f -exec chmod 644 {} +; chmod 755 "$folder"',
            f'{command} cp "$folder/." {container}:{docker.FOLDER}',
        ]
        lines += ['rm -rf "$folder"']
    lines += [f"{command} start {container} >/dev/null", "trap - EXIT"]
    body = "\n".join(line.rstrip("\n") for line in lines)
    return f"set -eu; umask 077\nstart() {{\n{body}\n}}\nstart\n"


def without_secrets(plan: RankPlan) -> tuple[RankPlan, dict[str, str]]:
    """The plan without variables that `docker inspect` must not show, and those variables."""
    secrets = {name: value for name, value in plan.env.items() if is_secret(name)}
    return plan.with_env({name: value for name, value in plan.env.items() if name not in secrets}), secrets


def with_secrets(argv: Sequence[str]) -> tuple[str, ...]:
    """The command behind a shell that reads the secrets and then becomes the engine."""
    return ("sh", "-c", f'. {docker.FOLDER}/{SECRETS}; exec "$@"', "sh", *argv)
