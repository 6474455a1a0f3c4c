"""A rank as a container: the exact words, what is kept out of them, and what docker's answers mean."""

from __future__ import annotations

import json
import shlex

import pytest

from bascule.core.machine import DockerFacts, Gpu, NodeFacts
from bascule.core.nouns import Node, RankPlan
from bascule.errors import NodeTrouble
from bascule.launch.docker import docker_of, start_script
from bascule.remote import docker
from bascule.remote.facts_docker import parse_docker

ENGINE = DockerFacts(("docker",), "20.10.24", "overlay2", "/var/lib/docker", "amd64")
SPARK = NodeFacts(arch="aarch64", gpus=(Gpu(0, "NVIDIA GB10"),), infiniband=True, memlock=True, docker=ENGINE)
PLAIN = NodeFacts(arch="x86_64", gpus=(), infiniband=False, memlock=False, docker=ENGINE)
PLAN = RankPlan(1, "b", ("python3", "-m", "engine", "--port", "8000"), {"NCCL_DEBUG": "INFO"}, mounts=("/models/m",))
LABEL = {"service": "s", "generation": "3.1", "rank": "1", "artefact": "engine:1"}


def test_the_words_of_a_rank_with_gpus_and_rdma():
    words = shlex.join(docker.run_words(PLAN, "s.3.1.r1", "engine:1", SPARK, LABEL))
    assert words == (
        "create --name bascule.s.3.1.r1 --network host --ipc host --ulimit memlock=-1 --cap-add IPC_LOCK --restart no "
        "--log-driver json-file --log-opt max-size=64m --log-opt max-file=4 --device /dev/infiniband --gpus all "
        "--volume /models/m:/models/m:ro --label bascule.service=s --label bascule.generation=3.1 "
        "--label bascule.rank=1 --label bascule.artefact=engine:1 --env NCCL_DEBUG=INFO engine:1"
    )


def test_what_a_node_does_not_have_is_not_asked_for():
    words = docker.run_words(PLAN, "s.3.1.r1", "engine:1", PLAIN, LABEL)
    assert not {"--gpus", "--device", "--ulimit"} & set(words)
    assert not {"--rm", "--privileged"} & set(words)


@pytest.mark.parametrize(
    ("entrypoint", "program", "words"),
    [
        ((), "python3", ("-m", "engine")),
        (("vllm", "serve"), "python3", ("-m", "engine")),
        (("python3", "-m", "vllm.entrypoints.openai.api_server"), "python3", ("-m", "engine")),
        (("/bin/bash",), "python3", ("-m", "engine")),
        (("/bin/bash", "-c"), "python3", ("-m", "engine")),
        (("/opt/nvidia/nvidia_entrypoint.sh",), None, ("python3", "-m", "engine")),
        (("/docker-entrypoint.sh",), None, ("python3", "-m", "engine")),
    ],
)
def test_the_engine_is_the_first_process_whatever_the_image_starts_by_itself(entrypoint, program, words):
    assert docker.command_words(entrypoint, ("python3", "-m", "engine")) == (program, words)


def test_a_secret_is_in_no_argument_and_in_no_variable_of_the_container():
    plan = RankPlan(0, "a", ("python3", "serve.py"), {"HF_TOKEN": "hf_geheim", "X": "1"}, {"serve.py": "print()\n"})
    script = start_script(Node("a", "local", facts=PLAIN), "s.1.1.r0", plan, LABEL, ())
    create = next(line for line in script.splitlines() if line.startswith("docker create"))
    assert "hf_geheim" not in create and "HF_TOKEN" not in create and "--env X=1" in create
    assert "export HF_TOKEN=hf_geheim" in script and 'docker cp "$folder/." bascule.s.1.1.r0:/run/bascule' in script
    assert create.endswith("""-c '. /run/bascule/secrets.sh; exec "$@"' sh python3 serve.py >/dev/null""")


def test_without_secrets_and_files_nothing_is_copied_in():
    script = start_script(Node("b", "local", facts=PLAIN), "s.3.1.r1", PLAN, LABEL, ())
    assert " cp " not in script and script.rstrip().endswith("}\nstart")


def test_sudo_is_part_of_every_command():
    facts = NodeFacts(gpus=(), docker=DockerFacts(("sudo", "-n", "docker"), "28", "overlay2", "/d", "amd64"))
    script = start_script(Node("b", "local", facts=facts), "s.3.1.r1", PLAN, LABEL, ())
    commands = [line for line in script.splitlines() if "docker " in line]
    assert commands and all("sudo -n docker" in line for line in commands)


