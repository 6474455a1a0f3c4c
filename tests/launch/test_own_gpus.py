"""A node that owns some GPUs of its machine, two nodes on one machine, and engines in plain folders of packages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bascule.core.layout import with_own_gpus
from bascule.core.machine import DockerFacts, Gpu, GpuProcess, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Fate, LaunchPlan, Node, RankPlan
from bascule.discover.candidates import from_recipe
from bascule.engines.base import has_dummy_weights
from bascule.engines.catalogue import ENGINES
from bascule.errors import RecipeError
from bascule.journal import Journal
from bascule.launch.plan import Wanted, digest, plan_launch
from bascule.launch.venv import start_script
from bascule.operate.services import known
from bascule.operate.ward import _nodes as nodes_as_told
from bascule.preflight.checks import gpus_are_there
from bascule.recipe.load import parse
from bascule.recipe.words import nodes_from_words
from bascule.remote.docker import run_words

TOP = "service: s\nmodel: /m\nnodes:\n"
TWO = (
    TOP + "  - {name: a, host: local, address: 127.0.0.1, gpus: [1, 0]}\n  - {name: b, host: local, address: 127.0.0.2"
)
FOLDER = "candidates: [{engine: vllm, pythonpath: site, python: /usr/bin/python3"
IMAGE = "candidates: [{engine: vllm, image: 'vllm:1'"
DGX = tuple(Gpu(index, "NVIDIA H200", uuid=f"GPU-{index}") for index in range(2))
BUSY = (GpuProcess("GPU-0", 7, "python3", 10), GpuProcess("GPU-1", 8, "python3", 20))


def facts_of(machine: str = "boot\nnet:[1]", **more) -> NodeFacts:
    return NodeFacts(machine_id=machine, gpus=DGX, gpu_processes=BUSY, **more)


def planned(text: str, machines: tuple[str, ...] = ("boot\nnet:[1]", "boot\nnet:[1]")) -> LaunchPlan:
    recipe = parse(text, "r.yaml")
    nodes = [
        Node(one.name, one.host, one.address, gpus=one.node().gpus, facts=facts_of(machine))
        for one, machine in zip(recipe.nodes, machines, strict=False)
    ]
    return plan_launch(
        from_recipe(recipe, Path("/base"))[0],
        nodes,
        Wanted(recipe.service, recipe.port, recipe.rendezvous_port, recipe.service, None),
    )


def own(plan: LaunchPlan) -> list[dict[str, str]]:
    """What every rank is told because of its node or its artefact."""
    names = ("NCCL_HOSTID", "PYTHONPATH", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")
    return [{name: rank.env[name] for name in names if name in rank.env} for rank in plan.ranks]


def test_two_nodes_of_one_machine_see_their_own_gpus_and_are_two_hosts_to_nccl() -> None:
    plan = planned(TWO + ", gpus: 1}\n" + FOLDER + "}]\n")
    cuda = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert own(plan) == [
        {"NCCL_HOSTID": "s-a", "PYTHONPATH": "/base/site", **cuda, "CUDA_VISIBLE_DEVICES": "1,0"},
        {"NCCL_HOSTID": "s-b", "PYTHONPATH": "/base/site", **cuda, "CUDA_VISIBLE_DEVICES": "1"},
    ]
    assert [rank.gpus for rank in plan.ranks] == [(1, 0), (1,)]
    assert [rank.argv[0] for rank in plan.ranks] == ["/usr/bin/python3"] * 2


def test_namespaces_of_one_machine_are_one_machine_to_nccl_and_other_machines_are_not() -> None:
    names = [
        one.get("NCCL_HOSTID") for one in own(planned(TWO + "}\n" + FOLDER + "}]\n", ("x\nnet:[1]", "x\nnet:[2]")))
    ]
    assert names == ["s-a", "s-b"]
    two = planned(TWO + "}\n" + FOLDER + "}]\n", ("x\nnet:[1]", "y\nnet:[1]"))
    assert [one.get("NCCL_HOSTID") for one in own(two)] == [None, None]
    alone = planned(TWO + "}\n" + FOLDER + ", nodes: [b]}]\n")
    assert own(alone) == [{"PYTHONPATH": "/base/site"}]


def test_a_recipe_may_say_otherwise_or_leave_one_out() -> None:
    said = planned(TWO + "}\n" + FOLDER + ", env: {NCCL_HOSTID: null}, env_on: {a: {CUDA_VISIBLE_DEVICES: GPU-77}}}]\n")
    assert "NCCL_HOSTID" not in said.ranks[0].env and "NCCL_HOSTID" not in said.ranks[1].env
    assert said.ranks[0].env["CUDA_VISIBLE_DEVICES"] == "GPU-77"
    assert digest(said) != digest(planned(TWO + "}\n" + FOLDER + "}]\n"))


@pytest.mark.parametrize(("words", "gpus"), [("gpus=1", (1,)), ("gpus=0 3", (0, 3)), ("address=10.0.0.1", None)])
def test_gpus_can_be_said_on_a_command_line(words: str, gpus: tuple[int, ...] | None) -> None:
    assert [node.gpus for node in nodes_from_words([f"name=a,host=local,{words}"])] == [gpus]


def test_other_gpus_are_another_start() -> None:
    one, other = (planned(TWO + f", gpus: {gpu}}}\n{IMAGE}}}]\n") for gpu in (0, 1))
    assert digest(one) != digest(other)


def test_a_container_gets_its_gpus_from_docker_and_counts_them_anew() -> None:
    plan = planned(TWO + ", gpus: 1}\n" + IMAGE + "}]\n")
    assert own(plan) == [{"NCCL_HOSTID": "s-a"}, {"NCCL_HOSTID": "s-b"}]
    docker = facts_of(docker=DockerFacts(("docker",), "28", "overlay2", "/d", "amd64"))
    words = run_words(plan.ranks[0], "n", "vllm:1", docker, {})
    assert words[words.index("--gpus") + 1] == '"device=1,0"'
    podman = facts_of(docker=DockerFacts(("sudo", "-n", "podman"), "5", "overlay", "/d", "amd64"))
    words = run_words(plan.ranks[0], "n", "vllm:1", podman, {})
    devices = [words[at + 1] for at, word in enumerate(words) if word == "--device"]
    assert (devices, "--gpus" in words) == (["nvidia.com/gpu=1", "nvidia.com/gpu=0"], False)
    assert "--gpus" not in run_words(plan.ranks[0], "n", "vllm:1", NodeFacts(gpus=()), {})


def test_gpus_of_others_are_not_there_for_a_node() -> None:
    node = with_own_gpus(Node("b", "local", gpus=(1,), facts=facts_of()))
    assert [gpu.index for gpu in node.facts.gpus or ()] == [1]
    assert [one.pid for one in node.facts.gpu_processes or ()] == [8]
    for other in (Node("b", "local", facts=facts_of()), Node("b", "local", gpus=(1,), facts=NodeFacts())):
        assert with_own_gpus(other) == other


def test_a_gpu_that_is_not_there_is_told_before_the_start() -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    finding = gpus_are_there(with_own_gpus(Node("b", "local", gpus=(1, 3), facts=facts_of())), now)
    assert finding is not None
    assert (finding.fate, finding.code, finding.says) == (Fate.CLUSTER, "gpu-missing", "b has no GPU 3")
    assert finding.evidence[0].excerpt == "asked for 1, 3: 1 NVIDIA H200"
    for fine in (Node("b", "local", gpus=(1,), facts=facts_of()), Node("b", "local", gpus=(3,), facts=NodeFacts())):
        assert gpus_are_there(with_own_gpus(fine), now) is None


def test_programs_in_a_folder_of_packages_are_found_by_the_engine() -> None:
    plan = RankPlan(0, "a", ("/usr/bin/python3", "-m", "x"), {"PYTHONPATH": "/base/site:/more"})
    assert 'export PATH=/base/site/bin:/more/bin:/usr/bin:"$PATH"\n' in start_script("/r", "n", plan, {})
    bare = RankPlan(0, "a", ("python3", "-m", "x"), {})
    assert "PATH" not in start_script("/r", "n", bare, {})


def test_the_nodes_python3_runs_a_folder_that_names_no_interpreter() -> None:
    recipe = parse(TWO + "}\n" + FOLDER.replace(", python: /usr/bin/python3", "") + "}]\n", "r.yaml")
    assert from_recipe(recipe, Path("/base"))[0].artefact == Artefact("venv", "/base/site", "python3")


@pytest.mark.parametrize(
    ("says", "dummy"),
    [
        ("load_format: dummy", True),
        ("args: --load-format=dummy", True),
        ("load_format: dummy, args: --load-format auto", False),
        ("load_format: safetensors", False),
        ("args: --x", False),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_made_up_weights_are_known_however_they_were_asked_for(engine: str, says: str, dummy: bool) -> None:
    text = TWO + "}\n" + f"candidates: [{{engine: {engine}, venv: /v, {says}}}]\n"
    candidate = from_recipe(parse(text, "r.yaml"), Path("/base"))[0]
    assert has_dummy_weights(candidate, ENGINES[engine].lore) is dummy
    words = planned(text).ranks[0].argv
    assert words.count("--load-format") == ("--x" not in says)


def test_an_engine_without_a_load_format_is_not_given_one() -> None:
    recipe = parse(TWO + "}\ncandidates: [{engine: llamacpp, venv: /v, load_format: dummy}]\n", "r.yaml")
    with pytest.raises(RecipeError, match="candidate llamacpp-v: llamacpp has no load_format"):
        from_recipe(recipe, Path("/base"))
    plain = Candidate("c", "llamacpp", Artefact("venv", "/v"), "/m")
    assert has_dummy_weights(plain, ENGINES["llamacpp"].lore) is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TWO + ", gpus: []}\n", "r.yaml:5:54  `gpus` is empty"),
        (TWO + ", gpus: [1, 1]}\n", "r.yaml:5:54  GPU 1 stands twice in `gpus`"),
        (TWO + ", gpus: [-1]}\n", "r.yaml:5:55  `gpus` should be greater than or equal to 0, not -1"),
        (TWO + ", gpus: true}\n", "r.yaml:5:54  `gpus` should be a valid list, not True"),
        (
            TWO + "}\n" + FOLDER + ", image: i}]\n",
            "r.yaml:6:14  a candidate has one of `venv`, `pythonpath` and `image`",
        ),
        (
            TWO + "}\ncandidates: [{engine: vllm}]\n",
            "r.yaml:6:14  a candidate has one of `venv`, `pythonpath` and `image`",
        ),
        (
            TWO + "}\n" + FOLDER.replace("pythonpath", "venv") + "}]\n",
            "r.yaml:6:14  `python` is the interpreter for a `pythonpath`; a venv and an image have their own",
        ),
    ],
)
def test_what_a_recipe_can_not_mean_is_told_with_its_place(text: str, says: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(text, "r.yaml")
    assert caught.value.says == says


def test_a_service_that_is_found_again_has_the_gpus_of_its_nodes(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    here = TWO.replace("host: local, address: 127.0.0.2", "host: b, address: 127.0.0.2") + ", gpus: 1}\n"
    nodes = [node.model_dump() for node in parse(here, "r.yaml").nodes]
    journal.begin(service="s", source="r.yaml", model="/m", nodes=nodes)
    assert [node.gpus for node in known(journal)[0].nodes] == [(1, 0), (1,)]
    older = [{key: value for key, value in node.items() if key != "gpus"} for node in nodes]
    journal.begin(service="old", source="r.yaml", model="/m", nodes=older)
    assert {node.gpus for node in known(journal)[0].nodes} == {None}


def test_two_nodes_of_one_machine_are_watched_as_two() -> None:
    told = [node.model_dump() for node in parse(TWO + ", gpus: 1}\n", "r.yaml").nodes]
    there = [Node("a", "local", "127.0.0.1", gpus=(1, 0), facts=facts_of())]  # one place is looked at once
    watched = nodes_as_told(told, there, there)
    assert [(one.name, one.address, one.gpus) for one in watched.values()] == [
        ("a", "127.0.0.1", (1, 0)),
        ("b", "127.0.0.2", (1,)),
    ]
