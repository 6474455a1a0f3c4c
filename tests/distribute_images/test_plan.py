"""Who gets what from whom: decided from facts alone, with reasons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.distribute.images import plan
from bascule.distribute.images.content import Content, difference, name_of, parse_content
from bascule.distribute.images.inventory import Inventory, Link, Room, parse

GB = 10**9
IMAGE = Content("sha256:c", "amd64", "linux", ("sha256:a", "sha256:b", "sha256:c"), "sum:1", "sha256:c", 3 * GB)
NODE = Inventory(
    docker=("docker",),
    user="op",
    arch="x86_64",
    python=(3, 11),
    spool="/home/op/.cache/bascule/spool",
    spool_room=Room("1", 100 * GB),
    root_dir="/var/lib/docker",
    root_room=Room("1", 100 * GB),
    version="28.5.2",
    store="overlay2",
)
HEAD = replace(NODE, root="root", wanted=IMAGE, chains=(IMAGE.diff_ids,))


@pytest.mark.parametrize(
    ("target", "method", "missing", "reason"),
    [
        (NODE, "pull", (0, 1, 2), "no layer of it"),
        (replace(NODE, wanted=IMAGE), "nothing", (), "same layers"),
        (replace(NODE, chains=(("sha256:a", "sha256:x"), ("sha256:b",))), "load", (1, 2), "the lower 1 of 3"),
        (replace(NODE, chains=(IMAGE.diff_ids,)), "load", (), "the lower 3 of 3"),
        (replace(NODE, store="containerd", chains=(("sha256:a",),)), "pull", (1, 2), "containerd"),
        (replace(NODE, rootless=True), "load", (0, 1, 2), "rootless"),
        (replace(NODE, python=None), "stream", (0, 1, 2), "python3 (3.9 or newer) is missing on b"),
        (replace(NODE, python=(3, 8)), "stream", (0, 1, 2), "python3 (3.9 or newer) is missing on b"),
    ],
)
def test_the_method_follows_from_facts(target: Inventory, method: str, missing: tuple[int, ...], reason: str) -> None:
    step = plan.step(HEAD, "b", target)
    assert (step.method, step.missing) == (method, missing)
    assert reason in step.reasons[0]


@pytest.mark.parametrize(
    ("neighbours", "cores", "method"),
    [(1, 1, "pull"), (4, 2, "load"), (4, 7, "load"), (4, 8, "pull"), (2, 64, "pull")],
)
def test_targets_that_share_too_few_cores_load(neighbours: int, cores: int, method: str) -> None:
    step = plan.step(HEAD, "b", replace(NODE, cores=cores), neighbours=neighbours)
    assert step.method == method
    assert ("4 targets share" in step.reasons[0]) == (method == "load")


@pytest.mark.parametrize(
    ("source", "mode"),
    [
        (HEAD, "graph"),
        (replace(HEAD, root="sudo"), "graph"),
        (replace(HEAD, root=""), "save"),
        (replace(HEAD, store="containerd"), "content"),
        (replace(HEAD, store="containerd", root=""), "save"),
        (replace(HEAD, store="other"), "save"),
    ],
)
def test_how_the_source_is_read(source: Inventory, mode: str) -> None:
    assert plan.source_mode(source)[0] == mode
    assert plan.source_mode(source, distrust=True)[0] == "save"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (replace(NODE, arch="aarch64"), "image-architecture"),
        (replace(NODE, docker=(), docker_said="permission denied while trying to connect"), "docker-denied"),
        (replace(NODE, docker=(), docker_said="docker is not installed"), "docker-missing"),
        (NODE, None),
    ],
)
def test_what_is_refused_before_a_byte(target: Inventory, code: str | None) -> None:
    refusal = plan.refuse("img", HEAD, "b", target)
    assert (refusal.code if refusal else None) == code


def test_room_is_counted_per_file_system_with_numbers() -> None:
    sizes = [GB, GB, 2 * GB]
    assert plan.lacks_room("b", NODE, "pull", sizes) is None
    small = replace(NODE, spool_room=Room("1", 11 * GB), root_room=Room("1", 11 * GB))
    refusal = plan.lacks_room("b", small, "pull", sizes)
    assert refusal is not None
    assert "11.00 GB free and needs 12.00 GB" in refusal.says
    apart = replace(NODE, spool_room=Room("2", 4 * GB), root_room=Room("1", 8 * GB))
    assert plan.lacks_room("b", apart, "load", sizes) is None
    assert plan.lacks_room("b", replace(apart, spool_room=Room("2", 4 * GB - 1)), "load", sizes) is not None
    assert plan.lacks_room("b", replace(small, spool_room=None, root_room=None), "pull", sizes) is None


def test_a_node_serves_on_the_fastest_network_that_the_others_share() -> None:
    lan, fabric = Link("eth0", "192.168.1.2", 24, 1000, "default"), Link("fab0", "10.0.0.2", 24, 200_000)
    docker = Link("docker0", "172.17.0.1", 16, -1, "bridge")
    own = (Link("lo", "127.0.0.1", 8, -1, "lo"), docker, lan, fabric)
    both = (replace(lan, ip="192.168.1.3"), replace(fabric, ip="10.0.0.3"), docker)
    alone = (replace(lan, ip="192.168.1.4"),)
    assert plan.serving_link(own, [both, both], None) == fabric
    assert plan.serving_link(own, [both, alone], None) == lan
    assert plan.serving_link(own, [both, both], "192.168.1.2") == lan
    assert plan.serving_link((lan, replace(fabric, speed=-1)), [both], None) == lan
    unknown = tuple(replace(link, speed=-1) for link in (lan, fabric))
    assert plan.serving_link(unknown, [both], None) == unknown[1]
    assert plan.serving_link((), [both], None) is None


def test_slow_links_stand_last_and_fuller_ones_first() -> None:
    rates = {"a": 100.0, "b": 90.0, "c": 10.0, "d": 95.0}
    assert plan.chain(rates, {"a": 1, "b": 5, "c": 9, "d": 1}) == ("b", "a", "d", "c")


@given(st.integers(1, 40))
def test_everyone_is_in_a_chain_that_ends_at_the_source(count: int) -> None:
    order = [f"n{number:02}" for number in range(count)]
    heads = [name for name in order if not plan.above(order, name)]
    assert len(heads) == (1 if count <= plan.ONE_CHAIN else 2)
    for at, name in enumerate(order):
        assert all(order.index(each) < at for each in plan.above(order, name))
        assert list(plan.above(order, name)) == sorted(plan.above(order, name), reverse=True)


@pytest.mark.parametrize(
    ("link", "cores", "codec"),
    [(12e6, 2, "zstd"), (118e6, 8, "zstd"), (118e6, 2, ""), (1.2e9, 8, ""), (3e6, 1, "zstd")],
)
def test_compression_is_for_links_that_it_speeds_up(link: float, cores: int, codec: str) -> None:
    measured = {"zstd": (350e6, 0.45), "zlib": (70e6, 0.46)}
    assert plan.codec(link, measured, ("zstd", "zlib"), cores)[0] == codec


def test_compression_needs_a_packer_on_both_ends_and_content_that_packs() -> None:
    assert plan.codec(12e6, {"zstd": (350e6, 0.45), "zlib": (70e6, 0.46)}, ("zlib",), 8)[0] == "zlib"
    assert plan.codec(12e6, {"zstd": (350e6, 1.0)}, ("zstd",), 8)[0] == ""
    assert plan.codec(12e6, {}, ("zstd",), 8)[0] == ""


def test_content_is_compared_not_ids() -> None:
    raw = {"Id": "sha256:c", "Os": "linux", "Architecture": "amd64", "RootFS": {"Layers": ["sha256:a"]}}
    old = {**raw, "Config": {"Env": ["A=b"], "Cmd": ["/x"], "Labels": None, "Tty": False, "Volumes": None}}
    new = {**raw, "Id": "sha256:m", "Config": {"Env": ["A=b"], "Cmd": ["/x"]}, "Descriptor": {}}
    one, other = parse_content(old, by_config=True), parse_content(new, by_config=False)
    assert difference(one, other) == ""
    assert "config says" in difference(one, replace(other, config_sum="sum:2"))
    assert "the config is" in difference(one, replace(one, config_digest="sha256:d"))
    assert difference(one, replace(other, diff_ids=("sha256:a", "sha256:b"))) == "it has 2 layers instead of 1"
    two = replace(one, diff_ids=("sha256:a", "sha256:b"))
    assert difference(two, one) == "layer 2 of 2 differs, or is not there"
    assert difference(two, replace(two, diff_ids=("sha256:a", "sha256:c"))) == "layer 2 of 2 differs, or is not there"
    assert difference(one, replace(other, diff_ids=())) == "layer 1 of 1 differs, or is not there"


def test_a_reference_by_digest_becomes_a_tag() -> None:
    digest = "0123456789abcdef" * 4
    assert name_of(f"vllm/vllm-openai@sha256:{digest}") == "vllm/vllm-openai:sha256-0123456789ab"
    assert name_of(f"localhost:5000/a:v1@sha256:{digest}") == "localhost:5000/a:sha256-0123456789ab"
    assert name_of("localhost:5000/a:v1") == "localhost:5000/a:v1"
    assert name_of(f"sha256:{digest}") == name_of(digest) == "bascule-copied:sha256-0123456789ab"


def test_inventories_as_they_were_printed() -> None:
    folder = Path(__file__).parent / "inventories"
    old = parse((folder / "20.10-overlay2.txt").read_text())
    assert (old.docker, old.version, old.store, old.root) == (("docker",), "20.10.24+dfsg1", "overlay2", "root")
    assert old.wanted is not None
    assert old.wanted.config_digest == old.wanted.image_id
    assert old.wanted.diff_ids in old.chains
    assert {link.interface for link in old.links} == {"lo", "fab0", "lan0"}
    new = parse((folder / "28-containerd.txt").read_text())
    assert (new.version, new.store, new.root, new.user) == ("28.5.2+dfsg4", "containerd", "", "op")
    assert new.wanted is not None
    assert new.wanted.config_digest is None
    assert difference(old.wanted, new.wanted) == ""
    denied = parse((folder / "guest.txt").read_text())
    assert (denied.docker, denied.wanted, denied.user) == ((), None, "guest")
    assert "permission denied" in denied.docker_said.lower()


def test_nothing_readable_is_no_docker_and_no_helper() -> None:
    assert parse("") == Inventory()
    assert not parse("=== python\n2.7\n").helper