@pytest.mark.parametrize(
    ("told", "command", "store"),
    [
        ('ok docker\n{"ServerVersion":"20.10.24","Driver":"overlay2","DockerRootDir":"/d","Architecture":"x86_64"}',
         ("docker",), "overlay2"),
        ('no docker: permission denied\nok sudo -n docker\n{"ServerVersion":"28","Driver":"overlayfs","Architecture":'
         '"aarch64","DriverStatus":[["driver-type","io.containerd.snapshotter.v1"]]}',
         ("sudo", "-n", "docker"), "containerd"),
        ('no docker: not installed\nno sudo -n docker: not installed\nok podman\n{"host":{"arch":"arm64"},"store":'
         '{"graphDriverName":"overlay","graphRoot":"/g"},"version":{"Version":"5.4"}}', ("podman",), "overlay"),
    ],
)  # fmt: skip
def test_which_engine_works_on_a_node(told, command, store):
    found = parse_docker(told)
    assert (found.command, found.store) == (command, store)


def test_no_engine_works_and_each_says_why():
    with pytest.raises(ValueError, match=r"docker: permission denied; podman: not installed"):
        parse_docker("no docker: permission denied\nno podman: not installed")
    facts = NodeFacts(unknown={"docker": "docker: permission denied while trying to connect"})
    with pytest.raises(NodeTrouble) as trouble:
        docker_of(Node("a", "spark-1", facts=facts))
    assert trouble.value.code == "no-docker" and "group docker" in trouble.value.advice


def inspected(**state):
    labels = {
        "bascule.service": "s",
        "bascule.generation": "3.1",
        "bascule.rank": "1",
        "bascule.node": "b",
        "other": "x",
    }
    return json.dumps([{"Config": {"Labels": labels}, "State": {"Pid": 0, "ExitCode": 0, **state}}])


@pytest.mark.parametrize(
    ("state", "alive", "code"),
    [
        ({"Status": "running", "Pid": 7}, True, None),
        ({"Status": "paused", "Pid": 7}, True, None),
        ({"Status": "exited", "ExitCode": 137}, False, 137),
        ({"Status": "dead", "ExitCode": 1}, False, 1),
    ],
)
def test_the_state_of_a_rank_from_inspect(state, alive, code):
    (found,) = docker.parse_states(inspected(**state), "b")
    assert (found.service, found.generation, found.rank, found.node) == ("s", "3.1", 1, "b")
    assert (found.alive, found.exit_code, found.runtime) == (alive, code, "image")


def block(name, state, cursor, log):
    return f"=== {name} {state} {cursor} {len(log.encode())}\n{log}\n".encode()


def at(second, text):
    return f"2026-11-30T10:00:{second:012.9f}Z {text}"


def test_a_look_gives_new_lines_once_and_where_it_was_left():
    log = at(0.1, "one\n") + at(0.2, "two\r2\n") + at(0.3, "cut")
    (first,) = docker.parse_glimpses(block("s.1.1.r0", "running 0 false", "-", log))
    assert (first.gained, first.cursor, first.alive) == (b"one\ntwo\r2\n", "2026-11-30T10:00:00Z,2", True)
    (second,) = docker.parse_glimpses(block("s.1.1.r0", "running 0 false", first.cursor, at(0.3, "cut and whole\n")))
    assert (second.gained, second.cursor) == (b"cut and whole\n", "2026-11-30T10:00:00Z,3")
    (third,) = docker.parse_glimpses(block("s.1.1.r0", "running 0 false", second.cursor, ""))
    assert (third.gained, third.cursor) == (b"", second.cursor)


def test_lines_of_one_time_and_of_times_that_are_not_in_order_are_all_given():
    """As podman tells lines that were written at once, and docker those of two streams."""
    log = at(0.9, "1\n") + at(1.2, "2\n") + at(1.2, "3\n") + at(0.8, "4\n")
    (seen,) = docker.parse_glimpses(block("s.1.1.r0", "running 0 false", "-", log))
    assert (seen.gained, seen.cursor) == (b"1\n2\n3\n4\n", "2026-11-30T10:00:01Z,3")


def test_a_line_that_was_read_in_pieces_is_one_again_and_stands_where_its_last_piece_does():
    log = at(0.9, "one, ") + at(1.1, "and on\n") + at(1.2, "two\n")
    (seen,) = docker.parse_glimpses(block("s.1.1.r0", "running 0 false", "-", log))
    assert (seen.gained, seen.cursor) == (b"one, and on\ntwo\n", "2026-11-30T10:00:01Z,2")


def test_a_look_at_one_that_the_kernel_ended_and_one_that_is_gone():
    out = block("s.1.1.r0", "exited 137 true", "-", "") + block("s.1.1.r1", "missing - false", "-", "")
    killed, gone = docker.parse_glimpses(out)
    assert (killed.alive, killed.exit_code, killed.out_of_memory) == (False, 137, True)
    assert (gone.alive, gone.exit_code) == (False, None)
